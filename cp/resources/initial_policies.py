"""The policies that a new Mesh starts with (docs/guides/default-policies.md). They are stored with it, once.

They are Kuma's, name for name. Under TargetRef `kuma.io/origin: global` puts them, among policies for the same proxies,
below all that somebody wrote; the order of policies needs no other rule for them. Under Legacy they are the oldest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from cp.model.document import Document
from cp.model.names import Key
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.engine import Engine, engine_of

_EVERYTHING: Final = "*"
_LABELS: Final = {"kuma.io/origin": "global"}


def initial_policies(document: Document) -> Iterator[Document]:
    """The policies that are stored together with a new Mesh; none for a document of another type."""
    if document.key.type != "Mesh":
        return
    skipped = document.data.get("skipCreatingInitialPolicies") or ()
    for policy in _OF_ENGINES[engine_of(document.data)](document.key.name):
        if _EVERYTHING not in skipped and policy.key.type not in skipped:
            yield policy


def is_initial(document: Document) -> bool:
    """Whether a document is a first policy of its Mesh, of either engine, that nobody has changed since.

    Later changes of the Mesh do not matter, because its first policies are stored only once.
    """
    key = document.key
    return key.type in _KINDS and any(document in of_engine(key.mesh) for of_engine in _OF_ENGINES.values())


def _of_target_ref(mesh: str) -> Iterator[Document]:
    for kind, prefix, spec in _POLICIES:
        name = f"{prefix}-all-{mesh}"
        yield Document(
            Key(kind, mesh, name), {"type": kind, "mesh": mesh, "name": name, "labels": _LABELS, "spec": spec}
        )


def _of_legacy(mesh: str) -> Iterator[Document]:
    for kind, prefix, conf in _LEGACY_POLICIES:
        name = f"{prefix}-all-{mesh}"
        fields = {"sources": _ANY, "destinations": _ANY, **({"conf": conf} if conf else {})}
        yield Document(Key(kind, mesh, name), {"type": kind, "mesh": mesh, "name": name, **fields})


def _to_mesh(default: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [{"targetRef": {"kind": "Mesh"}, "default": default}]


def _of(proxies: str) -> Mapping[str, Any]:
    return {"kind": "Mesh", "proxyTypes": [proxies]}


_BACK_OFF: Final = {"baseInterval": "25ms", "maxInterval": "250ms"}
_LIMITS: Final = {"maxConnections": 1024, "maxPendingRequests": 1024, "maxRequests": 1024, "maxRetries": 3}
_RETRY: Final = {"numRetries": 5, "perTryTimeout": "16s", "backOff": _BACK_OFF}

_POLICIES: Final[tuple[tuple[str, str, Mapping[str, Any]], ...]] = (
    (
        "MeshTimeout",
        "mesh-timeout",
        {
            "targetRef": _of("Sidecar"),
            "to": _to_mesh(
                {
                    "connectionTimeout": "5s",
                    "idleTimeout": "1h",
                    "http": {"requestTimeout": "15s", "streamIdleTimeout": "30m"},
                }
            ),
            "from": _to_mesh(
                {
                    "connectionTimeout": "10s",
                    "idleTimeout": "2h",
                    "http": {"requestTimeout": "0s", "streamIdleTimeout": "1h", "maxStreamDuration": "0s"},
                }
            ),
        },
    ),
    (
        "MeshTimeout",
        "mesh-gateways-timeout",
        {
            "targetRef": _of("Gateway"),
            "to": _to_mesh({"idleTimeout": "1h", "http": {"streamIdleTimeout": "5s"}}),
            "from": _to_mesh(
                {"idleTimeout": "5m", "http": {"streamIdleTimeout": "5s", "requestHeadersTimeout": "500ms"}}
            ),
        },
    ),
    (
        "MeshCircuitBreaker",
        "mesh-circuit-breaker",
        {
            "targetRef": {"kind": "Mesh"},
            "to": _to_mesh({"connectionLimits": _LIMITS}),
        },
    ),
    (
        "MeshRetry",
        "mesh-retry",
        {
            "targetRef": {"kind": "Mesh"},
            "to": _to_mesh({"tcp": {"maxConnectAttempt": 5}, "http": _RETRY, "grpc": _RETRY}),
        },
    ),
)

_ANY_SERVICE: Final = {SERVICE_TAG: "*"}
_ANY: Final = [{"match": _ANY_SERVICE}]

_LEGACY_POLICIES: Final[tuple[tuple[str, str, Mapping[str, Any]], ...]] = (
    ("TrafficPermission", "allow", {}),
    ("TrafficRoute", "route", {"loadBalancer": {"roundRobin": {}}, "destination": _ANY_SERVICE}),
    (
        "Timeout",
        "timeout",
        {
            "connectTimeout": "5s",
            "tcp": {"idleTimeout": "1h"},
            "http": {"requestTimeout": "15s", "idleTimeout": "1h", "streamIdleTimeout": "30m"},
        },
    ),
    ("CircuitBreaker", "circuit-breaker", {"thresholds": _LIMITS}),
    ("Retry", "retry", {"tcp": {"maxConnectAttempts": 5}, "http": _RETRY, "grpc": _RETRY}),
)

_OF_ENGINES: Final[Mapping[Engine, Callable[[str], Iterator[Document]]]] = {
    "TargetRef": _of_target_ref,
    "Legacy": _of_legacy,
}
_KINDS: Final = frozenset(kind for kind, _, _ in (*_POLICIES, *_LEGACY_POLICIES))
