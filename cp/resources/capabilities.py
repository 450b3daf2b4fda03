"""What documents may ask for and Koguma does not do yet: one table, for everybody who speaks of what is in force.

Lint, inspection, explanations, the answers to writes, the log and docs/reference/not-enforced.md read it. Who builds a
capability removes its rows, and no other place has to be found. Record 0041 says why there is such a table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cp.model.hosts import is_ip
from cp.model.paths import step
from cp.model.payloads import is_no_text
from cp.model.violation import Violation

WORDS: Final = "not enforced"
"""With this begins every sentence about what is not in force, whatever else is written."""

WITHOUT_EFFECT: Final = "has no effect"
"""With this begins every sentence about what would be in force if something else were written."""

MTLS: Final = "mTLS"
PROVIDERS: Final = "Other providers of identities"
BUILTIN_GATEWAYS: Final = "Builtin gateways"
ZONE_PROXIES: Final = "Zone ingress and zone egress"
LEGACY: Final = "Resources of Kuma's first versions"
MEMBERSHIP: Final = "Membership of Dataplanes"
NAMES: Final = "Addresses of Dataplanes that are names"
PROBES: Final = "Probes of workloads"
TELEMETRY: Final = "Telemetry"
CLIENTS: Final = "Policies that tell clients apart"
REDIRECTION: Final = "Redirected traffic"

_INDEX: Final = re.compile(r"\[\d+\]")


@dataclass(frozen=True, slots=True)
class MissingCapability:
    """A field, or a whole kind, that is understood and checked and has no effect on any proxy."""

    capability: str
    """What has to be built before it can have an effect."""

    kinds: tuple[str, ...]
    field: str
    """Its path in the document, with `[]` for every item of a list; empty for the whole document."""

    sentence: str
    """What does not happen."""

    hint: str
    """What to do instead."""

    part: str | None = None
    """The part of the document that has no effect because of it; None: the field itself."""

    asks: Callable[[Any], bool] = bool
    """Whether a value asks for the capability at all."""

    beside: str = ""
    """Another field, around it or next to it, without which it does not ask for the capability; empty: none."""


@dataclass(frozen=True, slots=True)
class MissingPart:
    """A part of one document that has no effect, because the capability for it is missing."""

    capability: str
    path: str
    """The field that asks for the capability."""

    part: str
    """The part that has no effect; empty: all of the document."""

    sentence: str
    hint: str
    words: str = WORDS

    @property
    def reason(self) -> str:
        return f"{self.words}: {self.sentence}"

    def covers(self, path: str) -> bool:
        """Whether what stands at a path belongs to the part."""
        return not self.part or _is_within(path, self.part)

    def is_within(self, path: str) -> bool:
        """Whether the part is one of several that stand at a path."""
        return bool(self.part) and self.part != path and _is_within(self.part, path)


def _is_within(path: str, whole: str) -> bool:
    return path == whole or path.startswith((f"{whole}.", f"{whole}["))


_USUAL_PROFILES: Final = frozenset({"default-proxy", "gateway-proxy"})


def _lacks_usual_profile(conf: Any) -> bool:
    """Whether a ProxyTemplate imports neither the profile of sidecars nor that of builtin gateways."""
    return isinstance(conf, dict) and not _USUAL_PROFILES.intersection(conf.get("imports") or ())


def _is_not_added(resource: Any) -> bool:
    """Whether a text is of a resource that is none of those that a MeshProxyPatch adds."""
    return isinstance(resource, str) and not any(f"envoy.config.{kind}" in resource for kind in _ADDED)


_ADDED: Final = ("cluster.v3.Cluster", "listener.v3.Listener")


def _is_name(address: Any) -> bool:
    return isinstance(address, str) and not is_ip(address)


def _is_false(value: Any) -> bool:
    return value is False


def _is_elsewhere(provider: Any) -> bool:
    return provider not in {None, "Bundled"}


def _asks_for_tls(mode: Any) -> bool:
    return mode not in {None, "Disabled"}


_TEXT_ONLY: Final = "check by HTTP, or by the connection alone"
_SWITCH_ON: Final = "switch on `mtls` of the Mesh, or give its proxies a MeshIdentity"


def _same_for_all(timeout: str, why: str) -> Iterator[MissingCapability]:
    yield MissingCapability(
        CLIENTS,
        ("MeshTimeout",),
        f"spec.rules[].default.{timeout}",
        f"this timeout cannot differ between clients: {why}",
        "write it in a rule without `matches`, which holds for everybody",
        beside="spec.rules[].matches",
    )


MISSING: Final[tuple[MissingCapability, ...]] = (
    *_same_for_all("connectionTimeout", "a proxy has one pool of connections with its workload, for all clients"),
    *_same_for_all(
        "idleTimeout",
        "a proxy has one pool of connections with its workload, for all clients, and does not know who calls when a "
        "TCP connection begins",
    ),
    *_same_for_all(
        "http.requestHeadersTimeout", "while headers are still coming the route for the client is not chosen yet"
    ),
    *_same_for_all(
        "http.maxStreamDuration", "it is a limit of the proxy's connections with its workload, which all clients share"
    ),
    *_same_for_all(
        "http.maxConnectionDuration", "a proxy has one pool of connections with its workload, for all clients"
    ),
    MissingCapability(
        CLIENTS,
        ("MeshRateLimit",),
        "spec.rules[].default.local.tcp",
        "connections are counted before a client has shown who it is, so this limit cannot differ between clients",
        "write it in a rule without `matches`, which holds for everybody",
        beside="spec.rules[].matches",
    ),
    MissingCapability(
        PROVIDERS,
        ("MeshIdentity",),
        "spec.provider.type",
        "`Spire` and `Extension` are not asked: the control plane alone signs, so no proxy gets a certificate by it",
        "write `type: Bundled`, with an authority that SPIRE or another provider signed",
        part="",
        asks=_is_elsewhere,
    ),
    MissingCapability(
        BUILTIN_GATEWAYS,
        ("MeshGateway",),
        "conf.listeners[].crossMesh",
        "gateways are not called from other meshes, so nothing listens at this port",
        "let the other mesh call a listener with HTTPS, as everybody else does",
        part="conf.listeners[]",
    ),
    MissingCapability(
        ZONE_PROXIES,
        ("Dataplane",),
        "networking.listeners",
        "zone ingresses and zone egresses do not exist yet, so nothing listens at these ports",
        "let proxies reach each other directly",
    ),
    MissingCapability(
        ZONE_PROXIES,
        ("Mesh",),
        "routing.zoneEgress",
        "there are no zone egresses, so traffic leaves each machine directly",
        "let a firewall decide what may leave",
    ),
    MissingCapability(
        ZONE_PROXIES,
        ("Mesh",),
        "routing.defaultForbidMeshExternalServiceAccess",
        "every proxy may call every MeshExternalService",
        "let a firewall decide what may leave, or write a MeshPassthrough for redirected traffic",
    ),
    MissingCapability(
        LEGACY,
        ("Mesh",),
        "routing.localityAwareLoadBalancing",
        "endpoints of the own zone come first all the same",
        "write a MeshLoadBalancingStrategy with `localityAwareness.disabled: true`",
        asks=_is_false,
    ),
    MissingCapability(
        LEGACY, ("HealthCheck",), "conf.tcp.send", "bytes that are no text are not sent", _TEXT_ONLY, asks=is_no_text
    ),
    MissingCapability(
        LEGACY,
        ("HealthCheck",),
        "conf.tcp.receive[]",
        "bytes that are no text are not waited for",
        _TEXT_ONLY,
        asks=is_no_text,
    ),
    MissingCapability(LEGACY, ("Mesh",), "metrics", "no metrics are served because of it", "write a MeshMetric"),
    MissingCapability(LEGACY, ("Dataplane",), "metrics", "no metrics are served because of it", "write a MeshMetric"),
    MissingCapability(
        LEGACY,
        ("ProxyTemplate",),
        "conf",
        "without `default-proxy`, or `gateway-proxy` for builtin gateways, in `imports` a proxy is configured by "
        "services and policies all the same",
        "write `imports: [default-proxy]`, or `[gateway-proxy]`",
        part="conf.imports",
        asks=_lacks_usual_profile,
    ),
    MissingCapability(
        LEGACY,
        ("ProxyTemplate",),
        "conf.resources[].resource",
        "of raw resources only clusters and listeners are added",
        "change what there is, by `modifications`",
        part="conf.resources[]",
        asks=_is_not_added,
    ),
    MissingCapability(
        MEMBERSHIP,
        ("Mesh",),
        "constraints.dataplaneProxy",
        "every Dataplane is taken into the mesh, whatever tags it has",
        "decide who may write Dataplanes where you keep them",
    ),
    MissingCapability(
        NAMES,
        ("Dataplane",),
        "networking.address",
        "names are not looked up, so nobody can call this Dataplane's inbounds, and a gateway does not listen",
        "write its IP address",
        asks=_is_name,
    ),
    MissingCapability(
        PROBES,
        ("Dataplane",),
        "networking.inbound[].serviceProbe",
        "nobody asks the workload, so the inbound is taken to be well",
        "write a MeshHealthCheck for its clients, or keep `state` up to date",
    ),
    MissingCapability(
        PROBES, ("Dataplane",), "probes", "no endpoints for probes are served", "probe the workload itself"
    ),
    MissingCapability(
        REDIRECTION,
        ("Dataplane",),
        "networking.transparentProxying.directAccessServices",
        "the addresses of single endpoints are not served",
        "call the service by its name",
    ),
    MissingCapability(
        TELEMETRY,
        ("MeshMetric",),
        "spec.default.backends[].prometheus.tls.mode",
        "metrics are not served over TLS yet, and without TLS nothing is told: the listener is left out",
        "write `mode: Disabled`, and let a firewall decide who may scrape",
        part="spec.default.backends[]",
        asks=_asks_for_tls,
    ),
    MissingCapability(
        TELEMETRY,
        ("MeshOpenTelemetryBackend",),
        "spec.env",
        "the environment of a proxy changes nothing",
        "write the address under `endpoint`",
    ),
)

ONLY_WITH_MTLS: Final[tuple[MissingCapability, ...]] = (
    MissingCapability(
        MTLS,
        ("MeshTrafficPermission",),
        "",
        "no mTLS in this mesh, so nobody is asked who he is, and every client may call every inbound",
        _SWITCH_ON,
    ),
    MissingCapability(
        MTLS, ("MeshTLS",), "", "no mTLS in this mesh, so inbounds take plain text and nothing else", _SWITCH_ON
    ),
    MissingCapability(
        MTLS,
        ("MeshAccessLog", "MeshFaultInjection", "MeshRateLimit", "MeshTimeout"),
        "spec.rules[].matches",
        "no mTLS in this mesh, so no client has an identity, and the rule holds for nobody",
        f"{_SWITCH_ON}, or write a rule without `matches`, which holds for everybody",
        part="spec.rules[]",
    ),
)
"""What has an effect only in a mesh with mTLS, and there only on inbounds that take TLS."""

_ByKind: TypeAlias = Mapping[str, tuple[MissingCapability, ...]]


def _by_kind(rows: tuple[MissingCapability, ...]) -> _ByKind:
    kinds = dict.fromkeys(kind for row in rows for kind in row.kinds)
    return {kind: tuple(row for row in rows if kind in row.kinds) for kind in kinds}


_OF_KIND: Final = _by_kind(MISSING)
_OF_KIND_WITH_MTLS: Final = _by_kind(ONLY_WITH_MTLS)


def missing_parts(kind: str, data: Mapping[str, Any]) -> Iterator[MissingPart]:
    """The parts of a valid document that have no effect, because the capability for them is missing."""
    return _parts(_OF_KIND.get(kind, ()), data, WORDS)


def parts_with_mtls(kind: str, data: Mapping[str, Any]) -> Iterator[MissingPart]:
    """The parts of a valid document that have no effect where there is no mTLS."""
    return _parts(_OF_KIND_WITH_MTLS.get(kind, ()), data, WITHOUT_EFFECT)


def warning(missing: MissingPart, root: str) -> Violation:
    """The same as something that is to be told of a document whose spec stands at `root`."""
    return Violation(missing.path or root, missing.reason, missing.hint)


def _parts(rows: tuple[MissingCapability, ...], data: Mapping[str, Any], words: str) -> Iterator[MissingPart]:
    for row in rows:
        for path, value in _at(data, "", row.field.split(".") if row.field else []):
            if (not row.field or row.asks(value)) and _is_beside(row.beside, path, data):
                part = row.field if row.part is None else row.part
                yield MissingPart(row.capability, path, _numbered(part, path), row.sentence, row.hint, words)


def _is_beside(field: str, path: str, data: Mapping[str, Any]) -> bool:
    """Whether a field is set in the same items of lists in which a path is; also if there is no such field."""
    return not field or any(
        value and where == _numbered(field, path) for where, value in _at(data, "", field.split("."))
    )


def _at(value: Any, path: str, steps: list[str]) -> Iterator[tuple[str, Any]]:
    """Every place of a field, with what stands there."""
    if not steps:
        yield path, value
        return
    name, inner_steps = steps[0].removesuffix("[]"), steps[1:]
    inner = value.get(name) if isinstance(value, Mapping) else None
    where = step(path, name)
    if not steps[0].endswith("[]"):
        yield from _at(inner, where, inner_steps) if inner is not None else ()
        return
    for index, item in enumerate(inner if isinstance(inner, list) else ()):
        yield from _at(item, step(where, index), inner_steps)


def _numbered(part: str, path: str) -> str:
    """The part with the indexes that the path has, in the same order."""
    indexes = iter(_INDEX.findall(path))
    return re.sub(r"\[\]", lambda _: next(indexes, "[]"), part)
