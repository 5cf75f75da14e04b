"""The contract of plugins is written down whole: what is not on the page fails here."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import accelscale.testing
from accelscale import hookspecs
from accelscale.backend import Backend
from accelscale.metrics import Tier
from accelscale.model import Reason
from accelscale.plugins import DISABLE_VARIABLE, GROUP, LIMIT_SECONDS

DOCS = Path(__file__).parents[2] / "docs/plugins"
CONTRACT = (DOCS / "index.md").read_text(encoding="utf-8")


def public(names: list[str]) -> list[str]:
    return sorted({name for name in names if not name.startswith("_")})


HOOKS = [
    name
    for name, thing in vars(hookspecs).items()
    if inspect.isfunction(thing) and hasattr(thing, "accelscale_spec")
]
MEMBERS = public([*vars(Backend), *Backend.__annotations__])


def test_there_are_hooks_and_members() -> None:
    assert HOOKS == ["accelscale_register_backends"]
    assert {"name", "vendor", "metrics", "probe", "read", "device_of"} <= set(MEMBERS)


@pytest.mark.parametrize(
    "name", [*HOOKS, *MEMBERS, *public(accelscale.testing.__all__), *Reason, DISABLE_VARIABLE]
)
def test_it_is_named(name: str) -> None:
    assert f"`{name}`" in CONTRACT, f"docs/plugins/index.md does not say what {name} is"


@pytest.mark.parametrize("member", MEMBERS)
def test_every_member_has_a_row_of_its_own(member: str) -> None:
    assert re.search(rf"^\| `{member}` \| \S", CONTRACT, re.MULTILINE)


@pytest.mark.parametrize("tier", Tier)
def test_every_tier_is_named(tier: Tier) -> None:
    assert f"`Tier.{tier.name}`" in CONTRACT


def test_figures_are_those_of_the_code() -> None:
    assert GROUP == "accelscale"
    assert LIMIT_SECONDS == 5.0
    assert "takes longer than five seconds" in CONTRACT


def test_the_pages_are_in_the_navigation() -> None:
    navigation = (DOCS.parents[1] / "mkdocs.yml").read_text(encoding="utf-8")
    for page in sorted(DOCS.glob("*.md")):
        assert f"plugins/{page.name}" in navigation
