"""The checks of what a rule of an inbound matches, and of headers that a request or response is matched by."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal

from cp.model.violation import Violation, at
from cp.resources.checks import absent, is_domain, must_be_set
from cp.resources.schema import Schema
from cp.resources.spec import ClientMatch, SniMatch

_SPIFFE_ID: Final = re.compile(r"spiffe://[a-z0-9._-]+(/[A-Za-z0-9._-]+)*")
_DOTS: Final = re.compile(r"/\.{1,2}(/|$)")
_LONGEST_SPIFFE_ID: Final = 2048
_HEADER_NAME: Final = re.compile(r"[a-z0-9!#$%&'*+\-.^_`|~]+")
_LONGEST_HEADER_NAME: Final = 256


def is_spiffe_id(text: str) -> bool:
    fits = _SPIFFE_ID.fullmatch(text) is not None and len(text) <= _LONGEST_SPIFFE_ID
    return fits and _DOTS.search(text) is None


def client_match(match: ClientMatch) -> Iterator[Violation]:
    """Faults of one match of a rule."""
    if match.spiffe_id is None and match.sni is None:
        yield absent("", "matches nothing in particular", "give it `spiffeID` or `sni`")
    if match.spiffe_id is not None:
        if not is_spiffe_id(match.spiffe_id.value):
            hint = "write for example `spiffe://default/ns/web`"
            yield Violation("spiffeID", f"`{match.spiffe_id.value}` is not a SPIFFE ID", hint)
        yield from must_be_set("spiffeID.type", match.spiffe_id.type, "Exact or Prefix")
    if match.sni is not None:
        yield from at("sni", _sni(match.sni))


def _sni(sni: SniMatch) -> Iterator[Violation]:
    yield from must_be_set("type", sni.type, "Exact")
    yield from must_be_set("value", sni.value)
    if sni.value and not is_domain(sni.value):
        yield Violation("value", f"`{sni.value}` is not a server name", "use lower case letters, digits, `-` and `.`")


class HeaderMatch(Schema, frozen=True):
    """A header that must have, or must not have, a value."""

    type: Literal["Exact", "Present", "RegularExpression", "Absent", "Prefix"] | None = None
    name: str = ""
    value: str | None = None


def header_match(match: HeaderMatch) -> Iterator[Violation]:
    """Faults of one header to match."""
    yield from header_name("name", match.name)
    if match.type in {"Present", "Absent"} and match.value:
        yield Violation("value", f"has no meaning with the type {match.type}", "remove it, or write `type: Exact`")


def header_name(path: str, name: str) -> Iterator[Violation]:
    yield from must_be_set(path, name)
    if name and (_HEADER_NAME.fullmatch(name) is None or len(name) > _LONGEST_HEADER_NAME):
        lower = name.lower()
        hint = f"write `{lower}`" if _HEADER_NAME.fullmatch(lower) else ""
        yield Violation(path, f"`{name}` is not the name of a header: lower case letters, digits and `-`", hint)
