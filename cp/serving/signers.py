"""`Signers`: the authorities that sign the certificates of proxies, with their keys.

See record 0056.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import Final
from weakref import ref

from cp.identity.authority import Authority, expiry_of, instant
from cp.identity.identities import AuthorityRef
from cp.identity.owners import AuthoritySources, owner_of
from cp.identity.trust import TrustedRoot, trust_of
from cp.model.memo import Memo
from cp.model.violation import Violation
from cp.resources.resource import Resource
from cp.resources.world import World

_LOOKED_AGAIN_AFTER: Final = 5.0
"""Seconds for which a fault is not looked at again. A certificate is tried again later than that (`Identities`), so
each try looks anew, and of the tries of many proxies at one time only the first does."""

_OTHER_SIGNS_SOON: Final = "the authority that is enabled signs as soon as every proxy trusts it"


class Signers:
    """Each is looked for once, and kept for as long as it signs."""

    def __init__(self, clock: Callable[[], float], sources: AuthoritySources, stopwatch: Callable[[], float]) -> None:
        self._clock, self._sources, self._stopwatch = clock, sources, stopwatch
        self._authorities: dict[str, Authority] = {}
        """By fingerprint. One whose key is stored no longer goes on to sign until another one does."""

        self._faults: dict[AuthorityRef, tuple[ref[World], float, Violation]] = {}
        """By authority why nothing can be signed, in which World, and until when that is not looked at again."""

    def of(self, world: World, reference: AuthorityRef) -> Authority | Violation:
        """Who signs, or why nobody does."""
        signer, owner = signer_of(world, reference), owner_of(world, reference)
        rival = None if owner is None or not owner.has_authority else owner.rival(world, signer)
        if rival is not None:
            return rival
        known = self._authorities.get(signer)
        if known is not None and known.expires > self._clock():
            return known
        fault = self._faults.get(reference)
        if fault is not None and fault[0]() is world and self._stopwatch() < fault[1]:
            return fault[2]
        loaded = self._loaded(world, reference, signer)
        if isinstance(loaded, Violation):
            self._faults[reference] = (ref(world), self._stopwatch() + _LOOKED_AGAIN_AFTER, loaded)
        else:
            self._faults.pop(reference, None)
            self._authorities[signer] = loaded
        return loaded

    def _loaded(self, world: World, reference: AuthorityRef, signer: str) -> Authority | Violation:
        """The authority that is enabled now, or the one that was enabled before."""
        now, owner = self._clock(), owner_of(world, reference)
        if owner is None or not owner.has_authority:
            return Violation("mtls", "is switched off")
        enabled = owner.authority(world, self._sources, now)
        for candidate in (enabled, owner.stored_authority(world, backend_of_signer(world, reference), now)):
            if isinstance(candidate, Authority) and candidate.fingerprint == signer:
                return candidate
        if isinstance(enabled, Violation):
            return enabled
        if (fault := _expired(trust_of(world.get(reference.record_key)).root(signer), now)) is not None:
            return fault.at(owner.place)
        return Violation(owner.place, "the key of the authority that signs is not there any more", _OTHER_SIGNS_SOON)

    def keep_only(self, signers: Collection[str]) -> None:
        self._authorities = {signer: authority for signer, authority in self._authorities.items() if signer in signers}


def signer_of(world: World, reference: AuthorityRef) -> str:
    """The fingerprint of the authority that signs; empty while nobody does."""
    return world.recall(_SignerFingerprints, reference)


class _SignerFingerprints(Memo[World, AuthorityRef, str]):
    def basis(self, source: World, key: AuthorityRef) -> Resource | None:
        return source.get(key.record_key)

    def work_out(self, source: World, key: AuthorityRef) -> str:
        return trust_of(source.get(key.record_key)).signer


def backend_of_signer(world: World, reference: AuthorityRef) -> str:
    """The backend of the authority that signs; empty while nobody does."""
    record = trust_of(world.get(reference.record_key))
    root = record.root(record.signer)
    return "" if root is None else root.backend


def _expired(signer: TrustedRoot | None, now: float) -> Violation | None:
    """That whoever signs has expired: the record has the certificate also where the authority is gone."""
    expiry = None if signer is None else expiry_of(signer.certificate)
    if expiry is None or expiry[1] > now:
        return None
    moment = instant(expiry[1]).isoformat()
    return Violation("", f"the authority that signs has expired at {moment}", _OTHER_SIGNS_SOON)


def read_variable(name: str) -> str | None:
    """A variable of this process: a document names it, so no setting can."""
    return os.environ.get(name)  # noqa: TID251
