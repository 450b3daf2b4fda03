"""What an explanation says: plain values, every fact of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import MappingProxyType
from typing import Any, Final

from cp.insight.explain.query import CallQuery
from cp.insight.simulate import Outcome, RouteCondition, TrafficShare
from cp.model.duration import Duration
from cp.model.names import Key

BUILT_IN: Final = "built-in"
"""The level of our own defaults."""

ENVOY: Final = "envoy"
"""The level of what Envoy does where nothing is configured."""

ROUTE: Final = "route"
LISTENER: Final = "listener"
CLUSTER: Final = "cluster"


@dataclass(frozen=True, slots=True)
class ValueOrigin:
    """A value, and who said it."""

    value: Any
    level: str
    """How far it reaches: route, section, service, mesh, inbound or proxy; else one of the two above."""

    policy: Key | None = None
    item: str = ""
    """The item of the policy: `to[0]`."""

    path: str = ""
    """Where it stands in the document."""

    file: str = ""
    line: int = 0
    removed_by: ValueOrigin | None = None
    """The null that took it away, if one did."""


@dataclass(frozen=True, slots=True)
class FieldValue:
    """One field of a policy: what holds, who said so, and who said something else."""

    policy: str
    path: str
    winner: ValueOrigin
    losers: tuple[ValueOrigin, ...] = ()
    """Those who were overridden, the strongest first."""

    served_in: str = ""
    """Which part of Envoy's configuration it is in: the route, the listener or the cluster; empty: in none."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class ExplainedRow:
    """One row of the route table."""

    index: int
    owner: Key | None
    """The route resource; None for the row that every service has for all the rest."""

    origin: ValueOrigin | None
    """Where its match is written."""

    weaker_contributors: tuple[Key, ...]
    """Weaker route resources with the same match of which something is left: their policies hold as well."""

    conditions: tuple[RouteCondition, ...]
    matches: bool | None
    is_taken: bool
    why: str
    """Why it took the request, or did not."""

    is_patched: bool = False
    """Whether it is not of ours, but a patch's."""


@dataclass(frozen=True, slots=True)
class ExplainedBackend:
    """One cluster that the request can end up at."""

    cluster: str
    service: str
    weight: int
    share: float
    """Percent of the requests."""

    endpoints: tuple[str, ...] = ()
    values: tuple[FieldValue, ...] = ()
    missing_reason: str = ""
    """Why there is no such cluster, where there is none."""


@dataclass(frozen=True, slots=True)
class ExplainedLimit:
    """One of several limits of the same thing, on the client's side or the server's."""

    subject: str
    """What is limited: how long a request may take, how long nothing may come, …"""

    side: str
    policy: str
    field: str
    origin: ValueOrigin
    seconds: float
    """Zero: no limit."""

    is_binding: bool = False
    """Whether it is the one that is reached first."""


@dataclass(frozen=True, slots=True)
class ExplainedHop:
    """The limits on the way through the client's proxy to some servers with equal limits."""

    cluster: str
    servers: tuple[str, ...]
    limits: tuple[ExplainedLimit, ...]


@dataclass(frozen=True, slots=True)
class ExplainedOutbound:
    """The local address by which the call leaves."""

    address: str
    port: int
    destination: str
    protocol: str
    kind: str
    """MeshService and its like, or `kuma.io/service` for one that is known by tags."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything about one call of one proxy."""

    proxy: Key
    call: CallQuery
    outbound: ExplainedOutbound
    outcome: Outcome
    """What Envoy does, read from the bytes that it is served."""

    rows: tuple[ExplainedRow, ...]
    values: tuple[FieldValue, ...]
    """What holds for the request, by the route and by the listener."""

    backends: tuple[ExplainedBackend, ...]
    hops: tuple[ExplainedHop, ...]
    changes: tuple[str, ...] = ()
    """What the route does to the request and its response on the way."""

    not_enforced: tuple[str, ...] = ()
    """What of the mesh, and of the policies of both ends, holds for nobody."""

    def as_json(self) -> dict[str, Any]:
        """Every fact as plain data."""
        data: dict[str, Any] = _plain(self)
        return data


_JSON_NAMES: Final[Mapping[tuple[type, str], str]] = MappingProxyType(
    {
        (FieldValue, "winner"): "said",
        (FieldValue, "losers"): "over",
        (FieldValue, "served_in"): "at",
        (ExplainedRow, "origin"): "place",
        (ExplainedRow, "weaker_contributors"): "beside",
        (ExplainedRow, "conditions"): "asks",
        (ExplainedRow, "is_taken"): "taken",
        (ExplainedRow, "is_patched"): "patched",
        (ExplainedBackend, "missing_reason"): "missing",
        (ExplainedLimit, "subject"): "of",
        (ExplainedLimit, "origin"): "said",
        (ExplainedLimit, "is_binding"): "binding",
        (RouteCondition, "subject"): "of",
        (RouteCondition, "pattern"): "wanted",
        (RouteCondition, "value"): "given",
        (RouteCondition, "is_inverted"): "inverted",
        (TrafficShare, "is_missing"): "missing",
    }
)
"""The fields whose name in the API is not their own in camel case."""


def _plain(value: Any) -> Any:
    if isinstance(value, Duration):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {_json_name(type(value), field.name): _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def _json_name(kind: type, field: str) -> str:
    head, *words = field.split("_")
    return _JSON_NAMES.get((kind, field)) or head + "".join(map(str.capitalize, words))
