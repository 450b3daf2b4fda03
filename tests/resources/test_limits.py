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
    data: Any = {last: ["a.example" if last == "hostnames" else {}] * count}
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


def of_gateway(*to: dict[str, Any]) -> list[str]:
    """What is told of a route of a gateway."""
    spec = {
        "targetRef": {"kind": "MeshGateway", "name": "edge"},
        "to": [{"targetRef": {"kind": "Mesh"}, **each} for each in to],
    }
    data = {"type": "MeshHTTPRoute", "mesh": "default", "name": "x", "spec": spec}
    return [str(each) for each in parse(Document(Key("MeshHTTPRoute", "default", "x"), data), every_kind()).violations]


def rules(count: int) -> list[dict[str, Any]]:
    default = {"backendRefs": [{"kind": "MeshService", "name": "web", "port": 80}]}
    return [{"matches": [{"path": {"type": "Exact", "value": f"/{n}"}}], "default": default} for n in range(count)]


def hostnames(count: int) -> list[str]:
    return [f"h{n}.example.com" for n in range(count)]


def test_hostnames_times_matches_have_an_end() -> None:
    most = "spec.to: comes to 20200 rows of hostnames and matches, and 20000 are the most; divide it"

    assert of_gateway({"hostnames": hostnames(202), "rules": rules(100)}) == [most]
    assert of_gateway({"rules": rules(100)}, {"hostnames": hostnames(100), "rules": rules(101)}) == [most]
    assert of_gateway({"hostnames": hostnames(200), "rules": rules(100)}) == []
