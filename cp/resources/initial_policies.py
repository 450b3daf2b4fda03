"""The policies that a new Mesh starts with (docs/guides/default-policies.md). They are stored with it, once.

They are Kuma's, name for name. `kuma.io/origin: global` puts them, among policies for the same proxies, below all that
somebody wrote; the order of policies needs no other rule for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

from cp.model.document import Document
from cp.model.names import Key

Engine: TypeAlias = Literal["TargetRef", "Legacy"]

_EVERYTHING: Final = "*"
_LABELS: Final = {"kuma.io/origin": "global"}


def initial_policies(document: Document, engine: Engine) -> Iterator[Document]:
    """The policies that are stored together with a new Mesh; none for a document of another type."""
    if document.key.type != "Mesh" or engine_of(document, engine) != "TargetRef":
        return
    skipped = document.data.get("skipCreatingInitialPolicies") or ()
    for policy in _of_mesh(document.key.name):
        if _EVERYTHING not in skipped and policy.key.type not in skipped:
            yield policy


def is_initial(document: Document) -> bool:
    """Whether a document is a first policy of its Mesh that nobody has changed since.

    Later changes of the Mesh do not matter, because its first policies are stored only once.
    """
    return document.key.type in _KINDS and document in _of_mesh(document.key.mesh)


def _of_mesh(mesh: str) -> Iterator[Document]:
    for kind, prefix, spec in _POLICIES:
        name = f"{prefix}-all-{mesh}"
        yield Document(
            Key(kind, mesh, name), {"type": kind, "mesh": mesh, "name": name, "labels": _LABELS, "spec": spec}
        )


def engine_of(mesh: Document, engine: Engine) -> Engine:
    """The policy engine of a Mesh: the one that it names, or that of the settings."""
    named_engine = mesh.data.get("policyEngine")
    return engine if named_engine in {None, "Undefined"} else named_engine


def _to_mesh(default: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [{"targetRef": {"kind": "Mesh"}, "default": default}]


def _of(proxies: str) -> Mapping[str, Any]:
    return {"kind": "Mesh", "proxyTypes": [proxies]}


_BACK_OFF: Final = {"baseInterval": "25ms", "maxInterval": "250ms"}
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
            "to": _to_mesh(
                {
                    "connectionLimits": {
                        "maxConnections": 1024,
                        "maxPendingRequests": 1024,
                        "maxRequests": 1024,
                        "maxRetries": 3,
                    }
                }
            ),
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

_KINDS: Final = frozenset(kind for kind, _, _ in _POLICIES)
