"""The names on which a destination and confs depend: a change that concerns one of them reaches them."""

from __future__ import annotations

from functools import lru_cache

from cp.model.dependency import ANY, Name
from cp.model.names import Destination
from cp.resources.dataplane import SERVICE_TAG
from cp.translate.effective import Effective
from cp.translate.view import backend_refs


@lru_cache(maxsize=100_000)
def names_of(destination: Destination) -> frozenset[Name]:
    """The names by which policies and changes know a destination."""
    by_tag = (SERVICE_TAG, destination.service)
    identity = destination.identity
    if identity is None:
        return frozenset({by_tag})
    # A MeshMultiZoneService chooses MeshServices by their labels: any of them may be one of its own.
    parts = {("MeshService", ANY)} if identity.type == "MeshMultiZoneService" else set()
    return frozenset({by_tag, (identity.type, identity.name), *parts})


def names_in(*confs: Effective) -> frozenset[Name]:
    """The names of what the references in confs are to."""
    return backend_refs.names_referred_to(conf.canonical for effective in confs for conf in effective.values())
