from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelscale.selectors import Requirement, Selector, parse_selector

LABELS = {"app": "web", "tier": "gold", "example.com/team": "blue", "empty": ""}


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("", True),
        ("  ", True),
        ("app=web", True),
        ("app==web", True),
        (" app = web ", True),
        ("app=web\n", True),
        ("app=api", False),
        ("app!=api", True),
        ("app!=web", False),
        ("other!=web", True),  # != also holds where there is no such label
        ("other=web", False),
        ("app", True),
        ("other", False),
        ("!other", True),
        ("! other", True),
        ("!app", False),
        ("tier in (gold,silver)", True),
        ("tier in (silver, gold)", True),
        ("tier in(gold)", True),
        ("tier in (silver)", False),
        ("tier notin (silver)", True),
        ("tier notin (gold, silver)", False),
        ("other notin (gold)", True),
        ("other in (gold)", False),
        ("empty=", True),
        ("empty in (,x)", True),
        ("app=", False),
        ("app=web,tier in (gold,silver),!canary", True),
        ("app=web,tier in (gold,silver),canary", False),
        ("example.com/team=blue", True),
        ("example.com/team in (blue),app", True),
        ("in=a", False),
    ],
)
def test_selection(text: str, selected: bool) -> None:
    assert parse_selector(text).matches(LABELS) is selected


@pytest.mark.parametrize(
    "text",
    [
        ",",
        "app=web,",
        ",app=web",
        "app=web,,tier",
        "app=a=b",
        "app=!web",
        "=web",
        "!",
        "!app=web",
        "app in gold",
        "app in (gold",
        "app in gold)",
        "app in (gold))",
        "app in ((gold))",
        "app on (gold)",
        "app web",
        "app=we b",
        "app=-web",
        "app=web-",
        "_app",
        "app/",
        "/app",
        "Example.com/app",
        "example..com/app",
        "a/b/c",
        "app>3",
        "app=" + "x" * 64,
        "x" * 64,
        "x" * 254 + "/app",
        "äpp=web",
        "app=wéb",
        "app in (ok, not ok)",
    ],
)
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no (label|value)"):
        parse_selector(text)


def test_a_fault_names_the_part_and_what_is_allowed() -> None:
    with pytest.raises(
        ValueError, match=r"'tier on \(x\)' is no label; .* tier in \(gold,silver\)"
    ):
        parse_selector("app=web,tier on (x)")
    with pytest.raises(ValueError, match="'-x' is no value of a label: at most 63"):
        parse_selector("app=web,tier in (gold,-x)")


def test_a_selector_shows_its_text_and_is_equal_by_its_meaning() -> None:
    assert str(parse_selector("app = web")) == "app = web"
    assert parse_selector("app = web") == parse_selector("app=web")
    assert hash(parse_selector("tier in (a,b)")) == hash(parse_selector("tier in (b,a)"))
    assert parse_selector("") == Selector(())
    assert parse_selector("!a,b=c") == Selector(
        (Requirement("a", negated=True), Requirement("b", frozenset({"c"})))
    )


def test_a_text_of_a_mebibyte_takes_no_more_than_its_length() -> None:
    for text in ("," * 2**20, "(" * 2**20, "a(,)" * 2**18, "a" * 2**20, "a in " + " " * 2**20):
        with pytest.raises(ValueError, match="is no"):
            parse_selector(text)


names = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,8}[A-Za-z0-9])?", fullmatch=True)
label_sets = st.dictionaries(names, names, max_size=4)


@given(names, st.sets(names, min_size=1, max_size=4), label_sets)
def test_a_requirement_and_its_negation_never_agree(
    key: str, values: set[str], labels: dict[str, str]
) -> None:
    listed = ",".join(values)
    for positive, negative in [
        (f"{key} in ({listed})", f"{key} notin ({listed})"),
        (key, f"!{key}"),
        (f"{key}={listed.split(',')[0]}", f"{key}!={listed.split(',')[0]}"),
    ]:
        assert parse_selector(positive).matches(labels) is not (
            parse_selector(negative).matches(labels)
        )


@given(st.lists(st.tuples(names, names), max_size=4), label_sets)
def test_all_requirements_must_hold(pairs: list[tuple[str, str]], labels: dict[str, str]) -> None:
    text = ", ".join(f"{key}={value}" for key, value in pairs)
    expected = all(labels.get(key) == value for key, value in pairs)
    assert parse_selector(text).matches(labels) is expected


@given(st.text(max_size=40))
def test_any_text_is_a_selector_or_a_fault(text: str) -> None:
    try:
        selector = parse_selector(text)
    except ValueError:
        return
    assert selector.matches({}) in (True, False)
