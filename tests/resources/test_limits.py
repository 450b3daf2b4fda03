"""Lists that become configuration for proxies have an end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from cp.model.document import Document
from cp.model.names import Key
from cp.model.violation import ViolationSort
from cp.resources.kinds import Kind
from cp.resources.limits import KEPT_WHEN_LOADED, LIMITS, MOST_ENTRIES, MOST_KEYS, MOST_VALUES, too_many
from cp.resources.parse import parse, parse_written
from cp.resources.world import World
from tests.resources.reading import every_kind


def with_entries(path: str, count: int) -> dict[str, Any]:
    """A document that has a list of so many entries, and nothing else."""
    *parents, last = path.removesuffix("[]").split(".")
    data: Any = {last: ["a.example" if last == "hostnames" else {}] * count}
    for name in reversed(parents):
        data = {name.removesuffix("[]"): [data] if name.endswith("[]") else data}
    found: dict[str, Any] = data
    return found


OF_ALL = [("MeshTimeout", "spec.to[]", MOST_ENTRIES), ("MeshGateway", "selectors[]", MOST_ENTRIES)]
CASES = [*OF_ALL, *((kind, path, most) for kind, limits in LIMITS.items() for path, most in limits.items())]


@pytest.mark.parametrize(("kind", "path", "most"), CASES, ids=[f"{kind} {path}" for kind, path, _ in CASES])
def test_a_list_that_is_too_long_is_told_with_what_it_may_have(kind: str, path: str, most: int) -> None:
    def told(count: int) -> list[str]:
        data = {"type": kind, "mesh": "default", "name": "x", **with_entries(path, count)}
        return [violation.message for violation in too_many(kind, data)]

    assert told(most + 1) == [f"has {most + 1} entries, and {most} are the most"]
    assert told(most) == []


def test_map_with_too_many_entries_is_invalid() -> None:
    tags = {f"t{number}": "x" for number in range(MOST_KEYS + 1)}
    data = {"type": "Dataplane", "networking": {"inbound": [{"port": 1, "tags": tags}]}}

    (violation,) = too_many("Dataplane", data)

    assert str(violation) == "networking.inbound[0].tags: has 201 entries, and 200 are the most; divide it"


def deny_list(count: int, **more: Any) -> Document:
    """A policy whose loss would let traffic through."""
    matches = [{"type": "IP", "value": f"192.0.{n // 250}.{n % 250}", "protocol": "tcp"} for n in range(count)]
    spec = {"default": {"passthroughMode": "Matched", "appendMatch": matches, **more}}
    data = {"type": "MeshPassthrough", "mesh": "default", "name": "x", "spec": spec}
    return Document(Key("MeshPassthrough", "default", "x"), data)


def test_stored_document_over_a_limit_stays_in_use() -> None:
    document = deny_list(5_001)

    world = World.of((document,), every_kind())

    assert world.get(document.key) is not None
    (found,) = world.findings
    assert (found.severity, found.code, found.path) == ("warning", "unwritable", "spec.default.appendMatch")
    assert "has 5001 entries, and 5000 are the most" in found.message
    written = parse_written(document, every_kind())
    assert (written.resource, [each.code for each in written.findings()]) == (None, ["invalid"])


def test_list_over_its_limit_hides_no_other_fault() -> None:
    document = deny_list(5_001)
    document.data["spec"]["default"]["appendMatch"][4_000]["type"] = "unknown"

    read = parse(document, every_kind())

    assert read.resource is None
    assert {each.path for each in read.violations} == {
        "spec.default.appendMatch",
        "spec.default.appendMatch[4000].type",
    }


@pytest.mark.parametrize("kind", sorted(KEPT_WHEN_LOADED))
def test_lists_that_no_product_bounds_keep_their_limits(kind: str) -> None:
    path, most = next(iter(LIMITS[kind].items()))

    (violation,) = too_many(kind, with_entries(path, most + 1))

    assert violation.sort is ViolationSort.WRONG


def test_stored_document_with_too_many_values_is_invalid() -> None:
    def sorts(count: int) -> set[str]:
        return {violation.sort for violation in too_many("MeshTimeout", {"spec": {"to": [0] * count}})}

    assert (sorts(MOST_VALUES - 10), sorts(MOST_VALUES)) == ({"write"}, {"wrong"})


def test_every_path_of_a_limit_is_in_a_schema() -> None:
    lists = {(kind.name, path) for kind in every_kind().values() for path in paths_of_lists(kind)}

    assert [(kind, path) for kind, paths in LIMITS.items() for path in paths if (kind, path) not in lists] == []


def paths_of_lists(kind: Kind) -> Iterator[str]:
    root = "" if kind.is_inlined else "spec"
    yield from lists_in(msgspec.inspect.type_info(kind.schema), root, frozenset())


def lists_in(kind: Any, path: str, seen: frozenset[type]) -> Iterator[str]:
    inspect = msgspec.inspect
    match kind:
        case inspect.Metadata():
            yield from lists_in(kind.type, path, seen)
        case inspect.UnionType():
            for choice in kind.types:
                yield from lists_in(choice, path, seen)
        case inspect.ListType() | inspect.VarTupleType():
            yield f"{path}[]"
            yield from lists_in(kind.item_type, f"{path}[]", seen)
        case inspect.StructType() if kind.cls not in seen:
            for field in kind.fields:
                name = f"{path}.{field.encode_name}" if path else field.encode_name
                yield from lists_in(field.type, name, seen | {kind.cls})


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
    return [
        str(each)
        for each in parse_written(Document(Key("MeshHTTPRoute", "default", "x"), data), every_kind()).violations
    ]


def rules(count: int) -> list[dict[str, Any]]:
    default = {"backendRefs": [{"kind": "MeshService", "name": "web", "port": 80}]}
    return [{"matches": [{"path": {"type": "Exact", "value": f"/{n}"}}], "default": default} for n in range(count)]


def hostnames(count: int) -> list[str]:
    return [f"h{n}.example.com" for n in range(count)]


def test_hostnames_times_matches_have_an_end() -> None:
    most = "spec.to: comes to 20200 rows, and 20000 are the most; divide it"

    assert of_gateway({"hostnames": hostnames(202), "rules": rules(100)}) == [most]
    assert of_gateway({"rules": rules(100)}, {"hostnames": hostnames(100), "rules": rules(101)}) == [most]
    assert of_gateway({"hostnames": hostnames(200), "rules": rules(100)}) == []
