"""What was found out to hold for destinations and for routes to them, kept over changes that do not concern them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from cp.model.dependency import DependentValues, Name
from cp.model.names import Destination, Identity
from cp.resources.dataplane import SERVICE_TAG
from cp.rules.merging import MergedConf

Call: TypeAlias = tuple[Destination, tuple[Identity, ...], str]
"""A destination, the routes to it that contribute, and the hash of their matches."""

CallConfs: TypeAlias = DependentValues[Call, MergedConf]


def names_of_call(call: Call) -> Iterator[Name]:
    """The names on which the rules for a call depend: those of its destination and its routes."""
    destination, via, _ = call
    identity = destination.identity
    yield (SERVICE_TAG, destination.service) if identity is None else (identity.type, identity.name)
    yield from ((route.type, route.name) for route in via)
