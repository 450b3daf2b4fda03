"""How the trust record of a mesh goes on: an authority is trusted before it signs, and for as long as what it signed.

Every step follows from the record and the clock, so a control plane that ends between two steps goes on with the
next. See record 0056.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from cp.identity.trust import TrustedRoot, TrustRecord


@dataclass(frozen=True, slots=True)
class TrustTimes:
    """How long to wait, in seconds."""

    propagation: float = 10.0
    """From the moment at which something is written until it counts as known to every proxy, also to those of other
    control planes. Our own proxies are asked in addition."""

    patience: float = 60.0
    """After which a new authority signs, even if a proxy of ours has not answered yet. For as long one that has
    disconnected, or that was not there when the process started, is expected back."""


DEFAULT_TIMES: Final = TrustTimes()


@dataclass(frozen=True, slots=True)
class EnabledAuthority:
    """The authority that a Mesh enables now."""

    fingerprint: str
    certificates: str
    backend: str
    lifetime: float
    """Of the certificates that it signs, in seconds."""

    is_permissive: bool
    waits: bool = False
    """Whether it is trusted before it signs also if it is the first: others sign for the mesh already."""


@dataclass(frozen=True, slots=True)
class ProxyReadiness:
    """What the proxies of a mesh have of the newest record, those that are expected back included."""

    trust: bool
    """All of them have ACKed everything."""

    identities: bool
    """All of them have certificates."""


NOT_READY: Final = ProxyReadiness(trust=False, identities=False)
READY: Final = ProxyReadiness(trust=True, identities=True)


@dataclass(frozen=True, slots=True)
class Moment:
    """What a step depends on beside the record and the Mesh."""

    now: float
    watched_since: float
    """When this process began to look after proxies."""

    proxies: ProxyReadiness = NOT_READY
    times: TrustTimes = DEFAULT_TIMES


def advanced(record: TrustRecord, enabled: EnabledAuthority, moment: Moment) -> TrustRecord:
    """The record of a mesh with mTLS, after the steps that are due."""
    roots = {root.fingerprint: root for root in unexpired(record, moment.now).roots}
    roots[enabled.fingerprint] = root = _trusted(roots.get(enabled.fingerprint), enabled, moment.now)
    before = record.signer if record.signer in roots else ""
    signs_at_once = not before and not enabled.waits
    signer = enabled.fingerprint if signs_at_once or _is_known(root, moment) else before
    has_signed = signer != "" and signer == record.signer  # before that, nobody could have a certificate by it
    callers = record.callers or not enabled.is_permissive or (has_signed and _may_call(roots[signer], moment))
    kept = _kept(roots.values(), record.signer, {signer, enabled.fingerprint}, moment)
    return replace(record, roots=tuple(kept), signer=signer, callers=callers)


def switched_off(record: TrustRecord, moment: Moment) -> TrustRecord:
    """The record of a mesh without mTLS: its authorities are trusted for a while, should it be switched on again."""
    roots = tuple(_kept(unexpired(record, moment.now).roots, record.signer, frozenset(), moment))
    return replace(record, roots=roots, signer=record.signer if roots else "", callers=False)


def unexpired(record: TrustRecord, now: float) -> TrustRecord:
    """The record without the authorities whose time is over."""
    return replace(record, roots=tuple(root for root in record.roots if root.until is None or root.until > now))


def is_settled(record: TrustRecord, enabled: EnabledAuthority) -> bool:
    """Whether nothing more is to be waited for but the end of old authorities."""
    return record.signer == enabled.fingerprint and record.callers


def _trusted(known: TrustedRoot | None, enabled: EnabledAuthority, now: float) -> TrustedRoot:
    if known is None:
        return TrustedRoot(
            fingerprint=enabled.fingerprint,
            certificate=enabled.certificates,
            backend=enabled.backend,
            since=now,
            lifetime=enabled.lifetime,
        )
    lifetime = max(known.lifetime, enabled.lifetime)
    return replace(known, certificate=enabled.certificates, backend=enabled.backend, lifetime=lifetime)


def _is_known(root: TrustedRoot, moment: Moment) -> bool:
    """Whether an authority is trusted everywhere."""
    times = moment.times
    if moment.proxies.trust:
        return moment.now >= root.since + times.propagation
    return moment.now >= max(root.since, moment.watched_since) + times.patience


def _may_call(signer: TrustedRoot, moment: Moment) -> bool:
    """Whether every proxy answers TLS. One that does not would lose requests, so there is no end to the patience."""
    since = signer.since if signer.until is None else moment.now  # mTLS was off until now
    is_ready = moment.proxies.trust and moment.proxies.identities
    return is_ready and moment.now >= since + moment.times.propagation


def _kept(
    roots: Iterable[TrustedRoot], signer_before: str, needed: AbstractSet[str], moment: Moment
) -> Iterator[TrustedRoot]:
    """Those that are needed, those that have signed, until that has expired, and none that never signed."""
    for root in roots:
        if root.fingerprint in needed:
            yield replace(root, until=None, since=root.since if root.until is None else moment.now)
        elif root.until is not None:
            yield root
        elif root.fingerprint == signer_before:
            yield replace(root, until=moment.now + root.lifetime + moment.times.propagation)
