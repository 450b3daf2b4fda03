"""The rules of a MeshHTTPRoute as rows of a route table, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cp.model.names import Identity
from cp.policies.mesh_http_route.modify import modifications
from cp.policies.mesh_http_route.schema import Filter as FilterConf
from cp.policies.mesh_http_route.schema import Header, HeaderModifier, PathRewrite, RowConf, RowMatch
from cp.resources.legacy.traffic_route import Modify
from cp.resources.schema import decode
from cp.rules import RouteRule, by_specificity
from generators.proxy import (
    CATCH_ALL,
    Filter,
    HeaderChange,
    Mirror,
    PathChange,
    PathKind,
    PathMatch,
    Redirect,
    Rewrite,
    Route,
    Split,
    Tags,
    ValueMatch,
)
from generators.proxy import Match as RouteMatch

if TYPE_CHECKING:
    from cp.policies import Backends


def table(rules: Sequence[RouteRule], backends: Backends) -> tuple[Route, ...]:
    """One row for each match of each rule, the most specific first, and at the end a row for everything else."""
    routes = [_route(decode(RowMatch, match), rule, backends) for match, rule in by_specificity(rules)]
    if all(route.match != CATCH_ALL for route in routes):
        routes.append(backends.unmatched())
    return tuple(routes)


def _route(match: RowMatch, rule: RouteRule, backends: Backends) -> Route:
    conf = decode(RowConf, rule.default)
    seen_from = rule.backends.identity
    filters = (*_filters(conf.filters or (), seen_from, backends), *modifications(conf.modify or Modify()))
    splits = tuple(backends.split(reference, seen_from) for reference in conf.backend_refs or ())
    served = tuple(split for split in splits or (backends.called_destination(),) if split.weight > 0)
    return Route(
        name=rule.name,
        owner=backends.owner(rule),
        match=_match(match),
        splits=served,
        filters=filters,
        unavailable_reason="" if _redirects(filters) else _refusal(rule.owner, served),
    )


def _redirects(filters: tuple[Filter, ...]) -> bool:
    return any(isinstance(route_filter, Redirect) for route_filter in filters)


def _refusal(owner: Identity, served: tuple[Split, ...]) -> str:
    """Why nobody can answer what this route takes; empty if somebody can."""
    if not served:
        return f"{owner.type} {owner.name}: all weights are 0"
    if all(split.missing for split in served):
        reasons = ", ".join(dict.fromkeys(split.reason for split in served))
        return f"{owner.type} {owner.name}: {reasons}"
    return ""


def _match(match: RowMatch) -> RouteMatch:
    path = CATCH_ALL.path
    if match.path is not None and match.path.type is not None:
        path = PathMatch(PathKind(match.path.type), match.path.value)
    headers = tuple(
        ValueMatch(header.name, header.type or "Exact", header.value or "") for header in match.headers or ()
    )
    queries = tuple(
        ValueMatch(param.name, param.type or "Exact", param.value or "") for param in match.query_params or ()
    )
    return RouteMatch(path, match.method or "", headers, queries)


def _filters(filters: Sequence[FilterConf], seen_from: Identity, backends: Backends) -> Iterator[Filter]:
    for conf in filters:
        if conf.type == "RequestHeaderModifier" and conf.request_header_modifier is not None:
            yield _headers("request", conf.request_header_modifier)
        elif conf.type == "ResponseHeaderModifier" and conf.response_header_modifier is not None:
            yield _headers("response", conf.response_header_modifier)
        elif conf.type == "RequestMirror" and conf.request_mirror is not None:
            without_weight = replace(conf.request_mirror.backend_ref, weight=None)
            split = backends.split(without_weight, seen_from)
            percentage = conf.request_mirror.percentage
            if not split.missing:
                yield Mirror(split.cluster, 100.0 if percentage is None else float(percentage), split.host)
        else:
            yield from _path_filter(conf)


def _path_filter(conf: FilterConf) -> Iterator[Filter]:
    if conf.type == "RequestRedirect" and (redirect := conf.request_redirect) is not None:
        yield Redirect(
            scheme=redirect.scheme or "",
            hostname=redirect.hostname or "",
            port=redirect.port or 0,
            status=redirect.status_code or 302,
            path=_path_change(redirect.path),
        )
    elif conf.type == "URLRewrite" and (rewrite := conf.url_rewrite) is not None:
        yield Rewrite(
            hostname=rewrite.hostname or "",
            path=_path_change(rewrite.path),
            host_to_backend=rewrite.host_to_backend_hostname is True,
        )


def _headers(on: str, modifier: HeaderModifier) -> HeaderChange:
    return HeaderChange(on, _pairs(modifier.set), _pairs(modifier.add), tuple(modifier.remove or ()))


def _pairs(headers: list[Header] | None) -> Tags:
    return tuple((header.name, header.value) for header in headers or ())


def _path_change(path: PathRewrite | None) -> PathChange | None:
    if path is None:
        return None
    if path.type == "ReplaceFullPath":
        return PathChange(full=path.replace_full_path or "/")
    return PathChange(prefix=path.replace_prefix_match or "/")
