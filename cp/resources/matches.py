"""The checks of the matches of inbound rules."""

from __future__ import annotations

from collections.abc import Iterator

from cp.model.violation import Violation, at
from cp.resources.checks import absent, is_domain, must_be_set
from cp.resources.spec import ClientMatch, SniMatch
from cp.resources.spiffe import is_spiffe_id


def client_match(match: ClientMatch) -> Iterator[Violation]:
    """The faults of one match of a rule."""
    if match.spiffe_id is None and match.sni is None:
        yield absent("", "matches nothing in particular", "give it `spiffeID` or `sni`")
    if match.spiffe_id is not None:
        # Without the slash at its end, the prefix of one trust domain is also that of others.
        is_prefix = match.spiffe_id.type == "Prefix"
        if not is_spiffe_id(match.spiffe_id.value.removesuffix("/") if is_prefix else match.spiffe_id.value):
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
