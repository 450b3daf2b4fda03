"""`Preflight`: shows an Envoy what proxies would be served, and returns what it NACKs and why."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
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
from cp.serving.delivery.nacks import without_dump
from cp.serving.preflight.blame import Blame, RefusedResource, served_versions
from cp.serving.preflight.rounds import NewResource, Rounds, ShownRound, ShownRounds
from cp.serving.preflight.sandbox import Sandbox, SandboxUnavailable
from cp.serving.preflight.scratch import EnvoyUnavailable, RoundAnswer, envoy_itself, scratch_envoy
from cp.translate.packing import SHORT, PackedResource

_MESH: Final = "preflight"
_LIFETIME: Final = 3600.0
_UNASKED: Final = "Envoy does not ask for it, as it has taken nothing that refers to it"


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
    """Those that it NACKs because of the change."""

    refused_before: tuple[RefusedResource, ...] = ()
    """Those that it NACKs for the same reason without the change. For proxies the change makes nothing worse."""

    unseen: tuple[UnseenResource, ...] = ()
    in_part: tuple[UnseenResource, ...] = ()
    """Resources that Envoy has judged but for a part of them, and the reason."""


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

    async def outcome(self, proxies: Iterable[ChangedProxy], written: Collection[Key] = ()) -> PreflightOutcome:
        """Return what an Envoy answers to the resources that are new to some proxies. Raises `EnvoyUnavailable`.

        `written`: the documents that the change writes or deletes.
        """
        pair = await asyncio.to_thread(_stand_in, time.time())
        shown = await self._shown(proxies, pair)
        earlier = await self._earlier_nacks(shown, pair)
        return await asyncio.to_thread(_outcome, shown, earlier, frozenset(written))

    async def _shown(self, proxies: Iterable[ChangedProxy], pair: KeyPair) -> _Shown:
        prepared = await _prepared(pair, proxies)
        try:
            async with asyncio.timeout(self.within):
                return _Shown(prepared, *await self._answers(prepared.rounds, pair))
        except TimeoutError:
            raise EnvoyUnavailable(f"it did not answer within {self.within:g} s") from None

    async def _earlier_nacks(self, shown: _Shown, pair: KeyPair) -> Mapping[PackedResource, str]:
        """Show what proxies are served now in place of what was NACKed, and return the NACKs for that."""
        served = list(served_versions(resource for resource, _ in shown.nacks))
        if not served:
            return {}
        try:
            stored = await self._shown(served, pair)
        except EnvoyUnavailable:
            return {}  # the change is to blame, unless it is known to be innocent
        return {resource.packed: text for resource, text in stored.nacks}

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


@dataclass(frozen=True, slots=True)
class _Shown:
    """What an Envoy was shown, and its answer to each round."""

    prepared: ShownRounds
    version: str
    answers: Sequence[RoundAnswer]

    @property
    def judged(self) -> list[tuple[ShownRound, RoundAnswer]]:
        return list(zip(self.prepared.rounds, self.answers, strict=True))

    @property
    def nacks(self) -> Iterator[tuple[NewResource, str]]:
        """The new resources that Envoy NACKs, with its words."""
        for shown, answer in self.judged:
            for type_url, nack in answer.nacks:
                names = ((type_url, name) for name in nack.names if (type_url, name) in shown.new)
                yield from ((shown.new[name], without_dump(nack.text)) for name in names)


def _outcome(shown: _Shown, earlier: Mapping[PackedResource, str], written: AbstractSet[Key]) -> PreflightOutcome:
    new = [(resource, answer) for round_, answer in shown.judged for resource in round_.new.values()]
    judged = [resource for resource, answer in new if resource.name in answer.judged]
    unasked = [resource for resource, answer in new if resource.name not in answer.judged]
    unjudged = (*shown.prepared.left_out, *((resource, _UNASKED) for resource in unasked))
    blame = Blame(written, earlier)
    refused = [nacked for resource, text in shown.nacks for nacked in blame.refused(resource, text)]
    return PreflightOutcome(
        envoy=shown.version,
        shown=sum(len(resource.owners) for resource in judged),
        proxies=len(frozenset[Key]().union(*(resource.proxies for resource in judged))),
        refused=tuple(resource for resource in refused if not resource.is_older),
        refused_before=tuple(resource for resource in refused if resource.is_older),
        unseen=tuple(unseen for resource, reason in unjudged for unseen in _unseen(resource, reason)),
        in_part=tuple(part for resource in judged for part in _unseen(resource, resource.unjudged_part) if part.reason),
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
