"""The columns of lists of resources, as kumactl prints them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from cp.cli.output import age
from cp.cli.tables import table
from cp.cli.type_names import TypeNames

Column = tuple[str, Callable[[Mapping[str, Any]], str]]


def listing(kind: TypeNames, items: Sequence[Mapping[str, Any]], *, wide: bool = False) -> str:
    """A table of resources of one type."""
    columns = list(_columns(kind))
    rows = ([cell(item) for _, cell in columns] for item in items)
    return table([head for head, _ in columns], rows, less=_LESS, wide=wide)


def listed(overview: Mapping[str, Any]) -> dict[str, Any]:
    """An overview in the form of a listed resource: the Dataplane, with the status of its proxy."""
    names = ("type", "mesh", "name", "creationTime", "status", "expectedUntil")
    kept = {name: overview[name] for name in names if name in overview}
    return {**overview.get("dataplane", {}), **kept}


def _columns(kind: TypeNames) -> Iterator[Column]:
    if not kind.is_global:
        yield "MESH", lambda item: item["mesh"]
    yield "NAME", lambda item: item["name"]
    yield from _SPECIAL.get(kind.name, ())
    yield "AGE", lambda item: age(item["creationTime"])


def tags(item: Mapping[str, Any]) -> str:
    """The tags of all inbounds, or of the gateway, merged."""
    networking = _mapping(item.get("networking"))
    inbounds = networking.get("inbound")
    values: dict[str, list[str]] = {}
    for holder in (*(inbounds if isinstance(inbounds, list) else ()), networking.get("gateway")):
        for name, value in _mapping(_mapping(holder).get("tags")).items():
            values.setdefault(name, [])
            values[name] += [str(value)] if str(value) not in values[name] else []
    return " ".join(f"{name}={','.join(tag_values)}" for name, tag_values in sorted(values.items()))


def _address(item: Mapping[str, Any]) -> str:
    return str(_mapping(item.get("networking")).get("address", ""))


def status(item: Mapping[str, Any]) -> str:
    """Return the state of a proxy, and that it may be connected by now, for all that is known."""
    state = str(item.get("status", ""))
    return f"{state} (expected back)" if item.get("expectedUntil") else state


def _mtls(item: Mapping[str, Any]) -> str:
    mtls = _mapping(item.get("mtls"))
    enabled = mtls.get("enabledBackend", "")
    backends = mtls.get("backends")
    candidates = map(_mapping, backends if isinstance(backends, list) else ())
    types = [backend.get("type", "") for backend in candidates if backend.get("name") == enabled]
    return f"{''.join(types[:1])}/{enabled}" if enabled else "off"


def _routing(field: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda item: "on" if _mapping(item.get("routing")).get(field) else "off"


def _engine(item: Mapping[str, Any]) -> str:
    return str(item.get("policyEngine", ""))


def _provider(item: Mapping[str, Any]) -> str:
    return str(_mapping(_mapping(item.get("spec")).get("provider")).get("type", ""))


def _selects(item: Mapping[str, Any]) -> str:
    """The labels of the Dataplanes that a MeshIdentity is for."""
    selector = _mapping(_mapping(item.get("spec")).get("selector"))
    if not isinstance(selector.get("dataplane"), Mapping):
        return "none"
    labels = _mapping(_mapping(selector["dataplane"]).get("matchLabels"))
    return " ".join(f"{name}={value}" for name, value in sorted(labels.items())) or "all"


def _trust_domain(item: Mapping[str, Any]) -> str:
    return str(_mapping(item.get("spec")).get("trustDomain", ""))


def _bundles(item: Mapping[str, Any]) -> str:
    bundles = _mapping(item.get("spec")).get("caBundles")
    return str(len(bundles) if isinstance(bundles, list) else 0)


def _listeners(item: Mapping[str, Any]) -> str:
    """The ports of a MeshGateway, each with its protocol and the hostnames of its listeners."""
    listeners = _mapping(item.get("conf")).get("listeners")
    ports: dict[str, list[str]] = {}
    for listener in map(_mapping, listeners if isinstance(listeners, list) else ()):
        hostnames = ports.setdefault(f"{listener.get('port', '')}/{listener.get('protocol', '')}", [])
        hostnames.append(str(listener.get("hostname") or "*"))
    return " ".join(f"{port}={','.join(hostnames)}" for port, hostnames in ports.items())


def _mapping(value: Any) -> Mapping[str, Any]:
    """A value if it is a mapping, else an empty one: a folder of files may contain invalid resources, listed too."""
    return value if isinstance(value, Mapping) else {}


_LESS: Final = ("ENGINE", "ZONEEGRESS", "LOCALITY", "BUNDLES", "ADDRESS", "TAGS", "SELECTS")
"""The heads of columns that are left out where there is no room for them."""

_SPECIAL: Final[Mapping[str, Sequence[Column]]] = {
    "Dataplane": (("TAGS", tags), ("ADDRESS", _address), ("STATUS", status)),
    "MeshGateway": (("LISTENERS", _listeners),),
    "MeshIdentity": (("PROVIDER", _provider), ("SELECTS", _selects)),
    "MeshTrust": (("TRUST DOMAIN", _trust_domain), ("BUNDLES", _bundles)),
    "Mesh": (
        ("mTLS", _mtls),
        ("LOCALITY", _routing("localityAwareLoadBalancing")),
        ("ZONEEGRESS", _routing("zoneEgress")),
        ("ENGINE", _engine),
    ),
}
