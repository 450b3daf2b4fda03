"""Lists that become configuration for proxies have an end."""

from __future__ import annotations

from typing import Any

import pytest

from cp.model.document import Document
from cp.model.names import Key
from cp.resources.limits import LIMITS
from cp.resources.parse import parse
from tests.resources.reading import every_kind


def with_entries(path: str, count: int) -> dict[str, Any]:
    """A document that has a list of so many entries, and nothing else."""
    *parents, last = path.removesuffix("[]").split(".")
    data: Any = {last: [{}] * count}
    for name in reversed(parents):
        data = {name.removesuffix("[]"): [data] if name.endswith("[]") else data}
    found: dict[str, Any] = data
    return found


CASES = [(kind, path, most) for kind, limits in LIMITS.items() for path, most in limits.items()]


@pytest.mark.parametrize(("kind", "path", "most"), CASES, ids=[f"{kind} {path}" for kind, path, _ in CASES])
def test_a_list_that_is_too_long_is_told_with_what_it_may_have(kind: str, path: str, most: int) -> None:
    def told(count: int) -> list[str]:
        data = {"type": kind, "mesh": "default", "name": "x", **with_entries(path, count)}
        read = parse(Document(Key(kind, "default", "x"), data), every_kind())
        return [one.message for one in read.violations if "are the most" in one.message]

    assert told(most + 1) == [f"has {most + 1} entries, and {most} are the most"]
    assert told(most) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"operation": "Patch", "value": f"name: {'x' * 40_000}"}, "32768 are the most"),
        (
            {"operation": "Patch", "jsonPatches": [{"op": "replace", "path": "/name", "value": "x"}] * 501},
            "500 are the most",
        ),
    ],
    ids=["value", "json-patches"],
)
def test_a_patch_that_is_repeated_for_all_that_match_is_small(change: dict[str, Any], told: str) -> None:
    spec = {"default": {"appendModifications": [{"cluster": change}]}}
    data = {"type": "MeshProxyPatch", "mesh": "default", "name": "x", "spec": spec}

    read = parse(Document(Key("MeshProxyPatch", "default", "x"), data), every_kind())

    assert [told in one.message for one in read.violations] == [True]
