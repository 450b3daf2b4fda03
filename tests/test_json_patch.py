"""JSON Patch, by the examples of RFC 6902."""

from __future__ import annotations

from typing import Any

import pytest

from cp.policies.mesh_proxy_patch.json_patch import DoesNotApply, patched
from cp.policies.mesh_proxy_patch.schema import JsonPatch


def after(data: Any, op: str, path: str, *value: Any, source: str | None = None) -> Any:
    patch = JsonPatch(op=op, path=path, value=value[0], from_=source) if value else JsonPatch(op, path, from_=source)
    return patched(data, [patch])


@pytest.mark.parametrize(
    ("data", "op", "path", "value", "expected"),
    [
        ({"foo": "bar"}, "add", "/baz", "qux", {"foo": "bar", "baz": "qux"}),
        ({"foo": ["bar", "baz"]}, "add", "/foo/1", "qux", {"foo": ["bar", "qux", "baz"]}),
        ({"foo": ["bar"]}, "add", "/foo/-", ["abc"], {"foo": ["bar", ["abc"]]}),
        ({"foo": ["bar"]}, "add", "/foo/1", "x", {"foo": ["bar", "x"]}),
        ({"a": 1}, "replace", "/a", None, {"a": None}),
        ({"a": [1, 2]}, "replace", "/a/0", 3, {"a": [3, 2]}),
        ({"a/b": 1, "m~n": 2}, "replace", "/a~1b", 3, {"a/b": 3, "m~n": 2}),
        ({"a/b": 1, "m~n": 2}, "replace", "/m~0n", 3, {"a/b": 1, "m~n": 3}),
        ({"a": 1}, "add", "", {"b": 2}, {"b": 2}),
        ({"": 1}, "replace", "/", 2, {"": 2}),
    ],
)
def test_what_is_written(data: Any, op: str, path: str, value: Any, expected: Any) -> None:
    assert after(data, op, path, value) == expected


def test_what_is_removed_moved_and_copied() -> None:
    assert after({"a": [1, 2, 3]}, "remove", "/a/1") == {"a": [1, 3]}
    assert after({"a": {"b": 1}, "c": {}}, "move", "/c/d", source="/a/b") == {"a": {}, "c": {"d": 1}}
    assert after({"a": ["x", "y", "z"]}, "move", "/a/2", source="/a/0") == {"a": ["y", "z", "x"]}
    assert after({"a": {"b": 1}}, "copy", "/c", source="/a") == {"a": {"b": 1}, "c": {"b": 1}}


def test_what_was_given_stays_as_it_was() -> None:
    data = {"a": [1]}
    after(data, "add", "/a/-", 2)

    assert data == {"a": [1]}


@pytest.mark.parametrize(
    ("op", "path", "source"),
    [
        ("remove", "/b", None),
        ("remove", "/a/3", None),
        ("remove", "/a/01", None),
        ("remove", "/a/-", None),
        ("remove", "/s/x", None),
        ("remove", "a", None),
        ("remove", "", None),
        ("move", "/d/e/f", "/d/e"),
        ("copy", "/x", "/nothing"),
        ("copy", "/nothing/x", "/a"),
        ("copy", "/a/9", "/s"),
    ],
)
def test_what_cannot_be_done_is_told(op: str, path: str, source: str | None) -> None:
    with pytest.raises(DoesNotApply):
        after({"a": [1], "s": "text", "d": {"e": {}}}, op, path, source=source)


@pytest.mark.parametrize("path", ["/b", "/a/1", "/a/-", "/s/0"])
def test_nothing_is_replaced_that_is_not_there(path: str) -> None:
    with pytest.raises(DoesNotApply):
        after({"a": [1], "s": "text"}, "replace", path, 1)
