"""The explanation of a call as plain values, and its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import MappingProxyType
from typing import Any, Final

from cp.insight.explain.query import CallQuery
from cp.insight.simulate import Outcome, RouteCondition, TrafficShare
from cp.model.checkpoint import pass_checkpoint
from cp.model.duration import Duration
from cp.model.names import Key
from cp.model.secret_data import redacted

BUILT_IN: Final = "built-in"
"""The level of a policy's own defaults."""

ENVOY: Final = "envoy"
"""The level of what Envoy does where nothing is configured."""

ROUTE: Final = "route"
LISTENER: Final = "listener"
CLUSTER: Final = "cluster"


@dataclass(frozen=True, slots=True)
class ValueOrigin:
    """A value and where it was written."""

    value: Any
    level: str
    """What it was written for: route, section, service, mesh, inbound or proxy; else one of the two levels above."""

    policy: Key | None = None
    item: str = ""
    """The item of the policy: `to[0]`."""

    path: str = ""
    """The path of the value in the document."""

    file: str = ""
    line: int = 0
    removed_by: ValueOrigin | None = None
    """The null that removed it, if one did."""


@dataclass(frozen=True, slots=True)
class FieldValue:
    """One field of a policy: the value that holds, and the values that it overrides."""

    policy: str
    path: str
    winner: ValueOrigin
    losers: tuple[ValueOrigin, ...] = ()
    """The overridden values, the strongest first."""

    served_in: str = ""
    """The Envoy resource that has it: `route`, `listener`, `cluster` or `inbound`; empty for a field without effect."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class ExplainedRow:
    """One row of the route table."""

    index: int
    owner: Key | None
    """The route resource; None for the last row of every service, which takes all other requests."""

    origin: ValueOrigin | None
    """Where its match is written."""

    weaker_contributors: tuple[Key, ...]
    """The weaker contributors with the same match: policies on them hold as well."""

    conditions: tuple[RouteCondition, ...]
    matches: bool | None
    is_taken: bool
    why: str
    """Why it took the request, or why not."""

    is_patched: bool = False
    """Whether a MeshProxyPatch wrote it."""

    hostname: str = ""
    """On a gateway, the pattern of hostnames for which the route is."""


@dataclass(frozen=True, slots=True)
class ExplainedBackend:
    """One cluster that the request can end up at."""

    cluster: str
    service: str
    weight: int
    share: float
    """The percentage of requests that it gets."""

    endpoints: tuple[str, ...] = ()
    values: tuple[FieldValue, ...] = ()
    missing_reason: str = ""
    """Why the cluster does not exist; empty if it does."""


@dataclass(frozen=True, slots=True)
class ExplainedServer:
    """What policies of the servers of one cluster do with the call, where that is the same for all of them."""

    cluster: str
    servers: tuple[str, ...]
    values: tuple[FieldValue, ...]


@dataclass(frozen=True, slots=True)
class ExplainedLimit:
    """A limit that one side, the client's proxy or the server's, sets to a duration."""

    subject: str
    """What is limited: a request, each try of it, silence within it, …"""

    side: str
    policy: str
    field: str
    origin: ValueOrigin
    seconds: float
    """Zero: no limit."""

    is_binding: bool = False
    """Whether it is the smallest limit of its subject, which is reached first."""


@dataclass(frozen=True, slots=True)
class ExplainedHop:
    """The limits on the way to the servers of one cluster that have equal limits."""

    cluster: str
    servers: tuple[str, ...]
    limits: tuple[ExplainedLimit, ...]


@dataclass(frozen=True, slots=True)
class ExplainedAccess:
    """Whether the servers of one cluster that answer alike let the call in."""

    cluster: str
    servers: tuple[str, ...]
    is_allowed: bool
    reason: str
    decided_by: ValueOrigin | None
    """The permission that allows or denies it; its value says which."""

    shadow_denied_by: ValueOrigin | None
    """The permission because of which it is logged that the call might be denied."""

    spoken: str
    """How the caller speaks: TLS or plain text."""

    spoken_reason: str
    taken: str
    """What the servers take."""

    taken_origin: ValueOrigin | None
    """The policy that says what they take; None: the Mesh does."""

    caller_names: tuple[str, ...]
    """The URIs of the caller's certificate; in plain text nobody shows one."""

    expected_names: tuple[str, ...]
    """The URIs of which the caller expects one; with a star at the end: any that begins so."""

    server_names: tuple[str, ...]
    """The SPIFFE IDs of the servers' certificates."""


@dataclass(frozen=True, slots=True)
class ExplainedOutbound:
    """The outbound that the call takes: a local address of the proxy, and its destination."""

    address: str
    port: int
    destination: str
    protocol: str
    kind: str
    """The kind of the service's resource, or `kuma.io/service` for a service that is only a tag."""


@dataclass(frozen=True, slots=True)
class ExplainedListener:
    """The listener of a gateway by which the call comes in."""

    gateway: Key
    """The MeshGateway."""

    address: str
    port: int
    protocol: str
    hostname: str
    """The hostnames that the listener is for; empty if none of the port takes the call."""

    origin: ValueOrigin | None
    """Where it is written."""

    host: str
    """The narrowest hostname with routes that the call fits; empty without one, and for connections."""

    reason: str
    """Why it is this listener and this hostname, or none."""

    tls: str
    """What becomes of TLS there: it ends, it is passed on, or none is spoken."""

    clients: tuple[FieldValue, ...] = ()
    """What holds for the clients of the gateway."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of one call of one proxy."""

    proxy: Key
    call: CallQuery
    outbound: ExplainedOutbound | None
    """None on a builtin gateway."""

    outcome: Outcome
    """What Envoy does with the call, simulated on the bytes that it is served."""

    rows: tuple[ExplainedRow, ...]
    values: tuple[FieldValue, ...]
    """The fields in the route and the listener, and the fields without effect."""

    backends: tuple[ExplainedBackend, ...]
    hops: tuple[ExplainedHop, ...]
    servers: tuple[ExplainedServer, ...] = ()
    """What the policies of those who are called do with the call."""

    access: tuple[ExplainedAccess, ...] = ()
    """Whether those who are called let the call in; nothing where there is no mTLS."""

    changes: tuple[str, ...] = ()
    """The changes that the route makes to the request and the response."""

    not_enforced: tuple[str, ...] = ()
    """Warnings about the mesh and the policies of both ends: parts that no proxy enforces."""

    not_known: tuple[str, ...] = ()
    """Of which of those who are called nobody can tell what they do with it, and why."""

    left_out: tuple[str, ...] = ()
    """The parts that the call meets and that are not built, the reasons, and what is served in their place."""

    listener: ExplainedListener | None = None
    """None where the call does not come in by a builtin gateway."""

    def as_json(self) -> dict[str, Any]:
        """The answer of the API."""
        data: dict[str, Any] = shown(self)
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
        (ExplainedAccess, "is_allowed"): "allowed",
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


def shown(value: Any) -> Any:
    """A value as the API answers it, without secrets."""
    return redacted(as_plain(value))


def as_plain(value: Any) -> Any:
    """A value as JSON data, in the words of the API."""
    if isinstance(value, Duration):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        pass_checkpoint()
        return {_json_name(type(value), field.name): as_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {name: as_plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(inner) for inner in value]
    return value


def _json_name(kind: type, field: str) -> str:
    head, *words = field.split("_")
    return _JSON_NAMES.get((kind, field)) or head + "".join(map(str.capitalize, words))
