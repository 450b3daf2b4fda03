"""Every limit of what documents may come to: the entries of lists and maps, and the products of several lists.

Each entry costs time and memory for every proxy that gets it, at each change. The limits are far above the needs of a
service, a machine or a policy. docs/reference/limits.md is made from these tables.

A write with a list that is too long is rejected; a document that is stored already stays in use. A product over its
limit is left out where it would be built, with the finding `over-limit`, and everything else is served (record 0094).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from types import MappingProxyType
from typing import Any, Final

from cp.model.failure import OverLimit
from cp.model.paths import Step, step
from cp.model.violation import Violation, ViolationSort

MOST_ENTRIES: Final = 1_000
"""The most entries of a list for which `LIMITS` has no other number."""

MOST_KEYS: Final = 200
"""The most entries of a map, such as tags or labels."""

MOST_VALUES: Final = 200_000
"""The most values of a stored document with a list or map over its limit. The API has never accepted more."""

_FEWEST: Final = 100
"""No limit is lower."""

_MIB: Final = 1024 * 1024

_OF_LIST: Final = ""
"""Stands for the entries of a list among steps."""

_CLIENTS: Final = 5_000

LIMITS: Final[Mapping[str, Mapping[str, int]]] = MappingProxyType(
    {
        "Dataplane": {"networking.outbound[]": 10_000},
        "MeshAccessLog": {f"spec.{items}[].default.backends[]": _FEWEST for items in ("to", "from", "rules")},
        "MeshFaultInjection": {f"spec.{items}[].default.http[]": _FEWEST for items in ("to", "from", "rules")},
        "MeshGateway": {"conf.listeners[]": 5_000},
        "MeshGatewayRoute": {
            "conf.http.rules[].backends[]": _FEWEST,
            "conf.http.rules[].filters[]": _FEWEST,
            "conf.http.rules[].matches[].headers[]": _FEWEST,
            "conf.http.rules[].matches[].queryParameters[]": _FEWEST,
        },
        "MeshHTTPRoute": {
            "spec.to[].rules[].default.backendRefs[]": _FEWEST,
            "spec.to[].rules[].default.filters[]": _FEWEST,
            "spec.to[].rules[].matches[].headers[]": _FEWEST,
            "spec.to[].rules[].matches[].queryParams[]": _FEWEST,
        },
        "MeshPassthrough": {"spec.default.appendMatch[]": 5_000},
        "MeshProxyPatch": {
            "spec.default.appendModifications[]": 500,
            **{
                f"spec.default.appendModifications[].{target}.jsonPatches[]": 500
                for target in ("cluster", "listener", "networkFilter", "httpFilter", "virtualHost")
            },
        },
        "MeshTrafficPermission": {
            "spec.from[]": _CLIENTS,
            **{f"spec.rules[].default.{clients}[]": _CLIENTS for clients in ("allow", "deny", "allowWithShadowDeny")},
        },
        "MeshTrust": {"spec.caBundles[]": _FEWEST},
        "ProxyTemplate": {"conf.modifications[]": 500},
        "TrafficPermission": {"sources[]": _CLIENTS, "destinations[]": _CLIENTS},
        "TrafficRoute": {"conf.split[]": _FEWEST, "conf.http[].split[]": _FEWEST},
        "VirtualOutbound": {"selectors[]": _FEWEST},
    }
)
"""The most entries of a list, by type and path."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that a product of several lists, of one document or of several, may come to."""

    most: int
    unit: str
    product: str
    """The lists that are multiplied, in words."""

    outcome: str
    """The part that is left out over the limit, and what takes its place."""

    hint: str
    """How to stay within the limit."""

    def exceeded(self, count: int) -> OverLimit:
        """The exception to raise for a count over the limit."""
        text = f"{self.product} come to {count:,} {self.unit} or more, and {self.most:,} are the most"
        return OverLimit(text, self.hint)

    def check(self, count: int) -> None:
        """Raise `OverLimit` if a count is over the limit."""
        if count > self.most:
            raise self.exceeded(count)

    def violations(self, path: str, count: int) -> Iterator[Violation]:
        """The violation of a document that exceeds the limit by itself."""
        if count > self.most:
            message = f"comes to {count} {self.unit}, and {self.most} are the most"
            yield Violation(path, message, self.hint, sort=ViolationSort.WRITE)


class Room:
    """The part of a limit that is not taken yet. It is taken in a fixed order, and what does not fit is left out."""

    def __init__(self, limit: Limit, taken: int = 0, needed: int = 0) -> None:
        self._limit = limit
        self._taken = taken
        self._over = needed

    def take(self, count: int) -> None:
        """Take a part of the room. Raises `OverLimit` and takes nothing if it does not fit."""
        if self._taken + count > self._limit.most:
            # Everything that does not fit has one reason, so that one finding can stand for all of it.
            self._over = self._over or self._taken + count
            raise self._limit.exceeded(self._over)
        self._taken += count

    def give_back(self, count: int) -> None:
        """Return a part that was taken."""
        self._taken -= count


@dataclass(frozen=True, slots=True)
class DestinationRoom:
    """The room of the destinations of a proxy: for the confs of policies, and for all that is kept of them."""

    policies: Room
    kept: tuple[Room, ...] = ()
    """The room of the proxy and that of its mesh."""

    def take(self, count: int) -> None:
        """Take room for confs. Raises `OverLimit`."""
        self.policies.take(count)

    def keep(self, count: int) -> None:
        """Take room for bytes that are kept: in all rooms, or in none. Raises `OverLimit`."""
        for index, room in enumerate(self.kept):
            try:
                room.take(count)
            except OverLimit:
                for earlier in self.kept[:index]:
                    earlier.give_back(count)
                raise

    def give_back(self, count: int) -> None:
        """Return bytes that are not kept after all."""
        for room in self.kept:
            room.give_back(count)


ROWS_OF_GATEWAY: Final = Limit(
    20_000,
    "rows",
    "the hostnames and rules of a MeshGateway",
    "the hostnames whose rows do not fit answer with 500",
    "divide the MeshGateway, or name the hostnames of each route",
)
PARTS_OF_GATEWAY: Final = Limit(
    200_000,
    "conditions, filters and backends",
    "the hostnames and the contents of rules of a MeshGateway",
    "the hostnames whose rows do not fit answer with 500",
    "divide the MeshGateway, or name the hostnames of each route",
)
BYTES_OF_GATEWAY: Final = Limit(
    _MIB * 16,
    "bytes",
    "policies and the rows of a MeshGateway",
    "the hostnames that do not fit answer with 500",
    "divide the MeshGateway, or write less in policies for all of its routes",
)
ROWS_OF_ROUTE: Final = Limit(
    20_000,
    "rows",
    "the hostnames and matches of a route",
    "a write with it is rejected",
    "divide it",
)
PARTS_OF_ROUTE: Final = Limit(
    200_000,
    "conditions, filters and backends",
    "the hostnames, the matches and the contents of rules of a route",
    "a write with it is rejected",
    "divide it",
)
BYTES_OF_OUTBOUNDS: Final = Limit(
    _MIB * 16,
    "bytes",
    "policies and the outbounds of a proxy",
    "the outbounds that do not fit answer with 500, and close connections of TCP",
    "write less in policies for all services, or have proxies call fewer of them (`reachableBackends`)",
)
BYTES_OF_BACKENDS: Final = Limit(
    _MIB * 16,
    "bytes",
    "policies, endpoints and the clusters of a proxy",
    "the clusters that do not fit are left out: calls to them are answered with 503",
    "write less in policies for all services, or have proxies call fewer of them (`reachableBackends`)",
)
BYTES_OF_INBOUNDS: Final = Limit(
    _MIB * 2,
    "bytes",
    "policies, their clients and the inbounds of a proxy",
    "the inbounds that do not fit are left out, so no client can call them",
    "write fewer clients or smaller confs, or divide the Dataplane",
)
BYTES_OF_PROXY: Final = Limit(
    _MIB * 128,
    "bytes",
    "the destinations of a proxy",
    "the destinations that do not fit cannot be called; the services that were created first fit first",
    "have proxies call fewer services (`reachableBackends`), or raise KOGUMA_PROXY_BYTES",
)
BYTES_OF_MESH: Final = Limit(
    _MIB * 1024,
    "bytes",
    "the destinations of all proxies of a mesh",
    "the destinations that do not fit cannot be called; the proxies that were served first keep theirs",
    "have proxies call fewer services (`reachableBackends`), or raise KOGUMA_MESH_BYTES",
)
CONDITIONS_OF_PERMISSIONS: Final = Limit(
    50_000,
    "conditions",
    "the `from` items of permissions that allow and those that deny",
    "the inbound is left out, so no client can call it",
    "write `rules` with `spiffeID`, which need no conditions on other clients",
)
NAMES_OF_MESH: Final = Limit(
    50_000,
    "names",
    "the HostnameGenerators and services of a mesh",
    "the names that do not fit are not answered",
    "write fewer HostnameGenerators, or select fewer services in each",
)
NAMED_PORTS_OF_MESH: Final = Limit(
    10_000,
    "ports of names",
    "the VirtualOutbounds and tags of a mesh",
    "the names that do not fit are left out, the least specific first",
    "select fewer tags, or leave out parameters that make a name for each value of a tag",
)

PRODUCTS: Final = (
    ROWS_OF_ROUTE,
    PARTS_OF_ROUTE,
    ROWS_OF_GATEWAY,
    PARTS_OF_GATEWAY,
    BYTES_OF_GATEWAY,
    BYTES_OF_OUTBOUNDS,
    BYTES_OF_BACKENDS,
    BYTES_OF_INBOUNDS,
    BYTES_OF_PROXY,
    BYTES_OF_MESH,
    CONDITIONS_OF_PERMISSIONS,
    NAMES_OF_MESH,
    NAMED_PORTS_OF_MESH,
)
"""Every limit of a product, in the order of the reference."""


DESTINATION_BYTES: Final = 12_000
"""The bytes that a service port takes that a proxy calls: the results, and Envoy's listener, routes and cluster."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits that are settings: the bytes of the destinations of one proxy, and of all proxies of a mesh.

    See record 0102.
    """

    of_proxy: Limit = BYTES_OF_PROXY
    of_mesh: Limit = BYTES_OF_MESH

    @classmethod
    def of(cls, proxy: int, mesh: int) -> Budget:
        return cls(replace(BYTES_OF_PROXY, most=proxy), replace(BYTES_OF_MESH, most=mesh))

    @property
    def destinations(self) -> int:
        """The most destinations of a proxy."""
        return self.of_proxy.most // DESTINATION_BYTES


DEFAULT_BUDGET: Final = Budget()


def rows_of(rule: Mapping[str, Any]) -> int:
    """The rows that a rule of a route makes for each hostname."""
    return len(rule.get("matches") or ())


def parts_of(rule: Mapping[str, Any]) -> int:
    """The conditions, filters and backends of the rows that a rule makes for each hostname."""
    conditions = sum(map(_entries, rule.get("matches") or ()))
    return conditions + rows_of(rule) * sum(_entries(value) for name, value in rule.items() if name != "matches")


def _entries(value: Any) -> int:
    """The entries of all lists in a value."""
    if isinstance(value, Mapping):
        return sum(map(_entries, value.values()))
    return len(value) + sum(map(_entries, value)) if isinstance(value, list) else 0


_WITHOUT_LIMITS: Final = frozenset({"Rollout"})
"""Kinds that the control plane alone writes: a Rollout names each proxy that it has reached."""


KEPT_WHEN_LOADED: Final = frozenset({"MeshProxyPatch"})
"""Kinds whose limits stored documents have to keep too: each entry is applied to everything that proxies have. The
limits of products count its bytes, and not this work."""


def too_many(kind: str, data: Mapping[str, Any]) -> Iterator[Violation]:
    """The lists and maps of a document that have too many entries."""
    if kind in _WITHOUT_LIMITS:
        return
    over = [(steps, count, most) for steps, count in _sizes(data, ()) if count > (most := _most(kind, steps))]
    is_tolerated = over and kind not in KEPT_WHEN_LOADED and count_values(data) <= MOST_VALUES
    for steps, count, most in over:
        path = reduce(step, (key for key in steps if key != _OF_LIST), "")
        sort = ViolationSort.WRITE if is_tolerated else ViolationSort.WRONG
        yield Violation(path, f"has {count} entries, and {most} are the most", "divide it", sort=sort)


def count_values(value: Any) -> int:
    """Count the values in a document, lists and maps among them."""
    inner: Iterable[Any] = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return 1 + sum(map(count_values, inner))


def _most(kind: str, steps: tuple[Step, ...]) -> int:
    if not steps or steps[-1] != _OF_LIST:
        return MOST_KEYS
    names = ("[]" if isinstance(name, int) else f".{name}" for name in steps[:-1])
    return LIMITS.get(kind, {}).get(f"{''.join(names)}[]".removeprefix("."), MOST_ENTRIES)


def _sizes(value: Any, steps: tuple[Step, ...]) -> Iterator[tuple[tuple[Step, ...], int]]:
    """Every list and map that may have too many entries, by its steps. Those of a list end with `_OF_LIST`."""
    entries: Iterable[tuple[Step, Any]] = ()
    if isinstance(value, Mapping):
        entries = ((str(name), inner) for name, inner in value.items())
    elif isinstance(value, list):
        entries = enumerate(value)
    if len(value) > _FEWEST:
        yield (*steps, _OF_LIST) if isinstance(value, list) else steps, len(value)
    for name, inner in entries:
        if isinstance(inner, Mapping | list):
            yield from _sizes(inner, (*steps, name))
