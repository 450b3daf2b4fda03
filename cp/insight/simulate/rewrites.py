"""The path and the host that a row sends to a cluster, or puts into a redirect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cp.insight.simulate.conditions import UnsimulatedFeature
from cp.insight.simulate.paths import split
from cp.model import regex

if TYPE_CHECKING:
    from envoy.config.route.v3.route_components_pb2 import RedirectAction, RouteAction, RouteMatch

    from cp.insight.simulate.request import Request

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def path_of(action: RouteAction, match: RouteMatch, request: Request) -> str:
    """The path with its query, as the upstream sees it."""
    if action.HasField("path_rewrite_policy") or action.path_rewrite:
        raise UnsimulatedFeature("a RouteAction with `path_rewrite`")
    return _rewritten_target(action, match, request) or request.target


def host_of(action: RouteAction, request: Request) -> str | None:
    """The host as the upstream sees it; None if it is the endpoint's host name."""
    specifier = action.WhichOneof("host_rewrite_specifier")
    if specifier == "host_rewrite_literal":
        return action.host_rewrite_literal
    if specifier == "host_rewrite_header":
        return next(iter(request.values(action.host_rewrite_header)), request.authority)
    if specifier == "auto_host_rewrite":
        return None if action.auto_host_rewrite.value else request.authority
    if specifier == "host_rewrite_path_regex":
        rewrite = action.host_rewrite_path_regex
        return regex.replaced(rewrite.pattern.regex, rewrite.substitution, request.path)
    if specifier is not None:
        raise UnsimulatedFeature(f"a RouteAction with `{specifier}`")
    return request.authority


def location_of(action: RedirectAction, match: RouteMatch, request: Request) -> str:
    """The `location` header of a redirect."""
    scheme = action.scheme_redirect or ("https" if action.https_redirect else request.scheme)
    host, port = _host_and_port(action, request, scheme)
    return f"{scheme}://{host}{port}{_redirected_path(action, match, request)}"


def _host_and_port(action: RedirectAction, request: Request, scheme: str) -> tuple[str, str]:
    host = action.host_redirect or request.authority
    port = f":{action.port_redirect}" if action.port_redirect else ""
    if not action.host_redirect:
        name, colon, number = host.rpartition(":")
        protocol = "".join(request.values("x-forwarded-proto"))
        stale = scheme != protocol and f":{number}" == _DEFAULT_PORTS.get(protocol)
        if colon and not number.endswith("]") and (port or stale):
            host = name
    return host, port


def _redirected_path(action: RedirectAction, match: RouteMatch, request: Request) -> str:
    if action.path_redirect:
        query = "" if "?" in action.path_redirect or action.strip_query else request.query
        return f"{action.path_redirect}{query}"
    target = _rewritten_target(action, match, request) or request.target
    return split(target)[0] if action.strip_query else target


def _rewritten_target(action: RouteAction | RedirectAction, match: RouteMatch, request: Request) -> str:
    """The rewritten path with its query; empty if the row does not rewrite it."""
    if action.prefix_rewrite:
        return f"{action.prefix_rewrite}{request.target[len(_matched_path(match, request)) :]}"
    if action.HasField("regex_rewrite"):
        rewrite = action.regex_rewrite
        return regex.replaced(rewrite.pattern.regex, rewrite.substitution, request.path) + request.query
    return ""


def _matched_path(match: RouteMatch, request: Request) -> str:
    kind = match.WhichOneof("path_specifier")
    if kind in {"prefix", "path_separated_prefix"}:
        prefix: str = getattr(match, kind)
        return prefix
    return request.path
