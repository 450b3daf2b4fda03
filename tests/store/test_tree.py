"""Looking through a directory, whatever stands in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cp.store.tree import survey


def test_a_link_into_a_directory_that_one_may_not_search_is_an_unreadable_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, secret = tmp_path / "root", tmp_path / "secret"
    root.mkdir()
    secret.mkdir()
    (root / "link.yaml").symlink_to(secret / "inner" / "file.yaml")
    look = os.stat

    def guarded(path: Any, *args: Any, **options: Any) -> os.stat_result:
        if isinstance(path, str | Path) and str(path).startswith(f"{secret}/"):
            raise PermissionError(13, "Permission denied", str(path))
        return look(path, *args, **options)

    monkeypatch.setattr(os, "stat", guarded)

    tree = survey(str(root))

    assert tree.places == {str(root), str(secret)}


def test_a_link_that_one_may_not_read_is_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = tmp_path / "link.yaml"
    link.symlink_to("elsewhere")

    def guarded(path: Any, *_: Any, **_options: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "readlink", guarded)

    tree = survey(str(tmp_path))

    assert (tree.places, set(tree.seen)) == ({str(tmp_path)}, {str(link)})


def test_of_directories_within_each_other_each_is_asked_for_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    depth, asked = 200, [0]
    (tmp_path / "/".join("d" * depth)).mkdir(parents=True)
    for name in ("stat", "lstat"):
        look = getattr(os, name)

        def counted(*args: Any, look: Any = look, **options: Any) -> Any:
            asked[0] += 1
            return look(*args, **options)

        monkeypatch.setattr(os, name, counted)

    assert len(survey(str(tmp_path)).places) == depth + 1
    assert asked[0] < 10 * depth


def test_a_directory_that_goes_while_it_is_looked_through_is_not_taken_for_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "mesh"
    root.mkdir()
    (root / "a.yaml").write_text("")
    listed = os.scandir

    @contextmanager
    def going(path: str) -> Iterator[list[os.DirEntry[str]]]:
        with listed(path) as entries:
            names = list(entries)
        root.rename(tmp_path / "away")
        yield names

    monkeypatch.setattr(os, "scandir", going)

    assert survey(str(root)).seen == {str(root): "no such file or directory"}
