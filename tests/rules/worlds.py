"""Worlds from text, with every kind there is and the two made-up ones of the documentation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from cp import policies
from cp.model.document import Document
from cp.model.names import Destination, Identity, Key
from cp.model.source import read_documents
from cp.model.violation import Violation
from cp.resources.kinds import DocumentMeta, Kind, Kinds, PolicyShape
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules import PolicyRules, build
from cp.rules.matching import match


def _anything_goes(_spec: Any, _meta: DocumentMeta) -> Iterator[Violation]:
    return iter(())


EXAMPLE_POLICY = Kind(
    name="ExamplePolicy",
    short="ep",
    plural="examplepolicies",
    schema=dict,
    validate=_anything_goes,
    policy=PolicyShape(to=True, from_=True, single=True),
)
"""The policy of document 002 (listed in record 0024), with the fields that its examples have."""

NON_DIRECTIONAL_POLICY = Kind(
    name="NonDirectionalPolicy",
    short="ndp",
    plural="nondirectionalpolicies",
    schema=dict,
    validate=_anything_goes,
    policy=PolicyShape(single=True),
)

SELF_CALLING: Final = """
type: Mesh
name: default
---
type: Dataplane
mesh: default
name: web
networking:
  address: 10.0.0.1
  inbound: [{port: 80, servicePort: 8080, tags: {kuma.io/service: web, kuma.io/protocol: http}}]
  outbound: [{port: 1001, tags: {kuma.io/service: web}}]
"""
"""A proxy that calls its own service: the smallest mesh in which policies for calls and for clients act."""


@cache
def kinds() -> Kinds:
    known = policies.kinds(policies.discover())
    return Kinds(*known.values(), EXAMPLE_POLICY, NON_DIRECTIONAL_POLICY)


def documents(text: str) -> tuple[Document, ...]:
    reading = read_documents(text)
    assert not reading.findings, [str(finding) for finding in reading.findings]
    return reading.documents


def world_of(text: str, file: str = "") -> World:
    """A World in which every document of the text is valid."""
    reading = read_documents(text, file)
    world = World.of(reading.documents, kinds())
    found = [str(one) for one in (*reading.findings, *world.findings) if one.severity == "error"]
    assert not found, found
    return world


def edited(world: World, text: str) -> World:
    """The next World, in which the documents of the text have replaced those of the same names."""
    return world.next({document.key: document for document in documents(text)}, world.revision + 1)


def without(world: World, kind: str, name: str, mesh: str = "default") -> World:
    return world.next({Key(kind, mesh, name): None}, world.revision + 1)


def dataplane(world: World, name: str = "web", mesh: str = "default") -> Resource:
    found = world.get(Key("Dataplane", mesh, name))
    assert found is not None
    return found


def rules_of(world: World, kind: str, name: str = "web") -> PolicyRules:
    """The rules of one kind for one proxy."""
    return build(world, match(world, dataplane(world, name)).get(kind, ()), world.kinds[kind])


def service(name: str, section: str = "", kind: str = "MeshService", mesh: str = "default") -> Identity:
    return Identity(kind, mesh, name, section=section)


def to_service(name: str, section: str = "http") -> Destination:
    return Destination(name, service(name, section))


def to_tag(name: str, **tags: str) -> Destination:
    return Destination(name, tags=tuple(sorted(tags.items())))
