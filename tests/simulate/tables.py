"""Random route tables, and random calls of which some match their rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from envoy.config.route.v3.route_components_pb2 import HeaderMatcher, QueryParameterMatcher, RouteMatch
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.type.matcher.v3.string_pb2 import StringMatcher

from cp.insight.simulate import Call
from generators.build.routes import row
from generators.proxy import (
    Filter,
    Match,
    PathChange,
    PathKind,
    PathMatch,
    Redirect,
    Rewrite,
    Route,
    Split,
    ValueMatch,
)

UPSTREAM: Final = "upstream"

_SEGMENTS: Final = ("api", "apis", "v1", "v2", "a.b", "x-y", "API", "a%2Fb", "a;b", "~u", "", "1")
_ODDITIES: Final = ("..", ".", "%2e%2E", "%61pi", "a\\b", "%zz", "%", "%2%35", "{x}", "a|b", "%C3%A9", "..;x", "%41")
_VALUES: Final = ("1", "2", "12", "a", "A", "ab", "a,b", "", "a b", "-1", "+1", "01", "http", "trailers")
_HEADERS: Final = (
    "x-version",
    "X-Team",
    "accept",
    "cookie",
    "host",
    "x-forwarded-proto",
    "x-request-id",
    "te",
    "x-envoy-max-retries",
    ":path",
)
_SENT: Final = (
    "x-version",
    "X-VERSION",
    "x-team",
    "accept",
    "cookie",
    "x-forwarded-proto",
    "te",
    "x-envoy-max-retries",
)
_PARAMETERS: Final = ("a", "b", "A", "a%62")
_METHODS: Final = ("GET", "POST", "PUT", "DELETE", "PATCH")
_EXPRESSIONS: Final = (
    *("/api/.*", "/api(/v[12])?", "^/api$", "/[a-z]+/v\\d", "/(?i)API", ".*", "/[[:alpha:]]+", "/api|/v1/.*", "/.+/v1"),
    *(
        "\\d+",
        "a|ab",
        "[^/]*",
        "\\w*",
        "a.",
        ".?",
        "/a\\pP.*",
        "/(api)?s?/?(v1)?",
        "(?s).*1",
        "/api/{0,2}v1",
        "\\Q/a.b\\E",
    ),
)
_HOSTS: Final = ("backend", "backend:80", "Backend.mesh", "a.b.c", "b.c", "10.0.0.1:80", "c")
_DOMAINS: Final = (
    *("backend", "backend:80", "*.mesh", "*.b.c", "*.c", "*b.c", "a.*", "b*", "backend.*", "BACKEND.mesh"),
)


@dataclass(frozen=True, slots=True)
class Chance:
    """The source of random tables and calls."""

    random: Random
    is_modern: bool = True
    """Whether to draw what Envoy 1.39 reads in another way than earlier versions."""

    def __call__(self, probability: float) -> bool:
        return self.random.random() < probability

    def choice(self, choices: Any) -> Any:
        return self.random.choice(choices)

    def several(self, make: Callable[[], Any], most: int) -> tuple[Any, ...]:
        return tuple(make() for _ in range(self.random.randint(0, most)))

    def path(self, oddities: float = 0.0) -> str:
        segments = [self.choice(_ODDITIES if self(oddities) else _SEGMENTS) for _ in range(self.random.randint(1, 3))]
        path = "/" + "/".join(segments)
        return path if self.is_modern else path.replace("..;", "..")

    def expression(self) -> str:
        """A regular expression. Envoy before 1.39 rejects classes of Unicode as too large."""
        expression: str = self.choice(_EXPRESSIONS)
        return expression if self.is_modern else expression.replace("\\pP", "[!-/]")

    def row(self, index: int) -> Any:
        """A row as our generators build it."""
        filters = (self.filter(),) if self(0.4) else ()
        splits: tuple[Split, ...] = (Split(UPSTREAM),)
        if self(0.2):
            splits = (Split(UPSTREAM, self.random.randint(0, 3)), Split("gone", 1, missing=True))
        refusal = (
            "nobody is there" if self(0.1) and not any(isinstance(filter_, Redirect) for filter_ in filters) else ""
        )
        return row(
            Route(f"row-{index}", match=self.match(), splits=splits, filters=filters, unavailable_reason=refusal)
        )

    def match(self) -> Match:
        return Match(
            path=self.path_match(),
            method=self.choice(_METHODS) if self(0.2) else "",
            headers=self.several(
                lambda: self.value(_HEADERS, ("Exact", "RegularExpression", "Prefix", "Present", "Absent")), 2
            )
            if self(0.4)
            else (),
            queries=self.several(lambda: self.value(_PARAMETERS, ("Exact", "RegularExpression")), 2)
            if self(0.3)
            else (),
        )

    def path_match(self) -> PathMatch:
        kind = self.choice((PathKind.EXACT, PathKind.PREFIX, PathKind.PREFIX, PathKind.REGEX))
        if kind is PathKind.REGEX:
            return PathMatch(kind, self.expression())
        value = self.path().rstrip("/") or "/"
        return PathMatch(kind, "/" if self(0.1) else value)

    def value(self, names: tuple[str, ...], kinds: tuple[str, ...]) -> ValueMatch:
        kind = self.choice(kinds)
        return ValueMatch(
            self.choice(names), kind, self.expression() if kind == "RegularExpression" else self.choice(_VALUES)
        )

    def filter(self) -> Filter:
        change = None
        if self(0.8):
            full = PathChange(full=self.path() + ("?q=1" if self(0.1) else ""))
            change = full if self(0.5) else PathChange(prefix=self.choice(("/", "/new", "/new/v9", "/new/")))
        hostname = self.choice(("", "elsewhere", "else.where"))
        if self(0.5):
            return Rewrite(hostname, change)
        scheme, port = self.choice(("", "http", "https")), self.choice((0, 0, 80, 8080))
        return Redirect(scheme, hostname, port, self.choice((301, 302, 303, 307, 308)), change)

    def foreign_row(self, index: int) -> Any:
        """A row with fields that our generators never set, as patches and other control planes write it."""
        message = self.row(index)
        if self(0.6):
            message.match.CopyFrom(RouteMatch(prefix=self.path()[: self.random.randint(1, 4)]))
        if self(0.2) and message.match.WhichOneof("path_specifier") != "safe_regex":
            message.match.case_sensitive.value = False
        if message.WhichOneof("action") == "redirect" and self(0.3):
            message.redirect.strip_query = True
        if message.WhichOneof("action") == "redirect" and self(0.3):
            message.redirect.path_redirect = self.path() + self.choice(("", "?q=2"))
        message.match.ClearField("headers")
        message.match.headers.extend(self.several(self.header, 2) if self(0.6) else ())
        message.match.query_parameters.extend(self.several(self.parameter, 1) if self(0.3) else ())
        return message

    def header(self) -> HeaderMatcher:
        header = HeaderMatcher(
            name=self.choice(_HEADERS), invert_match=self(0.3), treat_missing_header_as_empty=self(0.2)
        )
        if self(0.2):
            header.present_match = self(0.7)
        elif self(0.3):
            header.range_match.start, header.range_match.end = 0, 12
        else:
            header.string_match.CopyFrom(self.string())
        return header

    def parameter(self) -> QueryParameterMatcher:
        name = self.choice(_PARAMETERS)
        if self(0.4):
            return QueryParameterMatcher(name=name, present_match=True)
        return QueryParameterMatcher(name=name, string_match=self.string())

    def string(self) -> StringMatcher:
        kind = self.choice(("exact", "prefix", "suffix", "contains", "safe_regex"))
        matcher = StringMatcher()
        if kind == "safe_regex":
            matcher.safe_regex.regex = self.expression()
        else:
            setattr(matcher, kind, self.choice([value for value in _VALUES if value or kind == "exact"]))
            matcher.ignore_case = self(0.4)
        return matcher

    def table(self, rows: int) -> RouteConfiguration:
        """A table as our generators build it: one virtual host, with or without a last row for all other requests."""
        table = RouteConfiguration(name="table")
        host = table.virtual_hosts.add(name="all", domains=["*"])
        host.routes.extend(self.row(index) for index in range(rows))
        if self(0.7):
            host.routes.append(row(Route("rest", splits=(Split(UPSTREAM),))))
        return table

    def everything(self) -> RouteConfiguration:
        """A table with one row, which takes every request."""
        table = RouteConfiguration(name="table")
        table.virtual_hosts.add(name="all", domains=["*"]).routes.append(row(Route("all", splits=(Split(UPSTREAM),))))
        return table

    def foreign_table(self, rows: int) -> RouteConfiguration:
        table = RouteConfiguration(name="table", ignore_port_in_host_matching=self(0.3))
        domains = list(dict.fromkeys(["*", *(self.choice(_DOMAINS) for _ in range(4))][:: self.choice((1, -1))]))
        for index in range(0, len(domains), 2):
            host = table.virtual_hosts.add(name=f"host-{index}", domains=domains[index : index + 2])
            host.routes.extend(self.foreign_row(at) for at in range(rows))
            if self(0.5):
                host.routes.append(row(Route("rest", splits=(Split(UPSTREAM),))))
        return table

    def call(self, at: Call) -> Call:
        query = "&".join(
            f"{self.choice(_PARAMETERS)}{self.choice(('=', ''))}{self.choice(('1', 'a', 'ab', '12', ''))}" for _ in "12"
        )
        return replace(
            at,
            method=self.choice(_METHODS) if self(0.3) else "GET",
            path=self.path(0.15) + (f"?{query}" if self(0.4) else ""),
            host=self.choice(_HOSTS),
            headers=self.sent(),
        )

    def sent(self) -> tuple[tuple[str, str], ...]:
        headers = self.several(lambda: (self.choice(_SENT), self.choice(_VALUES)), 3) if self(0.6) else ()
        return headers if self.is_modern else tuple({name.lower(): (name, value) for name, value in headers}.values())
