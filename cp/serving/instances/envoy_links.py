"""`EnvoyLinks`: questions to Envoys, whichever control plane on the store has the link of the agent.

See record 0085.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Mapping, Sequence
from typing import Final

from cp.model.envoy_questions import (
    AgentFault,
    EnvoyAnswer,
    EnvoyQuestion,
    EnvoyUnanswered,
    NoAgent,
    SilentAgent,
)
from cp.model.names import Key
from cp.serving.agent_links import AgentLinks
from cp.serving.instances.peers import Peers, SilentPeer, name_of
from cp.serving.workers.messages import from_message, to_message
from cp.store.roster import Instance
from koguma.v1 import workers_pb2 as pb

_ON_THE_WAY: Final = 2.0
"""Seconds that are kept for the way to another control plane and back, half of what is left at the most."""

_LEVEL: Final = 1
_LONGEST_REASON: Final = 1000
_REASONS: Final[Mapping[str, type[EnvoyUnanswered]]] = {
    reason.__name__: reason for reason in (NoAgent, SilentAgent, AgentFault)
}


class EnvoyLinks:
    """`own` are the links here. Without peers there is nobody else to ask."""

    def __init__(self, own: AgentLinks, peers: Peers | None = None) -> None:
        self.own, self._peers = own, peers

    async def ask(self, dataplane: Key, question: EnvoyQuestion, within: float) -> EnvoyAnswer:
        """What an Envoy says, as JSON without secrets, within so many seconds, those for asking others included.

        Raises `EnvoyUnanswered`: `NoAgent` if no agent of ours is connected, `SilentAgent` if it does not answer in
        time, and `AgentFault` with what it says in place of an answer.
        """
        deadline = asyncio.get_running_loop().time() + within
        try:
            return await self.own.ask(dataplane, question, within)
        except NoAgent as absent:
            if self._peers is None:
                raise
            reason = absent
        try:
            async with asyncio.timeout_at(deadline):
                peers = await self._peers.others_present()
        except TimeoutError:
            raise NoAgent(f"{reason} here, and the store does not say in time who else may have it") from None
        return await self._of_peers(peers, dataplane, question, deadline, reason)

    async def _of_peers(
        self, peers: Sequence[Instance], dataplane: Key, question: EnvoyQuestion, deadline: float, absent: NoAgent
    ) -> EnvoyAnswer:
        """That of the first that has one: another one may still hold a link that leads nowhere, or hang."""
        within = max(0.0, deadline - asyncio.get_running_loop().time())
        asked = pb_question(dataplane, question, max(within - _ON_THE_WAY, within / 2))
        unanswered: dict[str, EnvoyUnanswered | SilentPeer] = {}
        async with asyncio.TaskGroup() as group:
            asking = {group.create_task(self._outcome(peer, asked, within)): peer for peer in peers}
            while asking:
                done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    peer, outcome = asking.pop(task), task.result()
                    if isinstance(outcome, EnvoyAnswer):
                        for other in asking:
                            other.cancel()
                        return outcome
                    unanswered[name_of(peer)] = outcome
        raise _reason(absent, unanswered)

    async def _outcome(
        self, peer: Instance, asked: pb.AskedEnvoy, within: float
    ) -> EnvoyAnswer | EnvoyUnanswered | SilentPeer:
        assert self._peers is not None, "it was asked who they are"  # noqa: S101
        try:
            answer = await self._peers.ask_one(peer, pb.Request(envoy_question=asked), within)
        except SilentPeer as silent:
            return silent
        return outcome_of(answer.envoy_question)


def _reason(absent: NoAgent, unanswered: Mapping[str, EnvoyUnanswered | SilentPeer]) -> EnvoyUnanswered:
    """Why nobody has answered: what the one with the link says, or who may have it and says nothing."""
    for outcome in unanswered.values():
        if isinstance(outcome, SilentAgent | AgentFault):
            return outcome
    if silent := [name for name, outcome in unanswered.items() if isinstance(outcome, SilentPeer)]:
        return NoAgent(f"{absent} here, and {', '.join(silent)}, which may have it, does not answer")
    return absent


def pb_question(dataplane: Key, question: EnvoyQuestion, within: float) -> pb.AskedEnvoy:
    return pb.AskedEnvoy(dataplane=to_message(dataplane), question=to_message(question), within=within)


async def outcome_here(links: AgentLinks, asked: pb.AskedEnvoy) -> pb.EnvoyOutcome:
    """What is answered to another control plane."""
    dataplane, question = from_message(asked.dataplane, Key), from_message(asked.question, EnvoyQuestion)
    try:
        answer = await links.ask(dataplane, question, asked.within)
    except EnvoyUnanswered as unanswered:
        reason = str(unanswered)[:_LONGEST_REASON]
        return pb.EnvoyOutcome(unanswered=pb.Error(type=type(unanswered).__name__, text=reason))
    return pb.EnvoyOutcome(answer=await asyncio.to_thread(gzip.compress, answer.content, _LEVEL))


def outcome_of(message: pb.EnvoyOutcome) -> EnvoyAnswer | EnvoyUnanswered:
    """What another control plane has answered. It is one of ours, and is believed."""
    if message.HasField("unanswered"):
        return _REASONS.get(message.unanswered.type, AgentFault)(message.unanswered.text)
    return EnvoyAnswer(gzip.decompress(message.answer))
