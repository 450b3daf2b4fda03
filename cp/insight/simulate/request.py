"""A call as route tables see it, after Envoy's HTTP connection manager has normalised and sanitised it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cp.insight.simulate.paths import (
    InvalidRequest,
    RedirectedPath,
    normalized_target,
    split,
    unescaped,
    with_merged_slashes,
)

METHODS: Final = frozenset(
    {
        *("ACL", "BIND", "CHECKOUT", "CONNECT", "COPY", "DELETE", "GET", "HEAD", "LINK", "LOCK", "MERGE"),
        *("MKACTIVITY", "MKCALENDAR", "MKCOL", "MOVE", "MSEARCH", "NOTIFY", "OPTIONS", "PATCH", "POST"),
        *("PROPFIND", "PROPPATCH", "PURGE", "PUT", "REBIND", "REPORT", "SEARCH", "SOURCE", "SUBSCRIBE"),
        *("TRACE", "UNBIND", "UNLINK", "UNLOCK", "UNSUBSCRIBE"),
    }
)
"""The methods that Envoy accepts over HTTP/1.1. It answers any other one with 400."""

_OF_A_CONNECTION: Final = frozenset({"connection", "keep-alive", "proxy-connection", "upgrade"})
_OF_ENVOY: Final = frozenset(
    {
        *("x-envoy-expected-rq-timeout-ms", "x-envoy-force-trace", "x-envoy-hedge-on-per-try-timeout"),
        *("x-envoy-internal", "x-envoy-ip-tags", "x-envoy-max-retries", "x-envoy-retriable-header-names"),
        *("x-envoy-retriable-status-codes", "x-envoy-retry-grpc-on", "x-envoy-retry-on"),
        *("x-envoy-upstream-alt-stat-name", "x-envoy-upstream-rq-per-try-timeout-ms"),
        *("x-envoy-upstream-rq-timeout-ms", "x-envoy-upstream-stream-duration-ms", "x-forwarded-client-cert"),
    }
)
"""Headers that Envoy removes from requests of workloads before it tries routes, because only Envoys may set them.

https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_conn_man/header_sanitizing
"""

_ONE_VALUE: Final = frozenset(
    {
        *(":authority", "accept", "accept-encoding", "access-control-request-headers"),
        *("access-control-request-method", "access-control-request-private-network", "authorization"),
        *("cache-control", "content-encoding", "content-type", "expect", "grpc-accept-encoding"),
        *("grpc-timeout", "if-match", "if-modified-since", "if-none-match", "origin", "pragma", "proxy-status"),
        *("referer", "te", "user-agent", "via", "x-client-trace-id", "x-envoy-attempt-count"),
        *("x-envoy-decorator-operation", "x-envoy-downstream-service-cluster"),
        *("x-envoy-downstream-service-node", "x-envoy-external-address", "x-envoy-is-timeout-retry"),
        *("x-envoy-original-host", "x-envoy-original-path", "x-forwarded-for", "x-forwarded-host"),
        *("x-forwarded-port", "x-forwarded-proto", "x-request-id"),
    }
)
"""Headers of which Envoy keeps one value: it joins several with commas."""

UNKNOWN: Final = "00000000-0000-4000-8000-000000000000"
"""Stands for what only Envoy knows: the random id of a request without one, or the address of its client."""

_MADE_AT_THE_EDGE: Final = ("x-forwarded-for", "x-envoy-external-address")
_REMOVED_AT_THE_EDGE: Final = frozenset(
    {
        *("x-envoy-decorator-operation", "x-envoy-downstream-service-cluster", "x-envoy-downstream-service-node"),
        "x-forwarded-proto",
        *_MADE_AT_THE_EDGE,
    }
)
"""Headers that no client from outside may set; the last three are then made by Envoy."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request, or one connection, as a client sends it: a workload to its proxy, or anybody to a gateway."""

    address: str
    port: int
    method: str = "GET"
    path: str = "/"
    """With the query."""

    host: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    client_uris: tuple[str, ...] = ()
    """The URIs of the caller's certificate; none in plain text."""

    server_name: str | None = None
    """The name that the client asks for in TLS (SNI), empty for none; None: it speaks no TLS."""

    @property
    def is_over_tls(self) -> bool:
        return self.server_name is not None


@dataclass(frozen=True, slots=True)
class PathReading:
    """How a listener reads paths, beyond `normalize_path`."""

    merges_slashes: bool = False
    redirects_escaped_slashes: bool = False


@dataclass(frozen=True, slots=True)
class ClientRules:
    """How a listener reads the requests of its clients."""

    paths: PathReading = PathReading()
    is_edge: bool = False
    """Whether clients may be anybody, so that nothing is believed of what they say about themselves."""

    rejects_underscores: bool = False
    """Whether a header with `_` in its name is answered with 400."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as routes match it."""

    headers: Mapping[str, tuple[str, ...]]
    """The values of each header by its name in lower case, HTTP/2's pseudo-headers such as `:path` included."""

    def values(self, name: str) -> tuple[str, ...]:
        name = name.lower()
        return self.headers.get(":authority" if name == "host" else name, ())

    @property
    def target(self) -> str:
        """The path with its query; empty for CONNECT, which has none."""
        return "".join(self.values(":path"))

    @property
    def path(self) -> str:
        return split(self.target)[0]

    @property
    def query(self) -> str:
        """With its question mark, if there is one."""
        return split(self.target)[1]

    @property
    def authority(self) -> str:
        return "".join(self.values(":authority"))

    @property
    def scheme(self) -> str:
        return "".join(self.values(":scheme"))


def request_of(call: Call, rules: ClientRules = ClientRules()) -> Request:  # it is frozen
    """The request that routes see for a call.

    Raises `InvalidRequest` if Envoy answers it with 400, and `RedirectedPath` if it asks for another path.
    """
    if call.method not in METHODS:
        raise InvalidRequest(f"`{call.method}` is no method of HTTP")
    _check_names(call, rules)
    path = () if call.method == "CONNECT" else ((":path", _target(call.path, rules.paths)),)
    headers: dict[str, tuple[str, ...]] = {}
    for name, value in ((":method", call.method), *path, (":authority", call.host), *_request_headers(call.headers)):
        values = (*headers.get(name, ()), value)
        headers[name] = (",".join(filter(None, values)),) if name in _ONE_VALUE else values
    _tidy_te(headers)
    if rules.is_edge:
        headers = {name: values for name, values in headers.items() if name not in _REMOVED_AT_THE_EDGE}
        headers |= dict.fromkeys(_MADE_AT_THE_EDGE, (UNKNOWN,))
    headers.setdefault("x-forwarded-proto", ("https" if call.is_over_tls else "http",))
    headers.setdefault("x-request-id", (UNKNOWN,))
    scheme = headers["x-forwarded-proto"][0].lower()
    return Request({**headers, ":scheme": (scheme if scheme in {"http", "https"} else "http",)})


def _check_names(call: Call, rules: ClientRules) -> None:
    name = next((name for name, _ in call.headers if "_" in name and rules.rejects_underscores), None)
    if name is not None:
        raise InvalidRequest(f"the header `{name}` has an underscore in its name")


def _target(path: str, reading: PathReading) -> str:
    """The path with its query. Escaped slashes are looked for in what was sent, and doubled ones in what comes out."""
    sent = unescaped(path) if reading.redirects_escaped_slashes else path
    normalized = normalized_target(sent)
    merged = with_merged_slashes(normalized) if reading.merges_slashes else normalized
    if sent != path:
        raise RedirectedPath(merged)
    return merged


def _request_headers(headers: tuple[tuple[str, str], ...]) -> Iterator[tuple[str, str]]:
    """The headers that are left after Envoy removed its own and those of the connection (RFC 9110, section 7.6.1)."""
    nominated = {
        token.strip().lower() for name, value in headers if name.lower() == "connection" for token in value.split(",")
    }
    for written, value in headers:
        name = ":authority" if written.lower() == "host" else written.lower()
        if name not in _OF_A_CONNECTION | _OF_ENVOY | nominated - {"te"}:
            yield name, value.strip(" \t")


def _tidy_te(headers: dict[str, tuple[str, ...]]) -> None:
    """Keep nothing of `te` but `trailers` (RFC 9110, section 10.1.4), as Envoy does."""
    codings = "".join(headers.get("te", ()))
    if "trailers" in [coding.strip() for coding in codings.split(",")]:
        headers["te"] = ("trailers",)
    elif codings:
        del headers["te"]
