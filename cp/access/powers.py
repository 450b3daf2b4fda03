"""Powers: the worst that the writer of each kind, or of some of its fields, can do, and the right that this takes.

This table is the only source: `Rights` and the HTTP API check by it, and the threat model shows it. See record 0096.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from cp.model.canonical import canonical_json
from cp.resources.services import SOCKET


class Harm(Enum):
    """The worst that a writer can do, worst first. The value completes "can …"."""

    RULE = "do everything, as an administrator"
    RUN = "run code on the machines of proxies"
    TRUST = "become trusted, or act as others"
    OPEN = "remove access control"
    KEYS = "receive private keys"
    STEER = "read, change and redirect calls"
    SEE = "see calls, and what proxies can reach"
    STOP = "stop calls"


GRAVE: Final = frozenset({Harm.RULE, Harm.RUN, Harm.TRUST, Harm.OPEN, Harm.KEYS})
"""The harms that no right includes unless it names something."""


class Grant(Enum):
    """The right that a write takes."""

    PLAIN = "a right to write"
    NAMED = "a right to write that names the kind"
    SECRETS = "also a right to write that names `Secret`"
    ADMINISTRATOR = "administrators alone"
    CONTROL_PLANE = "the control plane alone"


class Taking(Enum):
    """The changes to a field that use its power."""

    ADDED = "a value that was not there before"
    CHANGED = "any change, creation and deletion included"
    REPLACED = "a change of a stored resource"


_EMPTY: Final[tuple[Any, ...]] = (None, "", {}, [])


def _never(_value: Any) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Part:
    """A field whose writer has more power than the writers of the other fields of its kind."""

    field: str
    """Its path in documents. `[]` is every item of a list, `*` every field of an object."""

    taking: Taking = Taking.CHANGED
    is_harmless: Callable[[Any], bool] = _never
    """True of a value that gives no power."""

    but: str = ""
    """The harmless values, for readers."""

    def is_taken(self, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> bool:
        """True if a write that makes `after` of `before` uses the power; None is a document that is not there."""
        old, new = self._values(before), self._values(after)
        if self.taking is Taking.ADDED:
            return not new <= old
        is_there = before is not None and after is not None
        return old != new and (is_there or self.taking is Taking.CHANGED)

    def _values(self, data: Mapping[str, Any] | None) -> frozenset[bytes]:
        values = (value for value in values_at(data, self.field) if value not in _EMPTY)
        return frozenset(canonical_json(value) for value in values if not self.is_harmless(value))


@dataclass(frozen=True, slots=True)
class Power:
    """The worst that the writer of a kind can do by one of its fields or, without `part`, by all others."""

    kind: str
    harm: Harm
    worst: str
    grant: Grant = Grant.PLAIN
    part: Part | None = None


def values_at(data: Any, field: str) -> Iterator[Any]:
    """Yield the values at a path such as `spec.*[].default`. A document that is not valid has none, or others."""
    name, _, inner = field.partition(".")
    is_list, name = name.endswith("[]"), name.removesuffix("[]")
    if not isinstance(data, Mapping):
        return
    for value in data.values() if name == "*" else [data.get(name)]:
        for item in _items(value) if is_list else [value]:
            if inner:
                yield from values_at(item, inner)
            else:
                yield item


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


_STREAMS: Final = frozenset({"/dev/stdout", "/dev/stderr", "/dev/null"})
_BUT_STREAMS: Final = "other than `/dev/stdout`, `/dev/stderr` and `/dev/null`"
_VARIABLE: Final = b"%ENVIRONMENT"
"""A command in formats of access logs, which stands for an environment variable of the proxy."""

_READS_VARIABLES: Final = "logs environment variables of proxies, where their tokens and passwords may be"
_APPENDS: Final = (
    "appends its lines to any file that the user of the proxy may write, such as a script or a list of keys"
)


def _is_stream(value: Any) -> bool:
    """True of the path of a stream, and of a backend that writes to no other file."""
    if isinstance(value, Mapping):
        parts = (value, *(part for part in value.values() if isinstance(part, Mapping)))
        return all(_is_stream(part["path"]) for part in parts if part.get("path") is not None)
    return isinstance(value, str) and value in _STREAMS


def _is_no_socket(value: Any) -> bool:
    return not isinstance(value, str) or not value.startswith(SOCKET)


def _reads_no_variable(value: Any) -> bool:
    return _VARIABLE not in canonical_json(value)


def _variables(field: str) -> Part:
    return Part(field, Taking.ADDED, _reads_no_variable, "with `%ENVIRONMENT(…)%`")


def _file(field: str) -> Part:
    return Part(field, Taking.ADDED, _is_stream, _BUT_STREAMS)


def _of_calls(harm: Harm, worst: str, *kinds: str) -> Iterator[Power]:
    return (Power(kind, harm, worst) for kind in kinds)


_R, _T, _O, _K = Harm.RUN, Harm.TRUST, Harm.OPEN, Harm.KEYS
_ANY_FILTER: Final = "adds filters to proxies, Lua and Wasm among them: runs programs, reads files, keys and traffic"
_SENDS_SECRET: Final = "has the contents of a Secret sent to proxies"  # noqa: S105  # a sentence
_SIGNS: Final = "decides who signs for a trust domain, so that its writer can be any client or server"
_FROM_MACHINE: Final = "signs with the keys that the control plane can read on its machine, also those of other meshes"
_ROUTES: Final = "sends calls of any client to a service of its choice, copies them, and sets their headers"
_NAMES: Final = "decides which proxies or addresses a name leads to, and so who answers calls"
_COLLECTS: Final = "sends metadata and headers of calls, `Authorization` among them, to any collector"
_LIMITS: Final = "lets calls fail, wait, or repeat"
_TLS_FILES: Final = "uses certificates and keys in files on the machines of proxies"

POWERS: Final[tuple[Power, ...]] = (
    Power("UserToken", Harm.RULE, "makes a token of an administrator", Grant.NAMED),
    Power("GlobalSecret", Harm.RULE, "replaces the keys that sign tokens of people", Grant.NAMED),
    Power("MeshProxyPatch", _R, _ANY_FILTER, Grant.NAMED),
    Power("ProxyTemplate", _R, _ANY_FILTER, Grant.NAMED),
    Power("MeshAccessLog", _R, _APPENDS, Grant.NAMED, _file("spec.*[].default.backends[].file")),
    Power("Mesh", _R, _APPENDS, Grant.NAMED, _file("logging.backends[]")),
    Power("MeshHealthCheck", _R, _APPENDS, Grant.NAMED, _file("spec.to[].default.eventLogPath")),
    Power("HealthCheck", _R, _APPENDS, Grant.NAMED, _file("conf.eventLogPath")),
    Power(
        "MeshExternalService",
        _R,
        "calls any socket on the machines of proxies, such as that of Docker",
        Grant.NAMED,
        Part("spec.endpoints[].address", Taking.ADDED, _is_no_socket, f"that begins with `{SOCKET}`"),
    ),
    Power("MeshAccessLog", _T, _READS_VARIABLES, Grant.NAMED, _variables("spec.*[].default.backends[].*")),
    Power("Mesh", _T, _READS_VARIABLES, Grant.NAMED, _variables("logging.backends[]")),
    Power("ZoneToken", _T, "makes tokens for the proxies of zones", Grant.NAMED),
    Power(
        "Secret", _T, "replaces keys of the mesh: those that sign tokens and certificates of all proxies", Grant.NAMED
    ),
    Power("DataplaneToken", _T, "makes tokens for all proxies: receives their certificates and keys", Grant.NAMED),
    Power("MeshTrust", _T, _SIGNS, Grant.NAMED),
    Power("MeshIdentity", _T, _SIGNS, Grant.NAMED),
    Power(
        "Mesh",
        _T,
        "decides which authority all proxies of the mesh trust, and who may call without mTLS",
        Grant.NAMED,
        Part("mtls"),
    ),
    Power(
        "Dataplane",
        _T,
        "gives a proxy the tags of another service: its certificate, its calls and its permissions",
        Grant.NAMED,
    ),
    Power("Mesh", _T, _FROM_MACHINE, Grant.ADMINISTRATOR, Part("mtls.backends[].conf.*.file", Taking.ADDED)),
    Power(
        "MeshIdentity",
        _T,
        _FROM_MACHINE,
        Grant.ADMINISTRATOR,
        Part("spec.provider.bundled.ca.*.file.path", Taking.ADDED),
    ),
    Power(
        "MeshIdentity",
        _T,
        _FROM_MACHINE,
        Grant.ADMINISTRATOR,
        Part("spec.provider.bundled.ca.*.envVar.name", Taking.ADDED),
    ),
    Power("MeshTrafficPermission", _O, "lets any client call, and clients that others deny", Grant.NAMED),
    Power("TrafficPermission", _O, "lets any client call", Grant.NAMED),
    Power("MeshTLS", _O, "lets clients call in plain text (`PERMISSIVE`), which no permission judges", Grant.NAMED),
    Power("MeshPassthrough", _O, "lets workloads call any address outside the mesh", Grant.NAMED),
    Power(
        "Mesh",
        _O,
        "lets workloads call any address outside the mesh",
        Grant.NAMED,
        Part("networking.outbound.passthrough"),
    ),
    Power(
        "Mesh",
        _O,
        "lets workloads call every MeshExternalService",
        Grant.NAMED,
        Part("routing.defaultForbidMeshExternalServiceAccess"),
    ),
    Power("Mesh", _O, "lets in proxies that the mesh keeps out", Grant.NAMED, Part("constraints")),
    Power(
        "Mesh",
        _O,
        "decides which sort of permissions counts",
        Grant.NAMED,
        Part("policyEngine", Taking.REPLACED),
    ),
    Power(
        "MeshGateway",
        _K,
        "more proxies receive the keys of its listeners: selectors that select others, where it has certificates",
        Grant.SECRETS,
        Part("selectors", Taking.ADDED),
    ),
    Power(
        "Dataplane",
        _K,
        "its proxy receives the keys of a MeshGateway that selects it and did not before",
        Grant.SECRETS,
        Part("networking.gateway.tags", Taking.ADDED),
    ),
    Power(
        "MeshGateway",
        _K,
        _SENDS_SECRET,
        Grant.SECRETS,
        Part("conf.listeners[].tls.certificates[].secret", Taking.ADDED),
    ),
    Power(
        "MeshExternalService",
        _K,
        _SENDS_SECRET,
        Grant.SECRETS,
        Part("spec.tls.verification.*.secret", Taking.ADDED),
    ),
    Power("ExternalService", _K, _SENDS_SECRET, Grant.SECRETS, Part("networking.tls.*.secret", Taking.ADDED)),
    Power("Mesh", _K, "signs with the contents of a Secret", Grant.SECRETS, Part("mtls.backends[].conf.*.secret")),
    Power(
        "MeshIdentity",
        _K,
        "signs with the contents of a Secret",
        Grant.SECRETS,
        Part("spec.provider.bundled.ca.*.secretRef.name", Taking.ADDED),
    ),
    *_of_calls(Harm.STEER, _ROUTES, "MeshHTTPRoute", "MeshTCPRoute", "MeshGatewayRoute", "TrafficRoute"),
    *_of_calls(Harm.STEER, _NAMES, "MeshService", "MeshMultiZoneService", "HostnameGenerator", "VirtualOutbound"),
    *_of_calls(
        Harm.STEER,
        f"{_NAMES}, loopback and metadata addresses included; {_TLS_FILES}",
        "MeshExternalService",
        "ExternalService",
    ),
    Power("MeshGateway", Harm.STEER, f"opens services of the mesh to clients outside; {_TLS_FILES}"),
    *_of_calls(
        Harm.SEE,
        _COLLECTS,
        *("MeshAccessLog", "TrafficLog", "MeshTrace", "TrafficTrace", "MeshOpenTelemetryBackend", "Mesh"),
    ),
    Power(
        "MeshMetric",
        Harm.SEE,
        "shows pages of any HTTP server that proxies reach, such as those on loopback, to whoever reaches their ports",
    ),
    *_of_calls(
        Harm.STOP,
        _LIMITS,
        *("MeshTimeout", "Timeout", "MeshRetry", "Retry", "MeshCircuitBreaker", "CircuitBreaker"),
        *("MeshHealthCheck", "HealthCheck", "MeshLoadBalancingStrategy", "MeshFaultInjection", "FaultInjection"),
        *("MeshRateLimit", "RateLimit"),
    ),
    Power("Rollout", Harm.STOP, "decides which proxies are served a change", Grant.CONTROL_PLANE),
)
"""Ordered by harm, worst first."""


def _parts() -> Mapping[str, tuple[Power, ...]]:
    parts: dict[str, list[Power]] = defaultdict(list)
    for power in POWERS:
        if power.part is not None and power.grant is Grant.NAMED:
            parts[power.kind].append(power)
    return MappingProxyType({kind: tuple(powers) for kind, powers in parts.items()})


NAMED_PARTS: Final = _parts()
"""By kind, its powers whose field takes a right that names the kind, though other fields do not."""

NAMED_KINDS: Final = frozenset(power.kind for power in POWERS if power.part is None and power.grant is Grant.NAMED)
"""Kinds that no right includes unless it names them."""

JUDGED_BY_CHANGE: Final = frozenset(power.kind for power in POWERS if power.part is not None)
"""Kinds of which the right that a write takes depends on the document that is stored."""

NAMED_BEFORE: Final = frozenset(
    {"Secret", "GlobalSecret", "DataplaneToken", "UserToken", "ZoneToken", "MeshTrust", "MeshIdentity"}
)
"""Those of which this was true before there was this table."""


def taken_powers(
    kind: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> Iterator[tuple[Power, Part]]:
    """Yield the powers of a kind that a write uses and that take a right which names the kind."""
    for power in NAMED_PARTS.get(kind, ()):
        if power.part is not None and power.part.is_taken(before, after):
            yield power, power.part


def worst_of(kind: str) -> Power | None:
    """Return the gravest power of a kind."""
    return next((power for power in POWERS if power.kind == kind), None)
