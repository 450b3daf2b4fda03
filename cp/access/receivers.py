"""Receivers of keys: the proxies that a MeshGateway with certificates selects, and the writes that add to them.

A write is judged by what documents declare: a proxy counts as a receiver as soon as a selector matches it, also if
another MeshGateway configures it now. See record 0096.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from cp.access.powers import values_at
from cp.model.canonical import canonical_json
from cp.model.document import Document
from cp.model.names import Key
from cp.resources.dataplane import ZONE_TAG
from cp.resources.gateway import MESH_GATEWAY, carries
from cp.resources.labels import ORIGIN_LABEL, ZONE, ZONE_LABEL
from cp.resources.redaction import has_secrets, source_references
from cp.resources.resource import Resource
from cp.resources.world import World

_MOST_COMPARED: Final = 100_000
"""Pairs of selectors that are compared. Of more, others count as selecting more proxies."""

_ZONE: Final = ""
"""Stands for the zone among the tags of a selector: no tag has this name."""


def has_keys(gateway: Document) -> bool:
    """Return True if a MeshGateway has keys for its proxies: it names Secrets, or has them inline."""
    named = any(reference.is_secret for reference in source_references(MESH_GATEWAY, gateway.data))
    return named or has_secrets(MESH_GATEWAY, gateway.data)


def adds_receivers(before: Document | None, after: Document | None) -> bool:
    """Return True if a MeshGateway with keys selects proxies that it did not select before it was changed."""
    if before is None or after is None or not has_keys(before) or not has_keys(after):
        return False
    known = _selectors(before)
    same = frozenset(map(canonical_json, known))
    new = [selector for selector in _selectors(after) if canonical_json(selector) not in same]
    if len(new) * len(known) > _MOST_COMPARED:
        return True
    return not all(any(carries(selector, wider) for wider in known) for selector in new)


def new_senders(gateways: Iterable[Document], before: Document | None, after: Document) -> Iterator[Key]:
    """Yield the MeshGateways with keys that select a Dataplane after a change, and did not before."""
    now, known = _facts(after), None if before is None else _facts(before)
    for gateway in gateways if now is not None else ():
        if _selects(gateway, now) and not _selects(gateway, known) and has_keys(gateway):
            yield gateway.key


def new_sender(world: World, dataplane: Resource | None) -> str:
    """Return a MeshGateway whose keys a proxy would receive with this Dataplane, and not with the one that is stored.

    Empty if there is none.
    """
    stored = None if dataplane is None else world.get(dataplane.key)
    if dataplane is None or stored is dataplane:
        return ""
    gateways = (gateway.document for gateway in world.table("MeshGateway", dataplane.mesh))
    senders = new_senders(gateways, None if stored is None else stored.document, dataplane.document)
    return next((sender.name for sender in senders), "")


def _selectors(gateway: Document) -> list[Mapping[str, Any]]:
    """Return the tags that each selector requires, with the zone of a MeshGateway that is for one zone alone."""
    zone = _zone_bound(gateway)
    bound = {_ZONE: zone} if zone else {}
    return [{**match, **bound} for match in values_at(gateway.data, "selectors[].match") if isinstance(match, Mapping)]


def _zone_bound(gateway: Document) -> str:
    """Return the zone whose proxies alone a MeshGateway selects; empty if it selects those of all zones."""
    return _label(gateway, ZONE_LABEL) if _label(gateway, ORIGIN_LABEL) == "zone" else ""


def _selects(gateway: Document, tags: Mapping[str, Any] | None) -> bool:
    if tags is None:
        return False
    near = {**tags, _ZONE: tags[_ZONE] or _zone_bound(gateway)}
    return any(carries(near, selector) for selector in _selectors(gateway))


def _facts(dataplane: Document) -> Mapping[str, Any] | None:
    """Return the tags and the zone by which MeshGateways select a proxy; None if it is no built-in gateway."""
    if "BUILTIN" not in values_at(dataplane.data, "networking.gateway.type"):
        return None
    labelled = _label(dataplane, ZONE_LABEL)
    tags = next(values_at(dataplane.data, "networking.gateway.tags"), None)
    return {ZONE_TAG: labelled or ZONE, **(tags if isinstance(tags, Mapping) else {}), _ZONE: labelled}


def _label(document: Document, name: str) -> str:
    labels = document.data.get("labels")
    return str(labels.get(name) or "") if isinstance(labels, Mapping) else ""
