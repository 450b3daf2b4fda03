"""A null in a legacy document says what leaving the field out says, at every level and in every kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from random import Random
from typing import Any, Final

import pytest

from cp.model.document import Document
from cp.model.names import Key
from cp.model.source import LEGACY_POLICIES, read_documents
from cp.policies import kinds
from cp.resources.kinds import ENVELOPE
from cp.resources.legacy.gateway_route import conf_of_route
from cp.resources.parse import parse
from cp.resources.resource import Resource
from cp.resources.schema import wire_names
from cp.resources.world import World
from cp.translate.view.named_addresses import wanted_by
from tests.golden import ROOT
from tests.snapshots import policies

KINDS: Final = kinds(policies())
MESH: Final[dict[str, Any]] = {
    "type": "Mesh",
    "name": "default",
    "logging": {
        "defaultBackend": "file",
        "backends": [
            {"name": "file", "type": "file", "format": "%REQ(X)%", "conf": {"path": "/var/log/x"}},
            {"name": "tcp", "type": "tcp", "conf": {"address": "192.0.2.1:80"}},
        ],
    },
    "tracing": {
        "defaultBackend": "zipkin",
        "backends": [
            {
                "name": "zipkin",
                "type": "zipkin",
                "sampling": 80,
                "conf": {"url": "http://zipkin:1/", "apiVersion": "httpProto", "traceId128bit": True},
            },
            {"name": "datadog", "type": "datadog", "conf": {"address": "datadog", "port": 80, "splitService": True}},
        ],
    },
}
WORKLOAD: Final = Document(
    Key("Dataplane", "default", "web"),
    {
        "type": "Dataplane",
        "mesh": "default",
        "name": "web",
        "networking": {"address": "10.0.0.1", "inbound": [{"port": 80, "tags": {"kuma.io/service": "web", "a": "b"}}]},
    },
)
BY_TAGS: Final[dict[str, Any]] = {
    "type": "VirtualOutbound",
    "selectors": [{"match": {"kuma.io/service": "*"}}],
    "conf": {
        "host": "{{.service}}.{{.a}}.mesh",
        "port": "80",
        "parameters": [{"name": "service", "tagKey": "kuma.io/service"}, {"name": "a"}],
    },
}


@cache
def examples() -> tuple[dict[str, Any], ...]:
    """The legacy documents of the golden cases."""
    texts = (path.read_text() for path in sorted(ROOT.rglob("*.in.yaml")) if "validation" not in path.parts)
    written = [document.data for text in texts for document in read_documents(text).documents]
    return (*(dict(data) for data in written if data.get("type") in LEGACY_POLICIES), BY_TAGS)


def parsed(data: dict[str, Any]) -> Resource | None:
    named = {**data, "mesh": "default", "name": "it"} if data["type"] != "Mesh" else data
    return parse(Document(Key(data["type"], "default", "it"), named), KINDS).resource


def meaning(resource: Resource, mesh: Mapping[str, Any] = MESH) -> Any:
    """All that a legacy document comes to."""
    if resource.type == "VirtualOutbound":
        return wanted_by(resource, World.of([WORKLOAD, resource.document], KINDS))
    if resource.kind.legacy is None:
        return conf_of_route(resource.data)
    confs = resource.kind.legacy.confs
    return [list(confs(resource.data, mesh, protocol)) for protocol in ("http", "grpc", "tcp")]


def mappings(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Each mapping of a document with the path that its schema gives it."""
    if isinstance(value, dict):
        yield path, value
        for name, inner in value.items():
            yield from mappings(inner, f"{path}.{name}".removeprefix("."))
    for item in value if isinstance(value, list) else ():
        yield from mappings(item, f"{path}[]")


def known_fields(kind: str, path: str) -> list[str]:
    """The fields that a schema has directly at a path."""
    prefix = f"{path}." if path else ""
    schema: Any = KINDS[kind].schema
    fields = (name.removeprefix(prefix) for name in wire_names(schema) if name.startswith(prefix))
    return [name for name in fields if name.isalnum()]


def with_nulls(data: dict[str, Any], chance: Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """A document with nulls wherever it is valid with one, and the same without these fields."""
    nulled, removed = deepcopy(data), deepcopy(data)
    for (path, inner), (_, counterpart) in zip(list(mappings(nulled)), list(mappings(removed)), strict=True):
        for name in sorted({*known_fields(data["type"], path), *inner} - (ENVELOPE if not path else set())):
            if chance.random() < (0.1 if name in inner else 0.5):
                before = dict(inner)
                inner[name] = None
                if parsed(nulled) is None:
                    inner.clear()
                    inner.update(before)
                else:
                    counterpart.pop(name, None)
    return nulled, removed


@pytest.mark.parametrize("kind", sorted(LEGACY_POLICIES))
def test_nulls_say_what_leaving_out_says(kind: str) -> None:
    chance = Random(kind)
    drawn: Counter[bool] = Counter()
    for data in (data for data in examples() if data["type"] == kind):
        for _ in range(4):
            nulled, removed = with_nulls(data, chance)
            with_them, without = parsed(nulled), parsed(removed)
            assert with_them is not None
            assert without is not None, nulled
            assert meaning(with_them) == meaning(without), nulled
            drawn[nulled != removed] += 1

    assert drawn[True] > 0 or kind == "TrafficPermission"  # which needs each of its fields


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", ["TrafficLog", "TrafficTrace"])
def test_nulls_in_the_mesh_say_what_leaving_out_says(kind: str, seed: int) -> None:
    nulled, removed = with_nulls(MESH, Random(seed))
    with_them, without = parsed(nulled), parsed(removed)
    assert with_them is not None
    assert without is not None

    for name in ("file", "tcp", "zipkin", "datadog", None):
        referring = next(data for data in examples() if data["type"] == kind)
        policy = parsed({**referring, "conf": {"backend": name}})
        assert policy is not None
        assert meaning(policy, with_them.data) == meaning(policy, without.data), nulled
