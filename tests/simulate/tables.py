"""Random route tables, and calls that now and then hit them."""

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
    """Where tables and calls come from."""

    random: Random
    is_modern: bool = True
    """Whether to come near the corners in which Envoy 1.39 differs from those before."""

    def __call__(self, probability: float) -> bool:
        return self.random.random() < probability

    def one(self, choices: Any) -> Any:
        return self.random.choice(choices)

    def some(self, make: Callable[[], Any], most: int) -> tuple[Any, ...]:
        return tuple(make() for _ in range(self.random.randint(0, most)))

    def path(self, oddities: float = 0.0) -> str:
        segments = [self.one(_ODDITIES if self(oddities) else _SEGMENTS) for _ in range(self.random.randint(1, 3))]
        found = "/" + "/".join(segments)
        return found if self.is_modern else found.replace("..;", "..")

    def expression(self) -> str:
        """Before Envoy 1.39, classes of Unicode were too large for it."""
        found: str = self.one(_EXPRESSIONS)
        return found if self.is_modern else found.replace("\\pP", "[!-/]")

    def row(self, index: int) -> Any:
        """A row as we write them."""
        filters = (self.filter(),) if self(0.4) else ()
        splits: tuple[Split, ...] = (Split(UPSTREAM),)
        if self(0.2):
            splits = (Split(UPSTREAM, self.random.randint(0, 3)), Split("gone", 1, missing=True))
        refusal = "nobody is there" if self(0.1) and not any(isinstance(one, Redirect) for one in filters) else ""
        return row(
            Route(f"row-{index}", match=self.match(), splits=splits, filters=filters, unavailable_reason=refusal)
        )

    def match(self) -> Match:
        return Match(
            path=self.path_match(),
            method=self.one(_METHODS) if self(0.2) else "",
            headers=self.some(
                lambda: self.value(_HEADERS, ("Exact", "RegularExpression", "Prefix", "Present", "Absent")), 2
            )
            if self(0.4)
            else (),
            queries=self.some(lambda: self.value(_PARAMETERS, ("Exact", "RegularExpression")), 2) if self(0.3) else (),
        )

    def path_match(self) -> PathMatch:
        kind = self.one((PathKind.EXACT, PathKind.PREFIX, PathKind.PREFIX, PathKind.REGEX))
        if kind is PathKind.REGEX:
            return PathMatch(kind, self.expression())
        value = self.path().rstrip("/") or "/"
        return PathMatch(kind, "/" if self(0.1) else value)

    def value(self, names: tuple[str, ...], kinds: tuple[str, ...]) -> ValueMatch:
        kind = self.one(kinds)
        return ValueMatch(
            self.one(names), kind, self.expression() if kind == "RegularExpression" else self.one(_VALUES)
        )

    def filter(self) -> Filter:
        change = None
        if self(0.8):
            full = PathChange(full=self.path() + ("?q=1" if self(0.1) else ""))
            change = full if self(0.5) else PathChange(prefix=self.one(("/", "/new", "/new/v9", "/new/")))
        hostname = self.one(("", "elsewhere", "else.where"))
        if self(0.5):
            return Rewrite(hostname, change)
        scheme, port = self.one(("", "http", "https")), self.one((0, 0, 80, 8080))
        return Redirect(scheme, hostname, port, self.one((301, 302, 303, 307, 308)), change)

    def foreign_row(self, index: int) -> Any:
        """A row with what others write: patches, other control planes."""
        message = self.row(index)
        if self(0.6):
            message.match.CopyFrom(RouteMatch(prefix=self.path()[: self.random.randint(1, 4)]))
        if self(0.2) and message.match.WhichOneof("path_specifier") != "safe_regex":
            message.match.case_sensitive.value = False
        if message.WhichOneof("action") == "redirect" and self(0.3):
            message.redirect.strip_query = True
        if message.WhichOneof("action") == "redirect" and self(0.3):
            message.redirect.path_redirect = self.path() + self.one(("", "?q=2"))
        message.match.ClearField("headers")
        message.match.headers.extend(self.some(self.header, 2) if self(0.6) else ())
        message.match.query_parameters.extend(self.some(self.parameter, 1) if self(0.3) else ())
        return message

    def header(self) -> HeaderMatcher:
        found = HeaderMatcher(name=self.one(_HEADERS), invert_match=self(0.3), treat_missing_header_as_empty=self(0.2))
        if self(0.2):
            found.present_match = self(0.7)
        elif self(0.3):
            found.range_match.start, found.range_match.end = 0, 12
        else:
            found.string_match.CopyFrom(self.string())
        return found

    def parameter(self) -> QueryParameterMatcher:
        name = self.one(_PARAMETERS)
        if self(0.4):
            return QueryParameterMatcher(name=name, present_match=True)
        return QueryParameterMatcher(name=name, string_match=self.string())

    def string(self) -> StringMatcher:
        kind = self.one(("exact", "prefix", "suffix", "contains", "safe_regex"))
        found = StringMatcher()
        if kind == "safe_regex":
            found.safe_regex.regex = self.expression()
        else:
            setattr(found, kind, self.one([one for one in _VALUES if one or kind == "exact"]))
            found.ignore_case = self(0.4)
        return found

    def table(self, rows: int) -> RouteConfiguration:
        """As we write them: one virtual host, at the end a row for everything or none."""
        table = RouteConfiguration(name="table")
        host = table.virtual_hosts.add(name="all", domains=["*"])
        host.routes.extend(self.row(index) for index in range(rows))
        if self(0.7):
            host.routes.append(row(Route("rest", splits=(Split(UPSTREAM),))))
        return table

    def everything(self) -> RouteConfiguration:
        """One row, which takes all there is."""
        table = RouteConfiguration(name="table")
        table.virtual_hosts.add(name="all", domains=["*"]).routes.append(row(Route("all", splits=(Split(UPSTREAM),))))
        return table

    def foreign_table(self, rows: int) -> RouteConfiguration:
        table = RouteConfiguration(name="table", ignore_port_in_host_matching=self(0.3))
        domains = list(dict.fromkeys(["*", *(self.one(_DOMAINS) for _ in range(4))][:: self.one((1, -1))]))
        for index in range(0, len(domains), 2):
            host = table.virtual_hosts.add(name=f"host-{index}", domains=domains[index : index + 2])
            host.routes.extend(self.foreign_row(at) for at in range(rows))
            if self(0.5):
                host.routes.append(row(Route("rest", splits=(Split(UPSTREAM),))))
        return table

    def call(self, at: Call) -> Call:
        query = "&".join(
            f"{self.one(_PARAMETERS)}{self.one(('=', ''))}{self.one(('1', 'a', 'ab', '12', ''))}" for _ in "12"
        )
        return replace(
            at,
            method=self.one(_METHODS) if self(0.3) else "GET",
            path=self.path(0.15) + (f"?{query}" if self(0.4) else ""),
            host=self.one(_HOSTS),
            headers=self.sent(),
        )

    def sent(self) -> tuple[tuple[str, str], ...]:
        found = self.some(lambda: (self.one(_SENT), self.one(_VALUES)), 3) if self(0.6) else ()
        return found if self.is_modern else tuple({name.lower(): (name, value) for name, value in found}.values())
