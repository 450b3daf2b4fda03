"""After an edit of a legacy policy, or of what one refers to, proxies are served what a full computation gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

import pytest

from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.snapshot import Snapshot
from tests.golden import Case, cases
from tests.snapshots import Question

EDITS: Final[Mapping[str, tuple[tuple[str | int, ...], Any]]] = {
    "circuit_breaker": (("conf", "thresholds", "maxConnections"), 77),
    "fault_injection": (("conf", "delay", "value"), "77s"),
    "health_check": (("conf", "interval"), "77s"),
    "mesh_gateway_route": (("conf", "http", "rules", 0, "backends", 0, "destination", "kuma.io/service"), "nobody"),
    "proxy_template": (("conf", "modifications", 0, "cluster", "value"), "connectTimeout: 78s"),
    "rate_limit": (("conf", "http", "requests"), 77),
    "retry": (("conf", "http", "numRetries"), 77),
    "timeout": (("conf", "http", "requestTimeout"), "77s"),
    "traffic_log": (("logging", "backends", 0, "conf", "path"), "/var/log/77"),
    "traffic_permission": (("sources", 0, "match", "kuma.io/service"), "others"),
    "traffic_route": (("conf", "http", 0, "destination", "kuma.io/service"), "api"),
    "virtual_outbound": (("conf", "port"), "77"),
    "traffic_trace": (("tracing", "backends", 0, "sampling"), 77),
}
"""For each kind, an edit of one of its documents or of the Mesh."""


def edited(document: Document, path: tuple[str | int, ...], value: Any) -> Document | None:
    """The document with another value; None where it has none at that path."""
    data: Any = deepcopy(dict(document.data))
    *outer, last = path
    inner = data
    for name in outer:
        try:
            inner = inner[name]
        except (KeyError, IndexError):
            return None
    if not isinstance(inner, dict) or last not in inner:
        return None
    inner[last] = value
    return Document(document.key, data, document.source)


def steps(case: Case) -> Iterator[tuple[Key, Document | None]]:
    """Each policy goes and comes back, and where there is something to edit, that is edited and taken back."""
    path, value = EDITS[case.name.split("/")[1]]
    for document in Question.of(case).documents:
        change = edited(document, path, value)
        if change is not None:
            yield document.key, change
            yield document.key, document
        if document.key.type not in {"Mesh", "Dataplane"}:
            yield document.key, None
            yield document.key, document


@pytest.mark.parametrize("case", cases("legacy"))
def test_an_edit_comes_to_what_a_full_computation_gives(case: Case) -> None:
    question, policies = Question.of(case), discover()
    compiler, key = Compiler(policies), Key("Dataplane", question.mesh, question.proxy)
    world, versions = question.world(), set()
    for revision, (edited_key, document) in enumerate(steps(case), start=1):
        world = world.next({edited_key: document}, revision)
        known = World.of(documents(question, edited_key, document), kinds(policies))
        served, anew = compiled(compiler, world, key), compiled(Compiler(policies), known, key)
        versions.add(frozenset((packed.name, packed.version) for part in served.parts for packed in part))

        assert served == anew
    assert len(versions) > 1 or case.name.endswith("not-there")


def compiled(compiler: Compiler, world: World, key: Key) -> Snapshot:
    dataplane = world.get(key)
    assert dataplane is not None
    return compiler.snapshot(world, dataplane)


def documents(question: Question, key: Key, document: Document | None) -> Iterator[Document]:
    for known in question.documents:
        if known.key != key:
            yield known
        elif document is not None:
            yield document
