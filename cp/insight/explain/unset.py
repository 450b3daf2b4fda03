"""What holds for the fields that nobody sets, not even a default of ours: read from what Envoy is served."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from cp.insight.explain.model import BUILT_IN, ENVOY, LISTENER, ROUTE, FieldValue, ValueOrigin
from cp.insight.simulate import ForwardedCall, RetryRule
from generators.proxy import Protocol

_NO_LIMIT: Final = ("http.requestHeadersTimeout", "http.maxStreamDuration", "http.maxConnectionDuration")

_METHOD: Final = "HttpMethod"
_BY_FIELDS: Final = frozenset({"retriable-headers", "retriable-status-codes"})
"""Conditions of Envoy's that only point to other fields."""


def unset(known: Iterable[FieldValue], forward: ForwardedCall | None, protocol: Protocol) -> Iterator[FieldValue]:
    """For timeouts and retries, the fields of which everybody asks."""
    there = {(one.policy, one.path) for one in known}
    if forward is None:
        return
    found = _http(forward, protocol) if protocol.is_http else _tcp(forward)
    yield from (one for one in found if (one.policy, one.path) not in there)


def with_conditions(value: FieldValue, forward: ForwardedCall | None) -> FieldValue:
    """Where only methods are named, those are retried on the conditions that hold by default."""
    if not value.path.endswith(".retryOn") or forward is None or forward.retry is None:
        return value
    if not all(str(one).startswith(_METHOD) for one in value.winner.value):
        return value
    return replace(value, note=f"for these methods, on the default {', '.join(_conditions(forward.retry))}")


def _conditions(retry: RetryRule) -> list[str]:
    return [one for one in retry.on if one not in _BY_FIELDS]


def _http(forward: ForwardedCall, protocol: Protocol) -> Iterator[FieldValue]:
    for path in _NO_LIMIT:
        yield FieldValue("MeshTimeout", path, ValueOrigin(None, ENVOY), note="no limit")
    section = "grpc" if protocol is Protocol.GRPC else "http"
    if forward.retry is None:
        yield FieldValue(
            "MeshRetry", f"{section}.numRetries", ValueOrigin(0, ENVOY), served_in=ROUTE, note="nothing is tried again"
        )
    else:
        yield from _retry(section, forward.retry)


def _retry(section: str, retry: RetryRule) -> Iterator[FieldValue]:
    def value(path: str, said: Any, level: str = ENVOY, note: str = "") -> FieldValue:
        return FieldValue("MeshRetry", f"{section}.{path}", ValueOrigin(said, level), served_in=ROUTE, note=note)

    yield value("numRetries", retry.retries)
    yield value("perTryTimeout", None, note="a try may take as long as the request")
    conditions = _conditions(retry)
    if conditions:
        yield value("retryOn", conditions, BUILT_IN)
    else:
        yield value("retryOn", None, note="for the headers of a response alone")
    yield value("backOff.baseInterval", str(retry.base_interval))
    yield value("backOff.maxInterval", str(retry.max_interval))


def _tcp(forward: ForwardedCall) -> Iterator[FieldValue]:
    attempts = ValueOrigin(forward.connect_attempts, ENVOY)
    yield FieldValue("MeshRetry", "tcp.maxConnectAttempt", attempts, served_in=LISTENER, note="nothing is tried again")
