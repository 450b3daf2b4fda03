"""RateLimit: how many requests an inbound takes from some clients, and what it answers to the others.

http                              MeshRateLimit local.http
http.requests                     requestRate.num
http.interval                     requestRate.interval
http.onRateLimit                  onRateLimit
http.onRateLimit.status           onRateLimit.status
http.onRateLimit.headers          onRateLimit.headers, in `set`, or in `add` with `append`
http.onRateLimit.headers[].key
http.onRateLimit.headers[].value
http.onRateLimit.headers[].append
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from cp.model.duration import Duration
from cp.model.numbers import Natural
from cp.model.violation import Violation, at
from cp.resources.checks import above_zero, absent, must_be_set, status_of_answer
from cp.resources.headers import changed_header, most_in_answer
from cp.resources.kinds import DocumentMeta, Kind, LegacyConf, LegacyShape, LegacySide
from cp.resources.legacy.nulls import without_nulls
from cp.resources.legacy.placed_conf import conf_of_fields, value_at
from cp.resources.legacy.selectors import ConnectionPolicy, of_called
from cp.resources.schema import Schema, SensitiveText


class AnswerHeader(Schema, frozen=True):
    key: str = ""
    value: SensitiveText = ""
    append: bool | None = None


class LegacyOnRateLimit(Schema, frozen=True):
    status: Natural | None = None
    headers: list[AnswerHeader] | None = None


class HttpLimit(Schema, frozen=True):
    requests: Natural | None = None
    interval: Duration | None = None
    on_rate_limit: LegacyOnRateLimit | None = None


class RateLimitConf(Schema, frozen=True):
    http: HttpLimit | None = None


class RateLimit(ConnectionPolicy, frozen=True):
    conf: RateLimitConf | None = None


_SHORTEST_INTERVAL: Final = Duration.parse("50ms")


def validate(limit: RateLimit, _meta: DocumentMeta) -> Iterator[Violation]:
    yield from of_called(limit)
    if limit.conf is None:
        yield absent("conf", "must be set", "give it `http`")
    elif limit.conf.http is not None:
        yield from at("conf.http", _http(limit.conf.http))


def _http(http: HttpLimit) -> Iterator[Violation]:
    if http.requests is None:
        yield absent("requests", "must be set", "how many there may be in the `interval`")
    yield from above_zero("requests", http.requests, "to let nothing through, permit it to nobody: TrafficPermission")
    if http.interval is None:
        yield absent("interval", "must be set", "for example `1s`")
    elif http.interval <= _SHORTEST_INTERVAL:
        yield Violation("interval", f"must be longer than {_SHORTEST_INTERVAL}, not `{http.interval}`")
    if http.on_rate_limit is not None:
        yield from status_of_answer("onRateLimit.status", http.on_rate_limit.status)
        yield from at("onRateLimit.headers", _headers(http.on_rate_limit.headers or []))


def _headers(headers: list[AnswerHeader]) -> Iterator[Violation]:
    for index, header in enumerate(headers):
        yield from changed_header(f"[{index}].key", header.key, f"[{index}].value", header.value)
        yield from must_be_set(f"[{index}].value", header.value)
    yield from most_in_answer("", len(headers))


_FIELDS: Final = MappingProxyType(
    {
        "local.http.requestRate.num": "conf.http.requests",
        "local.http.requestRate.interval": "conf.http.interval",
        "local.http.onRateLimit.status": "conf.http.onRateLimit.status",
    }
)
_HEADERS: Final = "conf.http.onRateLimit.headers"


def confs(data: Mapping[str, Any], _mesh: Mapping[str, Any], _protocol: str) -> Iterator[LegacyConf]:
    result = conf_of_fields(data, _FIELDS)
    changes: dict[str, list[dict[str, str]]] = {}
    for header in value_at(data, _HEADERS) or ():
        change = {"name": header["key"].lower(), "value": header["value"]}
        changes.setdefault("add" if header.get("append") else "set", []).append(change)
    result.put("local.http.onRateLimit.headers", changes or None, _HEADERS)
    yield LegacyConf("MeshRateLimit", result.conf, result.places)


RATE_LIMIT: Final = Kind(
    "RateLimit",
    "ratelimit",
    "rate-limits",
    RateLimit,
    validate,
    complete=without_nulls,
    legacy=LegacyShape(LegacySide.INBOUND, confs, holds_alone=False),
)
