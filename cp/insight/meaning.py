"""In which protocols the sections of confs have a meaning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from generators.proxy import Protocol

_ANY_HTTP: Final = frozenset({Protocol.HTTP, Protocol.HTTP2, Protocol.GRPC})
_NOT_GRPC: Final = frozenset({Protocol.HTTP, Protocol.HTTP2})
_GRPC: Final = frozenset({Protocol.GRPC})
_TCP: Final = frozenset({Protocol.TCP})

MEANS: Final[Mapping[str, Mapping[str, frozenset[Protocol]]]] = MappingProxyType(
    {
        "MeshTimeout": {"http": _ANY_HTTP},
        "MeshRetry": {"http": _NOT_GRPC, "grpc": _GRPC, "tcp": _TCP},
        "MeshHealthCheck": {"http": _NOT_GRPC, "grpc": _GRPC},
        "MeshFaultInjection": {"http": _ANY_HTTP},
        "MeshRateLimit": {"local.http": _ANY_HTTP, "local.tcp": _TCP},
    }
)
"""The sections of confs that are for some protocols only. A test compares them with what is generated."""

_BESIDE: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {"MeshHealthCheck": frozenset({"tcp", "healthyPanicThreshold", "failTrafficOnPanic"})}
)
"""Where most fields say how something else is done: those that have a meaning of their own, whatever is spoken."""


def section_of(kind: str, path: str) -> str | None:
    """The section in which a field stands, where it is for some protocols only."""
    names = MEANS.get(kind, {})
    return next((name for name in names if path == name or path.startswith((f"{name}.", f"{name}["))), None)


def acts_alone(kind: str, path: str) -> bool:
    """Whether a field has a meaning without any of the sections: how often to check has none without a check."""
    return kind not in _BESIDE or path.partition(".")[0] in _BESIDE[kind]


def has_meaning(kind: str, path: str, protocol: Protocol, beside: Iterable[str]) -> bool:
    """Whether a field has a meaning where a protocol is spoken, beside the other fields of a conf."""
    section = section_of(kind, path)
    if section is not None:
        return protocol in MEANS[kind][section]
    return acts_alone(kind, path) or any(_carries(kind, other, protocol) for other in beside)


def _carries(kind: str, path: str, protocol: Protocol) -> bool:
    """Whether fields that have no meaning of their own have one beside this field."""
    section = section_of(kind, path)
    return path.partition(".")[0] == "tcp" if section is None else protocol in MEANS[kind][section]
