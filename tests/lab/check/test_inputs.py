from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

import accelscale.lab.check.inputs as module
from accelscale.lab.check.inputs import Source, sources


def read(*names: str | Path, content: bytes = b"") -> list[Source]:
    return list(sources([str(name) for name in names], io.BytesIO(content)))


def test_files_are_read_once_in_the_order_given(tmp_path: Path) -> None:
    first, second, link = tmp_path / "b.yaml", tmp_path / "a.yaml", tmp_path / "c.yaml"
    first.write_text("a: 1\n")
    second.write_text("b: 1\n")
    link.symlink_to(first)
    found = read(first, second, first, link)
    assert [(each.name, each.text) for each in found] == [
        (str(first), "a: 1\n"),
        (str(second), "b: 1\n"),
    ]
    assert all(each.named and each.counts for each in found)


def test_standard_input_is_read_once() -> None:
    (found,) = read("-", "-", content="é: 1\n".encode())
    assert (found.name, found.text) == ("-", "é: 1\n")


@pytest.mark.parametrize("content", [b"", b"\n  \n", b"\xef\xbb\xbf"])
def test_nothing_on_standard_input_is_a_problem(content: bytes) -> None:
    (found,) = read("-", content=content)
    assert found.problem is not None
    assert "did the command before it fail?" in found.problem


def test_a_folder_means_the_yaml_below_it(tmp_path: Path) -> None:
    for name in ("b.yml", "a/c.yaml", "a/d.json", "a/e.txt", ".hidden/f.yaml", "G.YAML"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("kind: x\n")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    names = [os.path.relpath(each.name, tmp_path) for each in read(tmp_path)]
    assert names == ["G.YAML", "b.yml", "a/c.yaml", "a/d.json"]


def test_in_a_folder_only_what_speaks_of_our_kinds_counts(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: ConfigMap\n")
    (tmp_path / "b.yaml").write_text("kind: ScaledObject\n")
    assert [each.counts for each in read(tmp_path)] == [False, True]


def test_a_folder_without_yaml_is_a_problem(tmp_path: Path) -> None:
    (found,) = read(tmp_path)
    assert found.problem == "no .yaml, .yml, .json file is in this folder"


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    (missing,) = read(tmp_path / "none.yaml")
    assert missing.problem == "cannot be read: No such file or directory"
    assert missing.counts


def test_text_in_another_encoding_says_where(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"a: 1\nb: \xe9\n")
    (found,) = read(path)
    assert found.problem == "is not text in UTF-8 (byte 0xE9)"
    assert (found.line, found.column) == (2, 4)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_marks_of_byte_order_are_understood(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("é: 1\n", encoding=encoding)
    (found,) = read(path)
    assert (found.problem, found.text) == (None, "é: 1\n")


def test_files_beyond_the_bound_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST", 2**20)
    (tmp_path / "a.yaml").write_bytes(b"#" * (2**20 + 1))
    (found,) = read(tmp_path / "a.yaml")
    assert found.problem == "is larger than 1 MiB"
    (endless,) = read("/dev/zero")
    assert endless.problem == "is larger than 1 MiB"
