"""The conditions of one row of a route table, and whether a request meets each, as Envoy compares them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from google.protobuf.message import Message

from cp.insight.simulate.request import UNKNOWN, Request
from cp.model import regex
from cp.model.secret_texts import shown_value
from cp.model.yaml import MAX_DIGITS

if TYPE_CHECKING:
    from envoy.config.route.v3.route_components_pb2 import HeaderMatcher, QueryParameterMatcher, RouteMatch
    from envoy.type.matcher.v3.string_pb2 import StringMatcher

M = TypeVar("M", bound=Message)

_KINDS: Final = {"exact": "Exact", "prefix": "Prefix", "suffix": "Suffix", "contains": "Contains"}
_KNOWN: Final = {
    "RouteMatch": {
        *("prefix", "path", "safe_regex", "path_separated_prefix", "connect_matcher"),
        *("case_sensitive", "headers", "query_parameters"),
    },
    "HeaderMatcher": {
        *("name", "string_match", "range_match", "present_match", "invert_match", "treat_missing_header_as_empty"),
    },
    "QueryParameterMatcher": {"name", "string_match", "present_match"},
    "StringMatcher": {*_KINDS, "safe_regex", "ignore_case"},
}


class UnsimulatedFeature(Exception):
    """A feature of Envoy that a call meets and whose effect is not simulated."""


@dataclass(frozen=True, slots=True)
class RouteCondition:
    """One condition of a row, and how a request compares with it."""

    subject: str
    """`path`, `method`, `header x-version`, `query parameter q`."""

    kind: str
    """How it is compared: Exact, PathPrefix, RegularExpression, Present …"""

    pattern: str
    value: str | None
    """The request's value; None if it has none."""

    holds: bool | None
    """Whether the request meets it; None if that is not simulated."""

    is_inverted: bool = False


def check_known(message: Message) -> None:
    """Raise `UnsimulatedFeature` for a field that is not compared here: to ignore it could give a wrong answer."""
    known_fields = _KNOWN[message.DESCRIPTOR.name]
    for field, _ in message.ListFields():
        if field.name not in known_fields:
            raise UnsimulatedFeature(f"a {message.DESCRIPTOR.name} with `{field.name}`")


def conditions(match: RouteMatch, request: Request) -> tuple[RouteCondition, ...]:
    """The conditions of a row, which takes the request if all of them hold."""
    return (
        _compared(_path, match, request),
        *(_compared(_header, header, request) for header in match.headers),
        *(_compared(_parameter, parameter, request) for parameter in match.query_parameters),
    )


def _compared(compare: Callable[[M, Request], RouteCondition], matcher: M, request: Request) -> RouteCondition:
    try:
        check_known(matcher)
        return compare(matcher, request)
    except UnsimulatedFeature as why:
        return RouteCondition("request", "Unsimulated", str(why), None, holds=None)


def _path(match: RouteMatch, request: Request) -> RouteCondition:
    kind = match.WhichOneof("path_specifier") or ""
    if kind == "connect_matcher":
        return RouteCondition("method", "Exact", "CONNECT", request.values(":method")[0], not request.target)
    name, pattern = _path_pattern(match, kind)
    value = request.path
    holds = bool(value) and _path_matches(match, kind, value)
    return RouteCondition("path", name, pattern, value or None, holds)


def _path_pattern(match: RouteMatch, kind: str) -> tuple[str, str]:
    if kind == "safe_regex":
        return "RegularExpression", match.safe_regex.regex
    pattern: str = getattr(match, kind)
    if kind == "path":
        return "Exact", pattern
    return ("PathPrefix" if kind == "path_separated_prefix" or pattern == "/" else "Prefix"), pattern


def _path_matches(match: RouteMatch, kind: str, value: str) -> bool:
    if kind == "safe_regex":
        return regex.matches(match.safe_regex.regex, value)
    pattern: str = getattr(match, kind)
    if match.HasField("case_sensitive") and not match.case_sensitive.value:
        pattern, value = _ascii_lower(pattern), _ascii_lower(value)
    if kind == "path":
        return value == pattern
    ends = kind == "prefix" or value[len(pattern) : len(pattern) + 1] in {"", "/"}
    return value.startswith(pattern) and ends


def _header(matcher: HeaderMatcher, request: Request) -> RouteCondition:
    values = request.values(matcher.name)
    if not values and matcher.treat_missing_header_as_empty:
        values = ("",)
    kind, pattern = _header_pattern(matcher)
    if kind in {"Present", "Absent"}:
        holds = bool(values) is matcher.present_match if matcher.WhichOneof("header_match_specifier") else bool(values)
        holds = holds is not matcher.invert_match
    elif UNKNOWN in values:
        raise UnsimulatedFeature(f"a route by the value of `{matcher.name.lower()}`, which Envoy makes up")
    else:
        # One of several values is enough. A missing header never matches, inverted or not; see `invert_match` at
        # https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/route/v3/route_components.proto
        holds = bool(values) and any(_value_matches(matcher, value) for value in values) is not matcher.invert_match
    name = {":method": "method", ":authority": "host"}.get(matcher.name.lower(), f"header {matcher.name.lower()}")
    shown = shown_value(matcher.name, pattern)
    return RouteCondition(name, kind, shown, ", ".join(values) if values else None, holds, matcher.invert_match)


def _header_pattern(matcher: HeaderMatcher) -> tuple[str, str]:
    specifier = matcher.WhichOneof("header_match_specifier")
    if specifier == "string_match":
        return _string_pattern(matcher.string_match)
    if specifier == "range_match":
        return "Range", f"{matcher.range_match.start} to {matcher.range_match.end - 1}"
    return ("Present" if specifier is None or matcher.present_match else "Absent"), ""


def _value_matches(matcher: HeaderMatcher, value: str) -> bool:
    if matcher.WhichOneof("header_match_specifier") == "string_match":
        return string_matches(matcher.string_match, value)
    number = _number(value)
    return number is not None and matcher.range_match.start <= number < matcher.range_match.end


def _number(value: str) -> int | None:
    digits = value.strip().removeprefix("-") if value.strip().startswith("-") else value.strip().removeprefix("+")
    return int(value) if digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS else None


def _parameter(matcher: QueryParameterMatcher, request: Request) -> RouteCondition:
    value = dict(reversed(list(_parameters(request.query)))).get(matcher.name)
    specifier = matcher.WhichOneof("query_parameter_match_specifier")
    if specifier == "string_match":
        kind, pattern = _string_pattern(matcher.string_match)
        holds = value is not None and string_matches(matcher.string_match, value)
    else:
        must_be_present = matcher.present_match or specifier is None
        kind, pattern = "Present" if must_be_present else "Absent", ""
        holds = (value is not None) is must_be_present
    return RouteCondition(f"query parameter {matcher.name}", kind, shown_value(matcher.name, pattern), value, holds)


def _parameters(query: str) -> Iterator[tuple[str, str]]:
    """The names and values of a query as written: Envoy does not decode escapes in it."""
    for parameter in query.removeprefix("?").split("&") if query else ():
        name, _, value = parameter.partition("=")
        yield name, value


def string_matches(matcher: StringMatcher, value: str) -> bool:
    check_known(matcher)
    kind = matcher.WhichOneof("match_pattern") or ""
    if kind == "safe_regex":
        return regex.matches(matcher.safe_regex.regex, value)
    pattern: str = getattr(matcher, kind)
    if matcher.ignore_case:
        pattern, value = _ascii_lower(pattern), _ascii_lower(value)
    compare: Any = {
        "exact": value.__eq__,
        "prefix": value.startswith,
        "suffix": value.endswith,
        "contains": value.__contains__,
    }
    return bool(compare[kind](pattern))


def _string_pattern(matcher: StringMatcher) -> tuple[str, str]:
    kind = matcher.WhichOneof("match_pattern") or ""
    if kind == "safe_regex":
        return "RegularExpression", matcher.safe_regex.regex
    return _KINDS.get(kind, kind), getattr(matcher, kind, "")


def _ascii_lower(text: str) -> str:
    """Lower case as Envoy has it: of ASCII letters only."""
    return "".join(chr(ord(character) + 32) if "A" <= character <= "Z" else character for character in text)
