"""What must hold of a MeshHTTPRoute beyond its schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from cp.model.hosts import ANY_HOST
from cp.model.violation import Violation, at
from cp.policies import in_spec
from cp.policies.mesh_http_route.schema import (
    Filter,
    HeaderModifier,
    HttpPathMatch,
    HttpRouteMatch,
    HttpRouteRule,
    HttpRouteTo,
    PathRewrite,
    QueryMatch,
    RequestMirror,
    RequestRedirect,
    Spec,
    UrlRewrite,
)
from cp.resources.backends import MIRRORS, backend_refs
from cp.resources.checks import (
    absent,
    hostname,
    incomplete,
    is_domain,
    must_be_set,
    percentage,
    printable,
    regex_of_route,
    repeated,
    usable_port,
)
from cp.resources.headers import HOST, HeaderChanges, header_changes, header_match, header_name
from cp.resources.kinds import DocumentMeta
from cp.resources.limits import PARTS_OF_ROUTE, ROWS_OF_ROUTE, Limit, parts_of, rows_of
from cp.resources.targets import GATEWAY, SERVICES, AllowedTargets, target

_LONGEST_QUERY_NAME: Final = 1024

TARGETS: Final = AllowedTargets(top_system=(GATEWAY,), to=SERVICES, to_gateway=("Mesh",))

_FIELD_OF_TYPE: Final = {
    "RequestHeaderModifier": "requestHeaderModifier",
    "ResponseHeaderModifier": "responseHeaderModifier",
    "RequestRedirect": "requestRedirect",
    "URLRewrite": "urlRewrite",
    "RequestMirror": "requestMirror",
}


@in_spec
def validate(spec: Spec, meta: DocumentMeta) -> Iterator[Violation]:
    yield from TARGETS.violations(spec, meta)
    for index, to in enumerate(spec.to or ()):
        yield from at(f"to[{index}]", _to(to, is_gateway=spec.top.kind == GATEWAY))
    yield from _product(ROWS_OF_ROUTE, rows_of, spec.to or [])
    yield from _product(PARTS_OF_ROUTE, parts_of, spec.to or [])


def _product(limit: Limit, count: Callable[[Mapping[str, Any]], int], items: list[HttpRouteTo]) -> Iterator[Violation]:
    """Check what there is at a listener for every hostname: rows of patterns are tried for names within them too.

    Each row is configuration of every gateway that gets it, at each change.
    """
    matches = [sum(count(msgspec.to_builtins(rule)) for rule in to.rules or ()) for to in items]
    names = [to.hostnames or [ANY_HOST] for to in items]
    of_patterns = sum(count for count, hosts in zip(matches, names, strict=True) if any("*" in host for host in hosts))
    own = sum(len(hosts) * count for count, hosts in zip(matches, names, strict=True))
    yield from limit.violations("to", own + of_patterns * sum(len(to.hostnames or ()) for to in items))


def _to(to: HttpRouteTo, *, is_gateway: bool) -> Iterator[Violation]:
    if to.hostnames and not is_gateway:
        yield Violation("hostnames", "have a meaning for gateways alone", "remove them: the targetRef is the host")
    for index, host in enumerate(to.hostnames or ()):
        yield from at(f"hostnames[{index}]", _pattern(host))
    for index, rule in enumerate(to.rules or ()):
        yield from at(f"rules[{index}]", _rule(rule, is_gateway=is_gateway))


def _pattern(host: str) -> Iterator[Violation]:
    """A name of a host in upper or lower case, `*.` with the end of one, or `*`."""
    if host != ANY_HOST and not is_domain(host.lower().removeprefix("*.")):
        hint = "write a name, `*.example.com` for all names that end so, or `*`"
        yield Violation("", f"`{host}` is not the name of a host, nor a pattern of names", hint)


def _rule(rule: HttpRouteRule, *, is_gateway: bool) -> Iterator[Violation]:
    if not rule.matches:
        hint = "write `matches: [{path: {type: PathPrefix, value: /}}]` for all requests"
        yield incomplete("matches", hint=hint)
    for index, match in enumerate(rule.matches or ()):
        yield from at(f"matches[{index}]", _match(match))
    filters = (rule.default.filters if rule.default else None) or []
    backends = (rule.default.backend_refs if rule.default else None) or []
    for index, route_filter in enumerate(filters):
        violations = [
            *_filter(route_filter, is_gateway=is_gateway),
            *_prefix_rewrites(route_filter, rule.matches or []),
        ]
        yield from at(f"default.filters[{index}]", violations)
    yield from at("default.backendRefs", backend_refs(backends))
    if is_gateway and not backends and not any(route_filter.type == "RequestRedirect" for route_filter in filters):
        yield absent("default.backendRefs", "must be set: a gateway has no service of its own")


def ignored_conditions(spec: Spec) -> Iterator[Violation]:
    """Warnings about further conditions on one header: the first one counts, as in Gateway API."""
    for to_index, to in enumerate(spec.to or ()):
        for rule_index, rule in enumerate(to.rules or ()):
            for match_index, match in enumerate(rule.matches or ()):
                path = f"spec.to[{to_index}].rules[{rule_index}].matches[{match_index}]"
                yield from at(path, _ignored_headers(match))


def _ignored_headers(match: HttpRouteMatch) -> Iterator[Violation]:
    headers = match.headers or []
    for index in repeated(header.name for header in headers):
        message = f"is ignored: the first condition on `{headers[index].name}` counts"
        yield Violation(f"headers[{index}]", message, "remove it, or write one regular expression for both")


def _match(match: HttpRouteMatch) -> Iterator[Violation]:
    if match.path is not None:
        yield from at("path", _path(match.path))
    for index, header in enumerate(match.headers or ()):
        yield from at(f"headers[{index}]", header_match(header))
    yield from at("queryParams", _queries(match.query_params or []))


def _path(path: HttpPathMatch) -> Iterator[Violation]:
    if path.type is None:
        yield incomplete("type", hint="Exact, PathPrefix or RegularExpression")
    if path.type == "RegularExpression":
        yield from must_be_set("value", path.value)
        yield from regex_of_route("value", path.value)
        return
    yield from printable("value", path.value)
    if not path.value.startswith("/"):
        yield Violation("value", f"must begin with a slash, not `{path.value}`", f"write `/{path.value}`")
    if path.type == "PathPrefix" and path.value.endswith("/") and path.value != "/":
        hint = f"write `{path.value.rstrip('/')}`: a prefix ends at the end of a segment as it is"
        yield Violation("value", "must not end with a slash", hint)
    if "?" in path.value or "#" in path.value:
        yield Violation("value", f"`{path.value}` has a `?` or `#`, where a path ends", "match by `queryParams`")


def _queries(queries: list[QueryMatch]) -> Iterator[Violation]:
    for index, query in enumerate(queries):
        if query.type is None:
            yield incomplete(f"[{index}].type", hint="Exact or RegularExpression")
        if not query.name:
            yield incomplete(f"[{index}].name")
        if len(query.name.encode()) > _LONGEST_QUERY_NAME:
            yield Violation(f"[{index}].name", f"is longer than {_LONGEST_QUERY_NAME} bytes")
        if query.type == "RegularExpression":
            yield from must_be_set(f"[{index}].value", query.value)
            yield from regex_of_route(f"[{index}].value", query.value)
    for index in repeated(query.name for query in queries):
        hint = "one match can ask for one value of it"
        yield Violation(f"[{index}].name", f"`{queries[index].name}` stands here twice", hint)


def _filter(route_filter: Filter, *, is_gateway: bool) -> Iterator[Violation]:
    if route_filter.type is None:
        yield absent("type", "must be set", f"one of {', '.join(_FIELD_OF_TYPE)}")
        return
    name = _FIELD_OF_TYPE[route_filter.type]
    if name not in route_filter.wire():
        yield Violation(name, f"must be set for the type {route_filter.type}")
    elif route_filter.request_header_modifier is not None and route_filter.type == "RequestHeaderModifier":
        yield from at(name, _header_modifier(route_filter.request_header_modifier))
    elif route_filter.response_header_modifier is not None and route_filter.type == "ResponseHeaderModifier":
        yield from at(name, _header_modifier(route_filter.response_header_modifier))
    elif route_filter.request_redirect is not None and route_filter.type == "RequestRedirect":
        yield from at(name, _redirect(route_filter.request_redirect))
    elif route_filter.url_rewrite is not None and route_filter.type == "URLRewrite":
        yield from at(name, _rewrite(route_filter.url_rewrite, is_gateway=is_gateway))
    elif route_filter.request_mirror is not None:
        yield from at(name, _mirror(route_filter.request_mirror))


def _header_modifier(modifier: HeaderModifier) -> Iterator[Violation]:
    if not modifier.wire():
        yield absent("", "changes nothing", "set `set`, `add` or `remove`")
    yield from header_changes(HeaderChanges(modifier.set, modifier.add))
    names = [(f"set[{index}].name", header.name) for index, header in enumerate(modifier.set or ())]
    names += [(f"add[{index}].name", header.name) for index, header in enumerate(modifier.add or ())]
    removed = [(f"remove[{index}]", name) for index, name in enumerate(modifier.remove or ())]
    for path, name in removed:
        yield from header_name(path, name)
        if name == HOST:
            yield Violation(path, f"`{HOST}` cannot be removed")
    for index in repeated(name for _, name in (*names, *removed)):
        path, name = (*names, *removed)[index]
        yield Violation(path, f"the header `{name}` stands here twice", "do one thing to it, or write two filters")


def _redirect(redirect: RequestRedirect) -> Iterator[Violation]:
    yield from hostname("hostname", redirect.hostname)
    if redirect.path is not None:
        yield from at("path", _path_rewrite(redirect.path))


def _rewrite(rewrite: UrlRewrite, *, is_gateway: bool) -> Iterator[Violation]:
    yield from hostname("hostname", rewrite.hostname)
    if rewrite.path is not None:
        yield from at("path", _path_rewrite(rewrite.path))
    if rewrite.host_to_backend_hostname and not is_gateway:
        yield Violation("hostToBackendHostname", "has a meaning for gateways alone", "set `hostname`")
    if rewrite.host_to_backend_hostname and rewrite.hostname is not None:
        yield Violation("hostToBackendHostname", "cannot stand beside `hostname`", "remove one of them")


def _path_rewrite(path: PathRewrite) -> Iterator[Violation]:
    yield from printable("replaceFullPath", path.replace_full_path)
    yield from printable("replacePrefixMatch", path.replace_prefix_match)
    if path.type is None:
        yield incomplete("type", hint="ReplaceFullPath or ReplacePrefixMatch")
    if path.type == "ReplaceFullPath" and path.replace_full_path is None:
        yield incomplete("replaceFullPath", "must be set for the type ReplaceFullPath")
    if path.type == "ReplacePrefixMatch" and path.replace_prefix_match is None:
        yield incomplete("replacePrefixMatch", "must be set for the type ReplacePrefixMatch")


def _prefix_rewrites(route_filter: Filter, matches: list[HttpRouteMatch]) -> Iterator[Violation]:
    """A prefix can be replaced only where there is one, in every match."""
    if all(match.path is not None and match.path.type == "PathPrefix" for match in matches):
        return
    for name, changed in (("urlRewrite", route_filter.url_rewrite), ("requestRedirect", route_filter.request_redirect)):
        if changed and changed.path and changed.path.replace_prefix_match is not None:
            hint = "match by PathPrefix, or write `type: ReplaceFullPath`"
            yield Violation(f"{name}.path.replacePrefixMatch", "needs a PathPrefix in every match of the rule", hint)


def _mirror(mirror: RequestMirror) -> Iterator[Violation]:
    yield from percentage("percentage", mirror.percentage)
    yield from at("backendRef", target(mirror.backend_ref, MIRRORS))
    yield from at("backendRef", usable_port("port", mirror.backend_ref.port))
