"""What one row of a route table asks of a request, condition by condition, as Envoy compares it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from google.protobuf.message import Message

from cp.insight.simulate.request import REQUEST_ID, Request
from cp.model import regex
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
    """Something that Envoy does, and this cannot say how it ends."""


@dataclass(frozen=True, slots=True)
class RouteCondition:
    """One thing that a row asks of a request."""

    subject: str
    """`path`, `method`, `header x-version`, `query parameter q`."""

    kind: str
    """How it is compared: Exact, PathPrefix, RegularExpression, Present …"""

    pattern: str
    value: str | None
    """What the request has; None where it has nothing."""

    holds: bool | None
    """None: that cannot be told."""

    is_inverted: bool = False


def check_known(message: Message) -> None:
    """Refuse what is not compared here: to leave it out would be a wrong answer."""
    known = _KNOWN[message.DESCRIPTOR.name]
    for field, _ in message.ListFields():
        if field.name not in known:
            raise UnsimulatedFeature(f"a {message.DESCRIPTOR.name} with `{field.name}`")


def conditions(match: RouteMatch, request: Request) -> tuple[RouteCondition, ...]:
    """All that a row asks for. It takes the request if all of it holds."""
    return (
        _told(_path, match, request),
        *(_told(_header, header, request) for header in match.headers),
        *(_told(_parameter, parameter, request) for parameter in match.query_parameters),
    )


def _told(compare: Callable[[M, Request], RouteCondition], matcher: M, request: Request) -> RouteCondition:
    try:
        check_known(matcher)
        return compare(matcher, request)
    except UnsimulatedFeature as why:
        return RouteCondition("request", "Unsimulated", str(why), None, holds=None)


def _path(match: RouteMatch, request: Request) -> RouteCondition:
    kind = match.WhichOneof("path_specifier") or ""
    if kind == "connect_matcher":
        return RouteCondition("method", "Exact", "CONNECT", request.values(":method")[0], not request.target)
    name, wanted = _path_wanted(match, kind)
    given = request.path
    holds = bool(given) and _path_holds(match, kind, given)
    return RouteCondition("path", name, wanted, given or None, holds)


def _path_wanted(match: RouteMatch, kind: str) -> tuple[str, str]:
    if kind == "safe_regex":
        return "RegularExpression", match.safe_regex.regex
    wanted: str = getattr(match, kind)
    if kind == "path":
        return "Exact", wanted
    return ("PathPrefix" if kind == "path_separated_prefix" or wanted == "/" else "Prefix"), wanted


def _path_holds(match: RouteMatch, kind: str, given: str) -> bool:
    if kind == "safe_regex":
        return regex.matches(match.safe_regex.regex, given)
    wanted: str = getattr(match, kind)
    if match.HasField("case_sensitive") and not match.case_sensitive.value:
        wanted, given = _lower(wanted), _lower(given)
    if kind == "path":
        return given == wanted
    ends = kind == "prefix" or given[len(wanted) : len(wanted) + 1] in {"", "/"}
    return given.startswith(wanted) and ends


def _header(matcher: HeaderMatcher, request: Request) -> RouteCondition:
    values = request.values(matcher.name)
    if not values and matcher.treat_missing_header_as_empty:
        values = ("",)
    kind, wanted = _header_wanted(matcher)
    if kind in {"Present", "Absent"}:
        holds = bool(values) is matcher.present_match if matcher.WhichOneof("header_match_specifier") else bool(values)
        holds = holds is not matcher.invert_match
    elif REQUEST_ID in values:
        raise UnsimulatedFeature("a route by the value of `x-request-id`, which Envoy makes up")
    else:
        # Of several values one is enough; and what is not there is not compared, not even to be the opposite.
        holds = bool(values) and any(_value_holds(matcher, one) for one in values) is not matcher.invert_match
    name = {":method": "method", ":authority": "host"}.get(matcher.name.lower(), f"header {matcher.name.lower()}")
    return RouteCondition(name, kind, wanted, ", ".join(values) if values else None, holds, matcher.invert_match)


def _header_wanted(matcher: HeaderMatcher) -> tuple[str, str]:
    specifier = matcher.WhichOneof("header_match_specifier")
    if specifier == "string_match":
        return _string_wanted(matcher.string_match)
    if specifier == "range_match":
        return "Range", f"{matcher.range_match.start} to {matcher.range_match.end - 1}"
    return ("Present" if specifier is None or matcher.present_match else "Absent"), ""


def _value_holds(matcher: HeaderMatcher, value: str) -> bool:
    if matcher.WhichOneof("header_match_specifier") == "string_match":
        return string_holds(matcher.string_match, value)
    number = _number(value)
    return number is not None and matcher.range_match.start <= number < matcher.range_match.end


def _number(value: str) -> int | None:
    digits = value.strip().removeprefix("-") if value.strip().startswith("-") else value.strip().removeprefix("+")
    return int(value) if digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS else None


def _parameter(matcher: QueryParameterMatcher, request: Request) -> RouteCondition:
    value = dict(reversed(list(_parameters(request.query)))).get(matcher.name)
    specifier = matcher.WhichOneof("query_parameter_match_specifier")
    if specifier == "string_match":
        kind, wanted = _string_wanted(matcher.string_match)
        holds = value is not None and string_holds(matcher.string_match, value)
    else:
        is_wanted = matcher.present_match or specifier is None
        kind, wanted = "Present" if is_wanted else "Absent", ""
        holds = (value is not None) is is_wanted
    return RouteCondition(f"query parameter {matcher.name}", kind, wanted, value, holds)


def _parameters(query: str) -> Iterator[tuple[str, str]]:
    """As they are written: escapes are not undone."""
    for parameter in query.removeprefix("?").split("&") if query else ():
        name, _, value = parameter.partition("=")
        yield name, value


def string_holds(matcher: StringMatcher, value: str) -> bool:
    check_known(matcher)
    kind = matcher.WhichOneof("match_pattern") or ""
    if kind == "safe_regex":
        return regex.matches(matcher.safe_regex.regex, value)
    wanted: str = getattr(matcher, kind)
    if matcher.ignore_case:
        wanted, value = _lower(wanted), _lower(value)
    compare: Any = {
        "exact": value.__eq__,
        "prefix": value.startswith,
        "suffix": value.endswith,
        "contains": value.__contains__,
    }
    return bool(compare[kind](wanted))


def _string_wanted(matcher: StringMatcher) -> tuple[str, str]:
    kind = matcher.WhichOneof("match_pattern") or ""
    if kind == "safe_regex":
        return "RegularExpression", matcher.safe_regex.regex
    return _KINDS.get(kind, kind), getattr(matcher, kind, "")


def _lower(text: str) -> str:
    """Envoy knows the letters of ASCII."""
    return "".join(chr(ord(one) + 32) if "A" <= one <= "Z" else one for one in text)
