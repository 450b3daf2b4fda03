"""The columns in which resources are listed, as kumactl has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from cp.cli.output import age, table
from cp.resources.kinds import Kind

Column = tuple[str, Callable[[Mapping[str, Any]], str]]


def listing(kind: Kind, items: Sequence[Mapping[str, Any]]) -> str:
    """A table of resources of one type."""
    columns = list(_columns(kind))
    return table([head for head, _ in columns], ([cell(item) for _, cell in columns] for item in items))


def _columns(kind: Kind) -> Iterator[Column]:
    if not kind.is_global:
        yield "MESH", lambda item: item["mesh"]
    yield "NAME", lambda item: item["name"]
    yield from _SPECIAL.get(kind.name, ())
    yield "AGE", lambda item: age(item["creationTime"])


def _tags(item: Mapping[str, Any]) -> str:
    """The tags of all inbounds, or of the gateway, together."""
    networking = item.get("networking") or {}
    values: dict[str, list[str]] = {}
    for place in (*(networking.get("inbound") or ()), networking.get("gateway") or {}):
        for name, value in (place.get("tags") or {}).items():
            values.setdefault(name, [])
            values[name] += [value] if value not in values[name] else []
    return " ".join(f"{name}={','.join(found)}" for name, found in sorted(values.items()))


def _address(item: Mapping[str, Any]) -> str:
    return str((item.get("networking") or {}).get("address", ""))


def _mtls(item: Mapping[str, Any]) -> str:
    mtls = item.get("mtls") or {}
    enabled = mtls.get("enabledBackend", "")
    types = {backend.get("name"): backend.get("type", "") for backend in mtls.get("backends") or ()}
    return f"{types.get(enabled, '')}/{enabled}" if enabled else "off"


def _routing(field: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda item: "on" if (item.get("routing") or {}).get(field) else "off"


_SPECIAL: Final[Mapping[str, Sequence[Column]]] = {
    "Dataplane": (("TAGS", _tags), ("ADDRESS", _address)),
    "Mesh": (
        ("mTLS", _mtls),
        ("LOCALITY", _routing("localityAwareLoadBalancing")),
        ("ZONEEGRESS", _routing("zoneEgress")),
    ),
}
