"""Rows of a route table: matches, actions and filters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from envoy.config.route.v3.route_components_pb2 import Route as RouteMessage
from envoy.config.route.v3.route_components_pb2 import RouteAction

from generators.envoy import names
from generators.envoy.edit import add_header, literal
from generators.proxy import HeaderChange, Mirror, PathKind, Redirect, Rewrite, Route, ValueMatch

if TYPE_CHECKING:
    from envoy.config.route.v3.route_components_pb2 import HeaderMatcher, RedirectAction, RouteMatch
    from envoy.type.matcher.v3.string_pb2 import StringMatcher

    from generators.proxy import Filter, Match, PathChange

_REDIRECT_CODES = {301: 0, 302: 1, 303: 2, 307: 3, 308: 4}
_MILLION = 1_000_000


def row(route: Route) -> RouteMessage:
    """A route as Envoy's message."""
    message = RouteMessage(name=route.name)
    _match(message.match, route.match)
    if route.status:
        message.direct_response.status = route.status
    elif route.unavailable_reason:
        message.direct_response.status = 500
        message.direct_response.body.inline_string = route.unavailable_reason
    else:
        _forward(message.route, route)
    for route_filter in route.filters:
        _filter(message, route_filter, route.match)
    return message


def _match(message: RouteMatch, match: Match) -> None:
    _path(message, match)
    if match.method:
        header = message.headers.add(name=":method")
        header.string_match.exact = match.method
    for value in _once(match.headers):
        write_header(message.headers.add(), value)
    for value in _once(match.queries):
        _string(message.query_parameters.add(name=value.name).string_match, value)


def write_header(message: HeaderMatcher, value: ValueMatch) -> None:
    """Write a condition on a header."""
    message.name = value.name
    if value.kind in {"Present", "Absent"} or (value.kind == "Prefix" and not value.value):
        message.present_match = value.kind != "Absent"
    else:
        _string(message.string_match, value)


def _path(message: RouteMatch, match: Match) -> None:
    """A prefix matches whole segments: `/api` matches `/api` and `/api/v1`, but not `/apis`."""
    path = match.path
    if path.kind is PathKind.EXACT:
        message.path = path.value
    elif path.kind is PathKind.REGEX:
        message.safe_regex.regex = path.value
    elif path.kind is PathKind.TEXT:
        message.prefix = path.value
    elif path.value in {"/", ""}:
        message.prefix = "/"
    else:
        message.path_separated_prefix = path.value.rstrip("/")


def _once(values: tuple[ValueMatch, ...]) -> list[ValueMatch]:
    """If two conditions name the same header or parameter, the first counts."""
    first: dict[str, ValueMatch] = {}
    for value in values:
        first.setdefault(value.name.lower(), value)
    return list(first.values())


def _string(message: StringMatcher, value: ValueMatch) -> None:
    if value.kind == "RegularExpression":
        message.safe_regex.regex = value.value
    elif value.kind == "Prefix":
        message.prefix = value.value
    else:
        message.exact = value.value


def _forward(action: RouteAction, route: Route) -> None:
    """Forward to one cluster, or to several by weight. The share of a missing cluster is answered with 500.

    Envoy rewrites the host only for endpoints that have a host name; endpoints of the mesh have none.
    """
    splits = route.splits
    if any(split.host for split in splits):
        action.auto_host_rewrite.value = True
    if len(splits) == 1 and not splits[0].missing:
        action.cluster = splits[0].cluster
        return
    for split in splits:
        weighted = action.weighted_clusters.clusters.add()
        weighted.name = names.MISSING_CLUSTER if split.missing else split.cluster
        weighted.weight.value = split.weight
    if any(split.missing for split in splits):
        action.cluster_not_found_response_code = RouteAction.INTERNAL_SERVER_ERROR


def _filter(message: RouteMessage, route_filter: Filter, match: Match) -> None:
    if isinstance(route_filter, HeaderChange):
        _headers(message, route_filter)
    elif isinstance(route_filter, Redirect):
        message.redirect.SetInParent()
        _redirect(message.redirect, route_filter, match)
    elif message.HasField("route"):
        if isinstance(route_filter, Rewrite):
            _rewrite(message.route, route_filter, match)
        else:
            _mirror(message.route, route_filter)


def _headers(message: RouteMessage, change: HeaderChange) -> None:
    request = change.on == "request"
    added = message.request_headers_to_add if request else message.response_headers_to_add
    removed = message.request_headers_to_remove if request else message.response_headers_to_remove
    for name, value in change.set:
        add_header(added, name, literal(value))
    for name, value in change.add:
        add_header(added, name, literal(value), append=True)
    removed.extend(change.remove)


def _redirect(action: RedirectAction, redirect: Redirect, match: Match) -> None:
    if redirect.scheme:
        action.scheme_redirect = redirect.scheme
    if redirect.hostname:
        action.host_redirect = redirect.hostname
    if redirect.port:
        action.port_redirect = redirect.port
    action.response_code = _REDIRECT_CODES[redirect.status]  # type: ignore[assignment]
    if redirect.path is not None:
        _change_path(action, redirect.path, match)


def _rewrite(action: RouteAction, rewrite: Rewrite, match: Match) -> None:
    if rewrite.hostname:
        action.host_rewrite_literal = rewrite.hostname
    if rewrite.host_to_backend:
        action.auto_host_rewrite.value = True
    if rewrite.host_of_path is not None:
        action.host_rewrite_path_regex.pattern.regex = rewrite.host_of_path.pattern
        action.host_rewrite_path_regex.substitution = rewrite.host_of_path.substitution
    if rewrite.path is not None:
        _change_path(action, rewrite.path, match)


def _change_path(action: RouteAction | RedirectAction, change: PathChange, match: Match) -> None:
    """`/v1` to `/v2` turns `/v1` into `/v2` and `/v1/x` into `/v2/x`; the query stays."""
    if change.prefix is not None and match.path.kind is PathKind.TEXT:
        action.prefix_rewrite = change.prefix
        return
    rewrite = action.regex_rewrite
    if change.text is not None:
        rewrite.pattern.regex, rewrite.substitution = change.text.pattern, change.text.substitution
        return
    if change.full is not None:
        rewrite.pattern.regex = r"^[^?]*"
        rewrite.substitution = _literal(change.full)
        return
    old, new = match.path.value.rstrip("/"), (change.prefix or "").rstrip("/")
    if old and new:
        action.ClearField("regex_rewrite")
        action.prefix_rewrite = new
        return
    # If one of the two is the root, its slash is also the separator before the remaining path.
    rewrite.pattern.regex = f"^{re.escape(old)}/?"
    rewrite.substitution = _literal(f"{new}/")


def _literal(text: str) -> str:
    return text.replace("\\", "\\\\")


def _mirror(action: RouteAction, mirror: Mirror) -> None:
    policy = action.request_mirror_policies.add(cluster=mirror.cluster)
    fraction = policy.runtime_fraction.default_value
    fraction.numerator = round(mirror.percentage * _MILLION / 100)
    fraction.denominator = 2  # type: ignore[assignment]  # MILLION
    if mirror.host:
        policy.host_rewrite_literal = mirror.host
