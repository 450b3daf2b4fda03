"""MeshGatewayRoute: where a builtin gateway sends what comes in at listeners with some tags.

selectors                               the listeners: by their tags, over those of the gateway and of its proxy
conf.tcp.rules                          MeshTCPRoute, of which the first rule counts:
conf.tcp.rules[].backends               backendRefs
conf.http.hostnames                     MeshHTTPRoute hostnames
conf.http.rules                         rules
conf.http.rules[].matches               matches
conf.http.rules[].matches[].path        path: EXACT, which is the default, PREFIX, REGEX
conf.http.rules[].matches[].method      method
conf.http.rules[].matches[].headers     headers: EXACT, which is the default, REGEX, ABSENT, PRESENT
conf.http.rules[].matches[].queryParameters    queryParams: EXACT, which is the default, REGEX
conf.http.rules[].filters               filters: requestHeader, responseHeader, mirror, redirect, rewrite
conf.http.rules[].backends              backendRefs, by tags
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from cp.model.hosts import ANY_HOST
from cp.model.numbers import Integer
from cp.model.violation import Violation, at
from cp.resources.checks import absent, is_domain, must_be_set, one_of, port, printable, regex_of_route, within
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.headers import header_name
from cp.resources.kinds import DocumentMeta, Kind, LegacyConf
from cp.resources.legacy.nulls import without_nulls
from cp.resources.legacy.selectors import Selector, selectors
from cp.resources.limits import PARTS_OF_ROUTE, ROWS_OF_ROUTE, parts_of, rows_of
from cp.resources.schema import Number, Schema, SensitiveText
from cp.resources.targets import tag

_Data: TypeAlias = Mapping[str, Any]


class GatewayBackend(Schema, frozen=True):
    weight: Integer | None = None
    destination: dict[str, str] | None = None


class GatewayTcpRule(Schema, frozen=True):
    backends: list[GatewayBackend] | None = None


class GatewayTcpRoute(Schema, frozen=True):
    rules: list[GatewayTcpRule] | None = None


class GatewayPath(Schema, frozen=True):
    match: Literal["EXACT", "PREFIX", "REGEX"] | None = None
    value: str = ""


class GatewayHeader(Schema, frozen=True):
    match: Literal["EXACT", "REGEX", "ABSENT", "PRESENT"] | None = None
    name: str = ""
    value: SensitiveText = ""


class GatewayQuery(Schema, frozen=True):
    match: Literal["EXACT", "REGEX"] | None = None
    name: str = ""
    value: SensitiveText = ""


class GatewayMatch(Schema, frozen=True):
    path: GatewayPath | None = None
    method: Literal["NONE", "CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"] | None = (
        None
    )
    headers: list[GatewayHeader] | None = None
    query_parameters: list[GatewayQuery] | None = None


class HeaderPair(Schema, frozen=True):
    name: str = ""
    value: SensitiveText = ""


class HeaderFilter(Schema, frozen=True):
    set: list[HeaderPair] | None = None
    add: list[HeaderPair] | None = None
    remove: list[str] | None = None


class GatewayMirror(Schema, frozen=True):
    backend: GatewayBackend | None = None
    percentage: Number | None = None


class GatewayRewrite(Schema, frozen=True):
    replace_full: SensitiveText | None = None
    replace_prefix_match: SensitiveText | None = None
    host_to_backend_hostname: bool | None = None


class GatewayRedirect(Schema, frozen=True):
    scheme: str | None = None
    hostname: str | None = None
    port: Integer | None = None
    status_code: Integer | None = None
    path: GatewayRewrite | None = None


class GatewayFilter(Schema, frozen=True):
    request_header: HeaderFilter | None = None
    response_header: HeaderFilter | None = None
    mirror: GatewayMirror | None = None
    redirect: GatewayRedirect | None = None
    rewrite: GatewayRewrite | None = None


class GatewayHttpRule(Schema, frozen=True):
    matches: list[GatewayMatch] | None = None
    filters: list[GatewayFilter] | None = None
    backends: list[GatewayBackend] | None = None


class GatewayHttpRoute(Schema, frozen=True):
    hostnames: list[str] | None = None
    rules: list[GatewayHttpRule] | None = None


class GatewayRouteConf(Schema, frozen=True):
    tcp: GatewayTcpRoute | None = None
    http: GatewayHttpRoute | None = None


class MeshGatewayRoute(Schema, frozen=True):
    selectors: list[Selector] | None = None
    conf: GatewayRouteConf | None = None


_STATUSES: Final = ("301", "302", "303", "307", "308")
_SCHEMES: Final = ("http", "https")
_HOST_HEADERS: Final = frozenset({":authority", "host"})
_ALL: Final = 100
_PATHS: Final = {"EXACT": "Exact", "PREFIX": "PathPrefix", "REGEX": "RegularExpression"}
_VALUES: Final = {"EXACT": "Exact", "REGEX": "RegularExpression", "ABSENT": "Absent", "PRESENT": "Present"}


def validate(route: MeshGatewayRoute, _meta: DocumentMeta) -> Iterator[Violation]:
    yield from selectors("selectors", route.selectors)
    conf = route.conf or GatewayRouteConf()
    if len(conf.wire()) != 1:
        yield absent("conf", f"is for {len(conf.wire())} protocols, not one", "give it `http` or `tcp`")
    if conf.http is not None:
        yield from must_be_set("conf.http.rules", conf.http.rules)
        for index, name in enumerate(conf.http.hostnames or ()):
            if name != ANY_HOST and not is_domain(name.lower().removeprefix("*.")):
                yield Violation(f"conf.http.hostnames[{index}]", f"`{name}` is not the name of a host")
        for index, rule in enumerate(conf.http.rules or ()):
            yield from at(f"conf.http.rules[{index}]", _http_rule(rule))
        yield from _products(conf.http)
    if conf.tcp is not None:
        yield from at("conf.tcp", _tcp(conf.tcp))


def _products(route: GatewayHttpRoute) -> Iterator[Violation]:
    rules, hosts = [msgspec.to_builtins(rule) for rule in route.rules or ()], len(route.hostnames or (ANY_HOST,))
    yield from ROWS_OF_ROUTE.violations("conf.http", hosts * sum(map(rows_of, rules)))
    yield from PARTS_OF_ROUTE.violations("conf.http", hosts * sum(map(parts_of, rules)))


def _tcp(route: GatewayTcpRoute) -> Iterator[Violation]:
    yield from must_be_set("rules", route.rules)
    for index, rule in enumerate(route.rules or ()):
        yield from must_be_set(f"rules[{index}].backends", rule.backends)
        for place, backend in enumerate(rule.backends or ()):
            yield from at(f"rules[{index}].backends[{place}]", _backend(backend))


def _http_rule(rule: GatewayHttpRule) -> Iterator[Violation]:
    matches, filters, backends = rule.matches or [], rule.filters or [], rule.backends or []
    yield from must_be_set("matches", rule.matches, "`path: {match: PREFIX, value: /}` is every request")
    for index, match in enumerate(matches):
        yield from at(f"matches[{index}]", _match(match))
    has_prefix = any(match.path is not None and match.path.match == "PREFIX" for match in matches)
    keeps_host = any(
        route_filter.rewrite is not None and route_filter.rewrite.host_to_backend_hostname for route_filter in filters
    )
    for index, route_filter in enumerate(filters):
        yield from at(f"filters[{index}]", _filter(route_filter, has_prefix=has_prefix, keeps_host=keeps_host))
    redirects = any(route_filter.redirect is not None for route_filter in filters)
    if redirects and len(filters) > 1:
        yield Violation("filters", "has a redirect beside others", "keep one: a redirect is the whole answer")
    if redirects and backends:
        yield Violation("backends", "cannot stand beside a redirect, which asks nobody", "leave them out")
    elif not redirects:
        yield from must_be_set("backends", backends)
    for index, backend in enumerate(backends):
        yield from at(f"backends[{index}]", _backend(backend))


def _backend(backend: GatewayBackend) -> Iterator[Violation]:
    tags = backend.destination or {}
    for name, value in tags.items():
        yield from at("destination", tag(name, value))
    if SERVICE_TAG not in tags:
        yield absent("destination", f"must have `{SERVICE_TAG}`")
    yield from within("weight", backend.weight, 0, 2**32 - 1)


def _match(match: GatewayMatch) -> Iterator[Violation]:
    if not match.wire() or (match.wire() == ("method",) and match.method == "NONE"):
        yield absent("", "matches nothing in particular", "give it `path`, `method`, `headers` or `queryParameters`")
    if match.path is not None:
        yield from at("path.value", _path(match.path))
    for index, header in enumerate(match.headers or ()):
        yield from header_name(f"headers[{index}].name", header.name.lower())
        if header.match in {"ABSENT", "PRESENT"}:
            if header.value:
                yield Violation(f"headers[{index}].value", f"has no meaning for {header.match}", "leave it out")
        else:
            yield from must_be_set(f"headers[{index}].value", header.value)
        yield from regex_of_route(f"headers[{index}].value", header.value if header.match == "REGEX" else None)
    for index, query in enumerate(match.query_parameters or ()):
        yield from must_be_set(f"queryParameters[{index}].name", query.name)
        yield from must_be_set(f"queryParameters[{index}].value", query.value)
        yield from regex_of_route(f"queryParameters[{index}].value", query.value if query.match == "REGEX" else None)


def _path(path: GatewayPath) -> Iterator[Violation]:
    if path.match == "REGEX":
        yield from must_be_set("", path.value)
        yield from regex_of_route("", path.value or None)
    elif not path.value.startswith("/"):
        yield Violation("", "must begin with `/`")


def _filter(route_filter: GatewayFilter, *, has_prefix: bool, keeps_host: bool) -> Iterator[Violation]:
    if len(route_filter.wire()) != 1:
        yield absent("", f"is {len(route_filter.wire())} filters, not one", "write each as an item of its own")
    if route_filter.request_header is not None:
        yield from at("requestHeader", _headers(route_filter.request_header, can_set_host=not keeps_host))
    if route_filter.response_header is not None:
        yield from at("responseHeader", _headers(route_filter.response_header, can_set_host=False))
    if route_filter.mirror is not None:
        yield from at("mirror", _mirror(route_filter.mirror))
    if route_filter.redirect is not None:
        yield from at("redirect", _redirect(route_filter.redirect, has_prefix=has_prefix))
    if route_filter.rewrite is not None:
        yield from at("rewrite", _rewrite(route_filter.rewrite, has_prefix=has_prefix))


def _headers(headers: HeaderFilter, *, can_set_host: bool) -> Iterator[Violation]:
    """The faults of changes of headers. To set the host of a request is to rewrite it."""
    if not (headers.set or headers.add or headers.remove):
        yield absent("", "changes nothing", "give it `set`, `add` or `remove`")
    for name, pairs in (("set", headers.set), ("add", headers.add)):
        for index, pair in enumerate(pairs or ()):
            yield from _header_name(f"{name}[{index}].name", pair.name, can_be_host=can_set_host and name == "set")
            yield from must_be_set(f"{name}[{index}].value", pair.value)
            yield from printable(f"{name}[{index}].value", pair.value)
    for index, removed in enumerate(headers.remove or ()):
        yield from _header_name(f"remove[{index}]", removed, can_be_host=False)


def _header_name(path: str, name: str, *, can_be_host: bool) -> Iterator[Violation]:
    if name.lower() not in _HOST_HEADERS:
        yield from header_name(path, name.lower())
    elif not can_be_host:
        hint = "set it alone, in a `requestHeader`, and without `hostToBackendHostname` beside it"
        yield Violation(path, f"`{name}` cannot be changed here", hint)


def _mirror(mirror: GatewayMirror) -> Iterator[Violation]:
    if mirror.backend is None:
        yield absent("backend", "must be set")
    else:
        yield from at("backend", _backend(mirror.backend))
    if mirror.percentage is None or not 0 <= float(mirror.percentage) <= _ALL:
        yield Violation("percentage", "must be between 0 and 100")


def _redirect(redirect: GatewayRedirect, *, has_prefix: bool) -> Iterator[Violation]:
    if redirect.scheme:
        yield from one_of("scheme", redirect.scheme, _SCHEMES)
    yield from printable("hostname", redirect.hostname)
    if redirect.port:
        yield from port("port", redirect.port)
    yield from one_of("statusCode", str(redirect.status_code or ""), _STATUSES)
    if redirect.path is not None:
        yield from at("path", _rewrite(redirect.path, has_prefix=has_prefix))


def _rewrite(rewrite: GatewayRewrite, *, has_prefix: bool) -> Iterator[Violation]:
    yield from printable("replaceFull", rewrite.replace_full)
    yield from printable("replacePrefixMatch", rewrite.replace_prefix_match)
    if rewrite.replace_full is not None and rewrite.replace_prefix_match is not None:
        yield Violation("replacePrefixMatch", "cannot stand beside `replaceFull`", "keep one of them")
    if rewrite.replace_prefix_match is not None and not has_prefix:
        yield Violation("replacePrefixMatch", "needs a match by PREFIX", "match by PREFIX, or write `replaceFull`")


def conf_of_route(data: _Data) -> LegacyConf | None:
    """What a route comes to, as the conf of a MeshHTTPRoute or a MeshTCPRoute."""
    conf = data.get("conf") or {}
    if "http" in conf:
        return _http_conf(conf["http"] or {})
    rules = (conf.get("tcp") or {}).get("rules") or []
    if not rules:
        return None
    backends, path = _backend_refs(rules[0].get("backends") or ()), "conf.tcp.rules[0]"
    return LegacyConf(
        "MeshTCPRoute", {"default": {"backendRefs": backends}}, {"default.backendRefs": f"{path}.backends"}
    )


def _http_conf(route: _Data) -> LegacyConf:
    """The rules from the last to the first, as those of routes are merged: of two with one list of matches the first
    counts.

    Rules of several routes with the same matches are not mixed: each says all that a rule can say.
    """
    rules: list[_Data] = []
    places: dict[str, str] = {}
    written = list(enumerate(route.get("rules") or ()))
    for position, (index, rule) in enumerate(reversed(written)):
        place, inner = f"conf.http.rules[{index}]", f"rules[{position}]"
        places |= {
            inner: place,
            f"{inner}.matches": f"{place}.matches",
            f"{inner}.default.backendRefs": f"{place}.backends",
            f"{inner}.default.filters": f"{place}.filters",
        }
        rules.append(_rule(rule))
    hostnames = {"hostnames": route["hostnames"]} if route.get("hostnames") else {}
    return LegacyConf("MeshHTTPRoute", {"rules": rules, **hostnames}, {**places, "hostnames": "conf.http.hostnames"})


def _rule(rule: _Data) -> _Data:
    filters = [route_filter for written in rule.get("filters") or () for route_filter in _filters(written)]
    default = {"filters": filters, "backendRefs": _backend_refs(rule.get("backends") or ())}
    return {"matches": [_written_match(match) for match in rule.get("matches") or ()], "default": default}


def _backend_refs(backends: Any) -> list[_Data]:
    """References to what has the tags. A backend without a weight gets nothing, unless it is the only one."""
    usual = 1 if len(backends) == 1 else 0
    return [{**_backend_ref(backend), "weight": backend.get("weight") or usual} for backend in backends]


def _backend_ref(backend: _Data) -> _Data:
    tags = dict(backend.get("destination") or {})
    name = tags.pop(SERVICE_TAG, "")
    return {"kind": "MeshServiceSubset", "name": name, "tags": tags} if tags else {"kind": "MeshService", "name": name}


def _written_match(match: _Data) -> _Data:
    written: dict[str, Any] = {}
    if match.get("path"):
        written["path"] = _written_path(match["path"])
    if match.get("method") not in {None, "NONE"}:
        written["method"] = match["method"]
    if headers := [_written_value(value) for value in match.get("headers") or ()]:
        written["headers"] = [{**header, "name": header["name"].lower()} for header in headers]
    if queries := [_written_value(value) for value in match.get("queryParameters") or ()]:
        written["queryParams"] = queries
    return written


def _written_path(path: _Data) -> _Data:
    kind, value = _PATHS[path.get("match") or "EXACT"], path.get("value") or ""
    return {"type": kind, "value": (value.rstrip("/") or "/") if kind == "PathPrefix" else value}


def _written_value(value: _Data) -> _Data:
    kind = _VALUES[value.get("match") or "EXACT"]
    text = {} if kind in {"Absent", "Present"} else {"value": value.get("value") or ""}
    return {"type": kind, "name": value.get("name") or "", **text}


def _filters(written: _Data) -> Iterator[_Data]:
    if written.get("requestHeader"):
        yield from _header_filters(written["requestHeader"])
    if written.get("responseHeader"):
        yield {"type": "ResponseHeaderModifier", "responseHeaderModifier": _in_lower_case(written["responseHeader"])}
    if mirror := written.get("mirror"):
        copies = {"backendRef": _backend_ref(mirror.get("backend") or {}), "percentage": mirror.get("percentage") or 0}
        yield {"type": "RequestMirror", "requestMirror": copies}
    if redirect := written.get("redirect"):
        simple = {name: redirect[name] for name in ("scheme", "hostname", "port", "statusCode") if redirect.get(name)}
        yield {"type": "RequestRedirect", "requestRedirect": {**simple, **_path_rewrite(redirect.get("path") or {})}}
    if rewrite := written.get("rewrite"):
        host = {"hostToBackendHostname": True} if rewrite.get("hostToBackendHostname") else {}
        yield {"type": "URLRewrite", "urlRewrite": {**_path_rewrite(rewrite), **host}}


def _header_filters(headers: _Data) -> Iterator[_Data]:
    """The host of a request is no header to Envoy: it is rewritten."""
    changes = _in_lower_case(headers)
    pairs = changes.get("set") or ()
    hosts = [pair["value"] for pair in pairs if pair["name"] in _HOST_HEADERS]
    own = [pair for pair in pairs if pair["name"] not in _HOST_HEADERS]
    unchanged = {name: changes[name] for name in ("add", "remove") if changes.get(name)}
    modifier = {**({"set": own} if own else {}), **unchanged}
    if modifier:
        yield {"type": "RequestHeaderModifier", "requestHeaderModifier": modifier}
    if hosts:
        yield {"type": "URLRewrite", "urlRewrite": {"hostname": hosts[-1]}}


def _in_lower_case(headers: _Data) -> _Data:
    """Changes of headers, whose names are no others in capital letters: a MeshHTTPRoute has small ones alone."""
    pairs = {
        field: [{**pair, "name": pair["name"].lower()} for pair in headers[field]]
        for field in ("set", "add")
        if headers.get(field)
    }
    removed = [name.lower() for name in headers.get("remove") or ()]
    return {**pairs, **({"remove": removed} if removed else {})}


def _path_rewrite(rewrite: _Data) -> _Data:
    if rewrite.get("replaceFull") is not None:
        return {"path": {"type": "ReplaceFullPath", "replaceFullPath": rewrite["replaceFull"]}}
    if rewrite.get("replacePrefixMatch") is not None:
        return {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": rewrite["replacePrefixMatch"]}}
    return {}


MESH_GATEWAY_ROUTE: Final = Kind(
    "MeshGatewayRoute", "meshgatewayroute", "meshgatewayroutes", MeshGatewayRoute, validate, complete=without_nulls
)
