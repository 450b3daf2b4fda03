"""`Doorkeeper`: which proxies may have a stream, by their tokens; `Admission`: of one stream, judged again on changes.

A token is verified before anything of the proxy is looked at. It has to be good for the proxy that the node names, with
the Dataplane that is in force or, as long as there is none, the one that the proxy brings along to be registered.

See record 0059.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Final

import grpc

from cp.access.keys import KeyRing, OfflineKeys
from cp.access.receivers import new_sender
from cp.access.tokens import DataplaneClaims, TokenRefused, dataplane_claims, must_admit
from cp.ads.session.messages import Node
from cp.identity.workloads import is_named_by_workload
from cp.model.names import Key, dataplane_key
from cp.model.registration import RESOURCE
from cp.resources.brought import brought_dataplane
from cp.resources.resource import Resource
from cp.resources.world import Table, World

AUTHORIZATION: Final = "authorization"
_BEARER: Final = "bearer "
_LONGEST_REASON: Final = 500
"""Characters. Clients take about 8 KiB of metadata with the end of a stream, and a token may name something long."""

_HINT: Final = "koguma generate dataplane-token"


class NotAdmitted(Exception):
    """A proxy may not have a stream, or no longer. What is said may be shown to anybody."""

    def __init__(self, status: grpc.StatusCode, sort: str, reason: str) -> None:
        super().__init__(reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}…")
        self.status: Final = status
        self.sort: Final = sort
        """As metrics have it."""


def token_of(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """The token in the metadata of a call. Raises `NotAdmitted`."""
    values = [value for name, value in metadata if name == AUTHORIZATION]
    if not values:
        raise _unknown(f"this control plane asks proxies for a token (metadata `{AUTHORIZATION}`): {_HINT}")
    if len(values) > 1 or not isinstance(values[0], str):
        raise _unknown(f"the metadata `{AUTHORIZATION}` has to be one token")
    return without_scheme(values[0])


def without_scheme(text: str) -> str:
    """A token, which may stand behind the word `Bearer` (RFC 6750, 2.1)."""
    has_scheme = text[: len(_BEARER)].lower() == _BEARER
    return (text[len(_BEARER) :] if has_scheme else text).strip()


def must_be_for(
    claims: DataplaneClaims, key: Key, dataplane: Resource | None, world: World, *, tolerates_unnamed: bool = False
) -> None:
    """Check that a token is good for a proxy with this Dataplane. Raises `NotAdmitted`."""
    chooses = dataplane is not None and is_named_by_workload(world, dataplane)
    sender = "" if tolerates_unnamed else new_sender(world, dataplane)
    try:
        must_admit(claims, key, dataplane, is_named_by_workload=chooses, new_sender=sender)
    except TokenRefused as refused:
        reason = f"the token is not for this proxy: {refused.reason}"
        raise NotAdmitted(grpc.StatusCode.PERMISSION_DENIED, "forbidden", reason) from None


def must_be_named(claims: DataplaneClaims, key: Key, world: World) -> None:
    """Check that a token is good for a proxy of this name, whatever its Dataplane says. Raises `NotAdmitted`."""
    must_be_for(replace(claims, tags={}, workload=""), key, None, world)


class Doorkeeper:
    """Decides by the newest World. `clock` tells seconds since 1970."""

    def __init__(
        self,
        world: Callable[[], World],
        loaded: Callable[[], Awaitable[object]],
        clock: Callable[[], float],
        offline: OfflineKeys | None = None,
        *,
        tolerates_unnamed: bool = False,
    ) -> None:
        """`loaded` waits until there is a World: before that there are no keys."""
        self.tolerates_unnamed = tolerates_unnamed
        self.world = world
        self.loaded = loaded
        self.clock = clock
        self._offline = offline

    def claims(self, token: str) -> DataplaneClaims:
        """What a genuine token says. Raises `NotAdmitted`."""
        try:
            return dataplane_claims(token, KeyRing.of(self.world(), self._offline), self.clock())
        except TokenRefused as refused:
            raise _unknown(f"the token is refused: {refused.reason}") from None

    async def admission(self, token: str, claims: DataplaneClaims, node: Node) -> Admission:
        """Let a proxy in with a token that was verified when the stream was opened. Raises `NotAdmitted`.

        A proxy may send its node as late as it likes, so the token is verified again.
        """
        key = dataplane_key(node.id)
        text = str(node.metadata.get(RESOURCE, ""))
        brought = None
        if self.world().get(key) is None and text:
            brought = await asyncio.to_thread(brought_dataplane, text, key, self.world().kinds)
        return Admission(self, token, claims, key, brought)


class Admission:
    """That of one stream."""

    _world: World
    """The one by which it was judged last, or another one that is no different for it."""

    _facts: tuple[Table, Resource | None, Table]
    """On what it depends in that World."""

    def __init__(
        self, doorkeeper: Doorkeeper, token: str, claims: DataplaneClaims, key: Key, brought: Resource | None = None
    ) -> None:
        """Raises `NotAdmitted` unless the token is good now. `claims` may have been verified in an earlier World."""
        self._doorkeeper = doorkeeper
        self._token = token
        self._key = key
        self._brought = brought
        self.claims = claims
        self.judge()

    @property
    def seconds_left(self) -> float:
        """Until the token expires."""
        return self.claims.expires - self._doorkeeper.clock()

    def is_outdated(self) -> bool:
        """Whether something changed on which it depends. Asked for each message: nearly always nothing did."""
        world = self._doorkeeper.world()
        if world is self._world:
            return False
        if self._facts_in(world) != self._facts:
            return True
        self._world = world
        return False

    def judge(self) -> None:
        """Raises `NotAdmitted` if the proxy may no longer be served."""
        self._world = self._doorkeeper.world()
        self._facts = self._facts_in(self._world)
        self.claims = self._doorkeeper.claims(self._token)
        _, dataplane, _ = self._facts
        tolerates = self._doorkeeper.tolerates_unnamed
        must_be_for(self.claims, self._key, dataplane or self._brought, self._world, tolerates_unnamed=tolerates)

    def _facts_in(self, world: World) -> tuple[Table, Resource | None, Table]:
        """Tables and resources compare by identity: those in which nothing changed are the same object."""
        mesh = self.claims.mesh
        return world.table("Secret", mesh), world.get(self._key), world.table("MeshIdentity", mesh)


def _unknown(reason: str) -> NotAdmitted:
    return NotAdmitted(grpc.StatusCode.UNAUTHENTICATED, "unauthenticated", reason)
