"""MeshRetry: what a proxy does when a request or a connection fails.

Of a TCP service:

    tcp                                      TcpProxy
    tcp.maxConnectAttempt                    TcpProxy.max_connect_attempts

Of an HTTP service (`http`) and of a gRPC service (`grpc`), in RouteAction.retry_policy:

    http, grpc                               RetryPolicy
    http.numRetries                          RetryPolicy.num_retries; 0: no policy at all
    http.perTryTimeout                       RetryPolicy.per_try_timeout
    http.backOff                             RetryPolicy.retry_back_off
    http.backOff.baseInterval                RetryBackOff.base_interval
    http.backOff.maxInterval                 RetryBackOff.max_interval
    http.rateLimitedBackOff                  RetryPolicy.rate_limited_retry_back_off
    http.rateLimitedBackOff.resetHeaders     RateLimitedRetryBackOff.reset_headers
    http.rateLimitedBackOff.resetHeaders[].name
    http.rateLimitedBackOff.resetHeaders[].format
    http.rateLimitedBackOff.maxInterval      RateLimitedRetryBackOff.max_interval
    http.retryOn                             RetryPolicy.retry_on; a status: retriable_status_codes;
                                             a method: retriable_request_headers
    http.retriableRequestHeaders             RetryPolicy.retriable_request_headers
    http.retriableRequestHeaders[].type      HeaderMatcher, with its
    http.retriableRequestHeaders[].name      name
    http.retriableRequestHeaders[].value     string_match
    http.retriableResponseHeaders            RetryPolicy.retriable_headers
    http.retriableResponseHeaders[].type     HeaderMatcher, with its
    http.retriableResponseHeaders[].name     name
    http.retriableResponseHeaders[].value    string_match
    http.hostSelection                       RetryPolicy.retry_host_predicate, and retry_priority
    http.hostSelection[].predicate           previous_hosts, omit_host_metadata, previous_priorities
    http.hostSelection[].tags                OmitHostMetadataConfig.metadata_match
    http.hostSelection[].updateFrequency     PreviousPrioritiesConfig.update_frequency
    http.hostSelectionMaxAttempts            RetryPolicy.host_selection_retry_max_attempts
    grpc.numRetries                          as for http
    grpc.perTryTimeout
    grpc.backOff
    grpc.backOff.baseInterval
    grpc.backOff.maxInterval
    grpc.rateLimitedBackOff
    grpc.rateLimitedBackOff.resetHeaders
    grpc.rateLimitedBackOff.resetHeaders[].name
    grpc.rateLimitedBackOff.resetHeaders[].format
    grpc.rateLimitedBackOff.maxInterval
    grpc.retryOn                             RetryPolicy.retry_on

Without a policy nothing is tried again. On a builtin gateway a row is as of a gRPC service if all of its backends are.
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from envoy.config.route.v3.route_components_pb2 import RetryPolicy
from envoy.extensions.retry.host.omit_host_metadata.v3.omit_host_metadata_config_pb2 import OmitHostMetadataConfig
from envoy.extensions.retry.host.previous_hosts.v3.previous_hosts_pb2 import PreviousHostsPredicate
from envoy.extensions.retry.priority.previous_priorities.v3.previous_priorities_config_pb2 import (
    PreviousPrioritiesConfig,
)

from cp.model.duration import Duration
from cp.model.numbers import Natural
from cp.model.violation import Violation, at
from cp.policies import HTTP_PROTOCOLS, LimitedTime, Policy, TimeLimit, UnsetField, in_spec
from cp.resources import deprecated
from cp.resources.checks import above_zero, absent, incomplete, must_be_set, not_negative, one_of
from cp.resources.complete import completed
from cp.resources.headers import HeaderMatch, header_match
from cp.resources.kinds import DocumentMeta, Kind, PolicyShape
from cp.resources.schema import Schema, Word, near
from cp.resources.spec import PolicySpec, SpecItem
from cp.resources.targets import GATEWAY, HTTP_ROUTE, SERVICES, TCP_ROUTE, AllowedTargets
from generators.build.routes import write_header
from generators.envoy.edit import pack, set_duration
from generators.proxy import Protocol, ValueMatch

if TYPE_CHECKING:
    from cp.policies import ServedCall, ServedRetries
    from generators.drafts import ListenerDraft, RouteDraft


class BackOff(Schema, frozen=True):
    base_interval: Duration | None = None
    max_interval: Duration | None = None


class ResetHeader(Schema, frozen=True):
    name: str = ""
    format: Literal["Seconds", "UnixTimestamp"] | None = None


class RateLimitedBackOff(Schema, frozen=True):
    reset_headers: list[ResetHeader] | None = None
    max_interval: Duration | None = None


class HostPredicate(Schema, frozen=True):
    predicate: str = ""
    tags: dict[str, str] | None = None
    update_frequency: Natural = 2


class TcpRetry(Schema, frozen=True):
    max_connect_attempt: Natural | None = None


class HttpRetry(Schema, frozen=True):
    num_retries: Natural | None = None
    per_try_timeout: Duration | None = None
    back_off: BackOff | None = None
    rate_limited_back_off: RateLimitedBackOff | None = None
    retry_on: list[Word] | None = None
    retriable_request_headers: list[HeaderMatch] | None = None
    retriable_response_headers: list[HeaderMatch] | None = None
    host_selection: list[HostPredicate] | None = None
    host_selection_max_attempts: Natural | None = None


class GrpcRetry(Schema, frozen=True):
    num_retries: Natural | None = None
    per_try_timeout: Duration | None = None
    back_off: BackOff | None = None
    rate_limited_back_off: RateLimitedBackOff | None = None
    retry_on: list[Word] | None = None


class Conf(Schema, frozen=True):
    tcp: TcpRetry | None = None
    http: HttpRetry | None = None
    grpc: GrpcRetry | None = None


class Spec(PolicySpec, frozen=True):
    to: list[SpecItem[Conf]] | None = None


TARGETS: Final = AllowedTargets(
    top_system=(GATEWAY, HTTP_ROUTE),
    to=("Mesh", *SERVICES, HTTP_ROUTE, TCP_ROUTE),
    to_gateway=("Mesh", "MeshExternalService", HTTP_ROUTE, TCP_ROUTE),
    http_route=("http", "grpc"),
    tcp_route=("tcp",),
)

SCHEMA_DEFAULTS: Final = {
    "to[].default.http.hostSelection[].updateFrequency": 2,
    "to[].default.http.retriableRequestHeaders[].type": "Exact",
    "to[].default.http.retriableResponseHeaders[].type": "Exact",
}

CONDITIONS: Final = (
    "5xx",
    "GatewayError",
    "Reset",
    "Retriable4xx",
    "ConnectFailure",
    "EnvoyRatelimited",
    "RefusedStream",
    "Http3PostConnectFailure",
)
METHODS: Final = ("Connect", "Delete", "Get", "Head", "Options", "Patch", "Post", "Put", "Trace")
GRPC_CONDITIONS: Final = ("Canceled", "DeadlineExceeded", "Internal", "ResourceExhausted", "Unavailable")

_HTTP_CONDITIONS: Final = (*CONDITIONS, *(f"HttpMethod{method}" for method in METHODS))
_STATUSES: Final = frozenset(str(status.value) for status in HTTPStatus)
_METHOD: Final = "HttpMethod"
_NO_RETRY: Final = "nothing is tried again"
_DEFAULT_BASE_INTERVAL: Final = Duration.parse("25ms")
_DEFAULT_HTTP_CONDITIONS: Final = "gateway-error,connect-failure,refused-stream"
_DEFAULT_GRPC_CONDITIONS: Final = (
    "cancelled,connect-failure,gateway-error,refused-stream,reset,resource-exhausted,unavailable"
)
_ENVOY_CONDITIONS: Final = MappingProxyType(
    {
        "5xx": "5xx",
        "GatewayError": "gateway-error",
        "Reset": "reset",
        "Retriable4xx": "retriable-4xx",
        "ConnectFailure": "connect-failure",
        "EnvoyRatelimited": "envoy-ratelimited",
        "RefusedStream": "refused-stream",
        "Http3PostConnectFailure": "http3-post-connect-failure",
        "Canceled": "cancelled",
        "DeadlineExceeded": "deadline-exceeded",
        "Internal": "internal",
        "ResourceExhausted": "resource-exhausted",
        "Unavailable": "unavailable",
    }
)
_CONDITIONS_IN_FIELDS: Final = frozenset({"retriable-headers", "retriable-status-codes"})
"""Envoy's conditions that only refer to other fields of the RetryPolicy."""

_GRPC: Final = frozenset({Protocol.GRPC})
_NOT_GRPC: Final = HTTP_PROTOCOLS - _GRPC
_PREDICATES: Final = ("OmitPreviousHosts", "OmitHostsWithTags", "OmitPreviousPriorities")


@in_spec
def validate(spec: Spec, meta: DocumentMeta) -> Iterator[Violation]:
    yield from TARGETS.violations(spec, meta)
    if not spec.to and spec.top.kind != "Dataplane":
        yield incomplete("to", "says nothing", "give it an item, for example for `kind: Mesh`")
    for path, _, conf in spec.confs("to"):
        yield from at(path, _conf(conf or Conf()))


def _conf(conf: Conf) -> Iterator[Violation]:
    if conf == Conf():
        yield absent("", "sets nothing", "set `http`, `grpc` or `tcp`")
    if conf.tcp is not None:
        yield from at("tcp", _tcp(conf.tcp))
    if conf.http is not None:
        yield from at("http", _http(conf.http))
    if conf.grpc is not None:
        yield from at("grpc", _grpc(conf.grpc))


def _tcp(tcp: TcpRetry) -> Iterator[Violation]:
    if tcp == TcpRetry():
        yield absent("", "sets nothing", "set `maxConnectAttempt`")
    yield from above_zero("maxConnectAttempt", tcp.max_connect_attempt, "1 means that nothing is tried again")


def _http(http: HttpRetry) -> Iterator[Violation]:
    if http == HttpRetry(host_selection_max_attempts=http.host_selection_max_attempts):
        yield absent("", "sets nothing that is retried", "set for example `numRetries`")
    yield from _back_offs(http)
    for index, condition in enumerate(http.retry_on or ()):
        yield from at(f"retryOn[{index}]", _http_condition(condition))
    for name, headers in (
        ("retriableRequestHeaders", http.retriable_request_headers),
        ("retriableResponseHeaders", http.retriable_response_headers),
    ):
        for index, header in enumerate(headers or ()):
            yield from at(f"{name}[{index}]", header_match(header))
    yield from at("hostSelection", _host_selection(http.host_selection or []))


def _http_condition(condition: str) -> Iterator[Violation]:
    if condition in _HTTP_CONDITIONS or condition in _STATUSES:
        return
    hint = near(condition, _HTTP_CONDITIONS)
    choices = f'one of {", ".join(CONDITIONS)}, HttpMethodGet and the other methods, or a status such as "503"'
    yield Violation("", f"`{condition}` is not a condition", hint or choices)


def _grpc(grpc: GrpcRetry) -> Iterator[Violation]:
    if grpc == GrpcRetry():
        yield absent("", "sets nothing", "set for example `numRetries`")
    yield from _back_offs(grpc)
    for index, condition in enumerate(grpc.retry_on or ()):
        yield from one_of(f"retryOn[{index}]", condition, GRPC_CONDITIONS)


def _back_offs(conf: HttpRetry | GrpcRetry) -> Iterator[Violation]:
    yield from not_negative("perTryTimeout", conf.per_try_timeout)
    if conf.back_off == BackOff():
        yield absent("backOff", "sets nothing", "set `baseInterval`, `maxInterval` or both")
    if conf.back_off is not None:
        yield from above_zero("backOff.baseInterval", conf.back_off.base_interval, "leave it out for 25ms")
        yield from above_zero("backOff.maxInterval", conf.back_off.max_interval)
        base, most = conf.back_off.base_interval, conf.back_off.max_interval
        if base is not None and most is not None and most < base:
            yield Violation("backOff.maxInterval", f"must not be below the `baseInterval` of {base}")
    if conf.rate_limited_back_off is not None:
        yield from at("rateLimitedBackOff", _rate_limited(conf.rate_limited_back_off))


def _rate_limited(back_off: RateLimitedBackOff) -> Iterator[Violation]:
    yield from above_zero("maxInterval", back_off.max_interval, "leave it out for 300s")
    if back_off.reset_headers is None:
        yield absent("resetHeaders", "must be set", "name the header that says when to try again")
    for index, header in enumerate(back_off.reset_headers or ()):
        yield from must_be_set(f"resetHeaders[{index}].name", header.name)
        if header.format is None:
            yield incomplete(f"resetHeaders[{index}].format", hint="Seconds or UnixTimestamp")


def _host_selection(predicates: list[HostPredicate]) -> Iterator[Violation]:
    priorities = False
    for index, predicate in enumerate(predicates):
        yield from one_of(f"[{index}].predicate", predicate.predicate, _PREDICATES)
        if predicate.predicate == "OmitHostsWithTags" and predicate.tags is None:
            yield absent(f"[{index}].tags", "must be set", "hosts with all of these tags are left out")
        if predicate.predicate == "OmitPreviousPriorities":
            if priorities:
                yield Violation(f"[{index}].predicate", "may stand here once only", "remove one of them")
            yield from above_zero(f"[{index}].updateFrequency", predicate.update_frequency, "leave it out for 2")
            priorities = True


def deprecations(spec: Spec, _meta: DocumentMeta) -> Iterator[Violation]:
    return deprecated.top_kind(spec)


class MeshRetry(Policy[Conf]):
    kind = Kind(
        name="MeshRetry",
        short="mr",
        plural="meshretries",
        schema=Spec,
        validate=validate,
        deprecations=deprecations,
        complete=completed(SCHEMA_DEFAULTS),
        policy=PolicyShape(to=True),
        customary=((r"^(spec\.to\[\d+\]\.default)(?=\.|$)", r"\1.conf"),),
    )
    order = 1400
    switches = MappingProxyType({"http.numRetries": 0, "grpc.numRetries": 0})
    conf = Conf
    targets = TARGETS
    section_protocols = MappingProxyType({"http": _NOT_GRPC, "grpc": _GRPC, "tcp": frozenset({Protocol.TCP})})
    is_hidden_by_routes = True
    time_limits = (
        TimeLimit(LimitedTime.TRY, "http.perTryTimeout", _NOT_GRPC),
        TimeLimit(LimitedTime.TRY, "grpc.perTryTimeout", _GRPC),
    )
    is_for_grpc_clients = True

    def listener(self, conf: Conf, draft: ListenerDraft) -> None:
        attempts = (conf.tcp or TcpRetry()).max_connect_attempt
        if draft.tcp is not None and attempts is not None:
            draft.tcp.max_connect_attempts.value = attempts

    def route(self, conf: Conf, draft: RouteDraft) -> None:
        section = conf.grpc if draft.protocol is Protocol.GRPC else conf.http
        if draft.action is not None and section is not None and section.num_retries != 0:
            _write(draft.action.retry_policy, section)

    def unset_fields(self, call: ServedCall, protocol: Protocol) -> Iterator[UnsetField]:
        section = "grpc" if protocol is Protocol.GRPC else "http"
        if not protocol.is_http:
            yield UnsetField("tcp.maxConnectAttempt", call.connect_attempts, _NO_RETRY, "listener")
        elif call.retry is None:
            yield UnsetField(f"{section}.numRetries", 0, _NO_RETRY, "route")
        else:
            yield from _unset_fields(section, call.retry)

    def value_note(self, path: str, value: Any, call: ServedCall) -> str:
        """Where `retryOn` has methods alone, requests with them are retried on the default conditions."""
        if not path.endswith(".retryOn") or call.retry is None:
            return ""
        if not all(str(condition).startswith(_METHOD) for condition in value):
            return ""
        default = ", ".join(_conditions(call.retry))
        return f"for these methods, on the default {default}" if value else f"on the default {default}"


def _unset_fields(section: str, retry: ServedRetries) -> Iterator[UnsetField]:
    conditions = _conditions(retry)
    yield UnsetField(f"{section}.numRetries", retry.retries, served_in="route")
    yield UnsetField(f"{section}.perTryTimeout", None, "a try may take as long as the request", "route")
    if conditions:
        yield UnsetField(f"{section}.retryOn", conditions, served_in="route", is_built_in=True)
    else:
        yield UnsetField(f"{section}.retryOn", None, "for the headers of a response alone", "route")
    yield UnsetField(f"{section}.backOff.baseInterval", str(retry.base_interval), served_in="route")
    yield UnsetField(f"{section}.backOff.maxInterval", str(retry.max_interval), served_in="route")


def _conditions(retry: ServedRetries) -> list[str]:
    return [condition for condition in retry.on if condition not in _CONDITIONS_IN_FIELDS]


def _write(message: RetryPolicy, section: HttpRetry | GrpcRetry) -> None:
    if section.num_retries is not None:
        message.num_retries.value = section.num_retries
    set_duration(message.per_try_timeout, section.per_try_timeout)
    if section.back_off is not None:
        _write_back_off(message.retry_back_off, section.back_off)
    if section.rate_limited_back_off is not None:
        _write_rate_limited(message.rate_limited_retry_back_off, section.rate_limited_back_off)
    if isinstance(section, HttpRetry):
        _write_http(message, section)
    else:
        conditions = [_ENVOY_CONDITIONS[condition] for condition in section.retry_on or ()]
        message.retry_on = ",".join(conditions) or _DEFAULT_GRPC_CONDITIONS


def _write_back_off(message: RetryPolicy.RetryBackOff, back_off: BackOff) -> None:
    """Envoy requires a base interval, and NACKs a maximum that is smaller."""
    base = back_off.base_interval or min(_DEFAULT_BASE_INTERVAL, back_off.max_interval or _DEFAULT_BASE_INTERVAL)
    set_duration(message.base_interval, base)
    if back_off.max_interval is not None:
        set_duration(message.max_interval, max(base, back_off.max_interval))


def _write_rate_limited(message: RetryPolicy.RateLimitedRetryBackOff, back_off: RateLimitedBackOff) -> None:
    for header in back_off.reset_headers or ():
        kind = RetryPolicy.SECONDS if header.format == "Seconds" else RetryPolicy.UNIX_TIMESTAMP
        message.reset_headers.add(name=header.name, format=kind)
    set_duration(message.max_interval, back_off.max_interval)


def _write_http(message: RetryPolicy, http: HttpRetry) -> None:
    statuses = [condition for condition in http.retry_on or () if condition.isdigit()]
    methods = [condition.removeprefix(_METHOD) for condition in http.retry_on or () if condition.startswith(_METHOD)]
    conditions = [_ENVOY_CONDITIONS[condition] for condition in http.retry_on or () if condition in _ENVOY_CONDITIONS]
    if statuses:
        conditions.append("retriable-status-codes")
        message.retriable_status_codes.extend(map(int, statuses))
    if http.retriable_response_headers:
        conditions.append("retriable-headers")
    message.retry_on = ",".join(conditions) or _DEFAULT_HTTP_CONDITIONS
    for method in methods:
        write_header(message.retriable_request_headers.add(), ValueMatch(":method", value=method.upper()))
    for header in http.retriable_request_headers or ():
        write_header(message.retriable_request_headers.add(), _value_match(header))
    for header in http.retriable_response_headers or ():
        write_header(message.retriable_headers.add(), _value_match(header))
    if http.host_selection_max_attempts is not None:
        message.host_selection_retry_max_attempts = http.host_selection_max_attempts
    for predicate in http.host_selection or ():
        _write_predicate(message, predicate)


def _value_match(header: HeaderMatch) -> ValueMatch:
    return ValueMatch(header.name, header.type or "Exact", header.value or "")


def _write_predicate(message: RetryPolicy, predicate: HostPredicate) -> None:
    if predicate.predicate == "OmitPreviousPriorities":
        priorities = PreviousPrioritiesConfig(update_frequency=predicate.update_frequency)
        message.retry_priority.name = "envoy.retry_priorities.previous_priorities"
        message.retry_priority.typed_config.CopyFrom(pack(priorities))
    elif predicate.predicate == "OmitHostsWithTags":
        config = OmitHostMetadataConfig()
        for name, value in sorted((predicate.tags or {}).items()):
            config.metadata_match.filter_metadata["envoy.lb"].fields[name].string_value = value
        host_predicate = message.retry_host_predicate.add(name="envoy.retry_host_predicates.omit_host_metadata")
        host_predicate.typed_config.CopyFrom(pack(config))
    else:
        host_predicate = message.retry_host_predicate.add(name="envoy.retry_host_predicates.previous_hosts")
        host_predicate.typed_config.CopyFrom(pack(PreviousHostsPredicate()))


POLICY = MeshRetry()
