"""`EarlierTrust`: what is known of the trust of meshes from before a process began, where no store remembers it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cp.identity.owners import AuthorityOwner, MeshOwner
from cp.identity.rotation import EnabledAuthority
from cp.identity.trust import TrustRecord
from cp.model.names import Key
from cp.model.secret_names import trust_key
from cp.resources.world import World


class EarlierTrust:
    """Whoever has an authority in the first World that the process sees had it, as far as one can know, before."""

    def __init__(self, *, is_needed: bool) -> None:
        """`is_needed`: trust records end with the process. Else they say it themselves."""
        self._is_needed = is_needed
        self._without: set[Key] = set()
        """The records of those who had no authority at some time."""

        self._known: set[Key] | None = None
        """The records of those who have had one since the process began."""

    def note(self, world: World, concerned: Iterable[AuthorityOwner]) -> None:
        on = {owner.record_key for owner in concerned if owner.has_authority}
        self._known = on if self._known is None else self._known & on
        self._without |= {trust_key(mesh.name) for mesh in world.table("Mesh")} - on

    def as_trusted(self, owner: AuthorityOwner, enabled: EnabledAuthority) -> EnabledAuthority:
        """An authority that was there when the process began was trusted before: nobody waits for that again."""
        was_known = self._is_needed and owner.record_key in (self._known or ())
        return replace(enabled, waits=False) if was_known else enabled

    def record(self, world: World, owner: AuthorityOwner) -> TrustRecord:
        """The record of an owner. Callers that spoke TLS before the process began speak it at once."""
        record = owner.record(world)
        if self._is_needed and not record.roots and self._spoke_tls(owner):
            return TrustRecord(callers=True)
        return record

    def _spoke_tls(self, owner: AuthorityOwner) -> bool:
        """Whether callers spoke TLS before the process began, as far as one can know."""
        if isinstance(owner, MeshOwner):
            return owner.record_key not in self._without
        return owner.record_key in (self._known or ())
