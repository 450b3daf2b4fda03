"""What may be written in a MeshHTTPRoute."""

from __future__ import annotations

from typing import Literal

from cp.model.numbers import Port
from cp.model.target import BackendRef, TargetRef
from cp.resources.headers import Header as Header
from cp.resources.headers import HeaderMatch
from cp.resources.legacy.traffic_route import Modify
from cp.resources.schema import Number, Schema, SensitiveText
from cp.resources.spec import PolicySpec


class HttpPathMatch(Schema, frozen=True):
    type: Literal["Exact", "PathPrefix", "RegularExpression"] | None = None
    value: str = ""


class QueryMatch(Schema, frozen=True):
    type: Literal["Exact", "RegularExpression"] | None = None
    name: str = ""
    value: SensitiveText | None = None


class HttpRouteMatch(Schema, frozen=True):
    """Requests of which all of this is true."""

    path: HttpPathMatch | None = None
    method: Literal["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"] | None = None
    headers: list[HeaderMatch] | None = None
    query_params: list[QueryMatch] | None = None


class HeaderModifier(Schema, frozen=True):
    set: list[Header] | None = None
    add: list[Header] | None = None
    remove: list[str] | None = None


class PathRewrite(Schema, frozen=True):
    type: Literal["ReplaceFullPath", "ReplacePrefixMatch"] | None = None
    replace_full_path: SensitiveText | None = None
    replace_prefix_match: SensitiveText | None = None


class RequestRedirect(Schema, frozen=True):
    scheme: Literal["http", "https"] | None = None
    hostname: str | None = None
    port: Port | None = None
    status_code: Literal[301, 302, 303, 307, 308] | None = None
    path: PathRewrite | None = None


class UrlRewrite(Schema, frozen=True):
    hostname: str | None = None
    host_to_backend_hostname: bool | None = None
    path: PathRewrite | None = None


class RequestMirror(Schema, frozen=True):
    percentage: Number | None = None
    backend_ref: BackendRef = BackendRef()


class Filter(Schema, frozen=True):
    """One thing that is done to a request or its response. The field has the name of the type."""

    type: (
        Literal["RequestHeaderModifier", "ResponseHeaderModifier", "RequestRedirect", "URLRewrite", "RequestMirror"]
        | None
    ) = None
    request_header_modifier: HeaderModifier | None = None
    response_header_modifier: HeaderModifier | None = None
    request_redirect: RequestRedirect | None = None
    url_rewrite: UrlRewrite | None = None
    request_mirror: RequestMirror | None = None


class HttpRouteConf(Schema, frozen=True):
    filters: list[Filter] | None = None
    backend_refs: list[BackendRef] | None = None


class RowPath(Schema, frozen=True):
    """A path of a row: in a TrafficRoute it can be a prefix of the text."""

    type: Literal["Exact", "PathPrefix", "RegularExpression", "Prefix"] | None = None
    value: str = ""


class RowMatch(Schema, frozen=True):
    path: RowPath | None = None
    method: str | None = None
    headers: list[HeaderMatch] | None = None
    query_params: list[QueryMatch] | None = None


class RowConf(HttpRouteConf, frozen=True):
    """What is done with the requests of a row."""

    modify: Modify | None = None
    """What a TrafficRoute does to them, which no filter can say."""


class HttpRouteRule(Schema, frozen=True):
    matches: list[HttpRouteMatch] | None = None
    default: HttpRouteConf | None = None


class HttpRouteTo(Schema, frozen=True):
    target_ref: TargetRef = TargetRef()
    hostnames: list[str] | None = None
    rules: list[HttpRouteRule] | None = None


class Conf(Schema, frozen=True):
    """The rules for one destination, of all policies together."""

    rules: list[HttpRouteRule] | None = None
    hostnames: list[str] | None = None


class Spec(PolicySpec, frozen=True):
    to: list[HttpRouteTo] | None = None
