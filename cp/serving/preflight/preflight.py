"""`Preflight`: shows an Envoy what proxies would be served, and says what it refuses and whose policy that is."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cp.identity.authority import Authority, KeyPair, authority, new_pair
from cp.identity.identities import AuthorityRef, ProxyIdentity
from cp.identity.leaf import issue
from cp.insight.plan import ChangedProxy
from cp.model.checkpoint import Stopped
from cp.model.names import Key
from cp.resources.mesh import CaBackend
from cp.resources.world import World
from cp.serving.delivery.causes import CauseFinder, PolicyPart
from cp.serving.delivery.nacks import without_dump
from cp.serving.preflight.rounds import NewResource, Rounds, ShownRound, ShownRounds
from cp.serving.preflight.sandbox import Sandbox, SandboxUnavailable
from cp.serving.preflight.scratch import EnvoyUnavailable, RoundAnswer, envoy_itself, scratch_envoy
from cp.translate.packing import SHORT

_MESH: Final = "preflight"
_LIFETIME: Final = 3600.0
_UNASKED: Final = "Envoy does not ask for it, as it has taken nothing that refers to it"


@dataclass(frozen=True, slots=True)
class RefusedResource:
    """A resource that an Envoy refuses, in its words, and the policies that it was made of."""

    dataplane: Key
    """A proxy that would be served it."""

    type_url: str
    name: str
    reason: str
    policies: tuple[PolicyPart, ...] = ()

    @property
    def type(self) -> str:
        return SHORT.get(self.type_url, self.type_url)


@dataclass(frozen=True, slots=True)
class UnseenResource:
    """A resource that is new to proxies and that no Envoy has judged, and why."""

    dataplane: Key
    """A proxy that would be served it."""

    type_url: str
    name: str
    reason: str

    @property
    def type(self) -> str:
        return SHORT.get(self.type_url, self.type_url)


@dataclass(frozen=True, slots=True)
class PreflightOutcome:
    """What an Envoy says to what proxies would be served."""

    envoy: str
    """Its version."""

    shown: int
    """How many resources that are new to proxies it was shown, and has taken or refused.

    Equal ones are shown once. Those of two meshes count as two, as they are made of other policies.
    """

    proxies: int
    """How many proxies would be served some of these."""

    refused: tuple[RefusedResource, ...] = ()
    unseen: tuple[UnseenResource, ...] = ()


class Preflight:
    """Shows changes to an Envoy. Each change gets a process of its own."""

    def __init__(self, envoy: Path, within: float) -> None:
        """`within`: seconds that the Envoy may take for one change."""
        self._sandbox = Sandbox(envoy_itself(envoy))
        self.within = within

    async def check(self) -> None:
        """Prove that there is a sandbox. Raises `EnvoyUnavailable`."""
        try:
            await self._sandbox.check()
        except SandboxUnavailable as error:
            raise EnvoyUnavailable(str(error)) from None

    @property
    def unavailable(self) -> str:
        """The reason why no change can be shown to an Envoy; empty if that was possible the last time."""
        return self._sandbox.unavailable

    async def outcome(self, proxies: Iterable[ChangedProxy]) -> PreflightOutcome:
        """Return what an Envoy answers to the resources that are new to some proxies. Raises `EnvoyUnavailable`."""
        pair = await asyncio.to_thread(_stand_in, time.time())
        prepared = await _prepared(pair, proxies)
        try:
            async with asyncio.timeout(self.within):
                version, answers = await self._answers(prepared.rounds, pair)
        except TimeoutError:
            raise EnvoyUnavailable(f"it did not answer within {self.within:g} s") from None
        return await asyncio.to_thread(_outcome, version, prepared, answers)

    async def _answers(self, rounds: Iterable[ShownRound], pair: KeyPair) -> tuple[str, list[RoundAnswer]]:
        async with scratch_envoy(self._sandbox, pair.certificate, self.within) as envoy:
            answers = [await envoy.shown(round_.resources) for round_ in rounds]
            return envoy.version, answers


async def _prepared(pair: KeyPair, proxies: Iterable[ChangedProxy]) -> ShownRounds:
    """What is to be shown. Where nobody waits for it any longer, the thread that works it out ends soon."""
    is_over = threading.Event()

    def checkpoint() -> None:
        if is_over.is_set():
            raise Stopped

    try:
        return await asyncio.to_thread(Rounds(pair, checkpoint).of, proxies)
    finally:
        is_over.set()


def _outcome(version: str, prepared: ShownRounds, answers: Iterable[RoundAnswer]) -> PreflightOutcome:
    judged = list(zip(prepared.rounds, answers, strict=True))
    new = [(resource, answer) for round_, answer in judged for resource in round_.new.values()]
    shown = [resource for resource, answer in new if resource.name in answer.judged]
    unasked = [resource for resource, answer in new if resource.name not in answer.judged]
    unjudged = (*prepared.left_out, *((resource, _UNASKED) for resource in unasked))
    return PreflightOutcome(
        envoy=version,
        shown=sum(len(resource.owners) for resource in shown),
        proxies=len(frozenset[Key]().union(*(resource.proxies for resource in shown))),
        refused=tuple(_refused(judged)),
        unseen=tuple(unseen for resource, reason in unjudged for unseen in _unseen(resource, reason)),
    )


def _unseen(resource: NewResource, reason: str) -> Iterator[UnseenResource]:
    for owner in resource.owners.values():
        yield UnseenResource(owner.compiled.dataplane.key, *resource.name, reason)


def _stand_in(now: float) -> KeyPair:
    """A certificate in place of those that proxies have."""
    signer = authority(new_pair(_MESH, CaBackend(), now), now)
    assert isinstance(signer, Authority)  # noqa: S101  # narrows the type
    identity = ProxyIdentity((f"spiffe://{_MESH}/scratch",), AuthorityRef("Mesh", _MESH, ""), _LIFETIME, "EC")
    leaf = issue(signer, identity, now)
    return KeyPair(leaf.chain.encode(), leaf.key)


def _refused(judged: Iterable[tuple[ShownRound, RoundAnswer]]) -> Iterator[RefusedResource]:
    finders: dict[World, CauseFinder] = {}
    for shown, answer in judged:
        for type_url, nack in answer.nacks:
            new = (shown.new[type_url, name] for name in nack.names if (type_url, name) in shown.new)
            for resource in new:
                yield from _refused_by_mesh(resource, without_dump(nack.text), finders)


def _refused_by_mesh(resource: NewResource, words: str, finders: dict[World, CauseFinder]) -> Iterator[RefusedResource]:
    """In each mesh it is made of other policies, and others may know of it."""
    for owner in resource.owners.values():
        policies = finders.setdefault(owner.world, CauseFinder(owner.world)).of(owner.compiled, *resource.name).policies
        yield RefusedResource(owner.compiled.dataplane.key, *resource.name, words, policies)
