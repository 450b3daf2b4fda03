"""A question for an Envoy is answered by whichever control plane has the link of its agent."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from cp.agent.admin import EnvoyAdmin
from cp.agent.joining import MeshJoin
from cp.agent.link import held_link
from cp.agent.membership import Membership
from cp.model.envoy_questions import AgentFault, EnvoyAnswer, EnvoyQuestion, EnvoySubject, NoAgent, SilentAgent
from cp.model.names import Key
from cp.serving.agent_links import AgentLinks
from cp.serving.instances.envoy_links import EnvoyLinks, outcome_here
from cp.serving.instances.peers import Peers, SilentPeer
from cp.store.roster import Instance
from koguma.v1 import workers_pb2 as pb
from tests.support.control_plane import ControlPlane
from tests.support.mesh import MESH, Proxy
from tests.support.waiting import eventually

WEB = Key("Dataplane", "default", "web")
STATS = EnvoyQuestion(EnvoySubject.STATS, filter="^a")
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


class Answering(AgentLinks):
    """The links of a control plane that has this for everybody."""

    def __init__(self, outcome: EnvoyAnswer | Exception) -> None:
        super().__init__()
        self._outcome = outcome

    async def ask(self, dataplane: Key, question: EnvoyQuestion, within: float) -> EnvoyAnswer:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        content = {"dataplane": str(dataplane), "filter": question.filter, "within": within}
        return EnvoyAnswer(json.dumps(content).encode())


@dataclass
class FixedPeers:
    """Others, of whom some are silent (None)."""

    links: Mapping[str, AgentLinks | None]
    given: list[float] = field(default_factory=list)
    """For how many seconds each was waited for."""

    async def others_present(self) -> Sequence[Instance]:
        return [Instance(id_, id_, f"http://{id_}", "", "0.1.0", MOMENT, 0) for id_ in self.links]

    async def ask_one(self, peer: Instance, request: pb.Request, within: float) -> pb.Answer:
        self.given.append(within)
        links = self.links[peer.id]
        if links is None:
            raise SilentPeer("no answer")
        return pb.Answer(envoy_question=await outcome_here(links, request.envoy_question))


HAS = Answering(EnvoyAnswer(b""))
HAS_NOT = Answering(NoAgent("no agent of Dataplane default/web is connected"))


def asked(own: AgentLinks, **peers: AgentLinks | None) -> Any:
    links = EnvoyLinks(own, cast("Peers", FixedPeers(peers)))
    return json.loads(asyncio.run(links.ask(WEB, STATS, 3)).content)


def test_who_has_the_link_answers() -> None:
    content = {"dataplane": "Dataplane default/web", "filter": "^a"}

    answers = asked(HAS), asked(HAS_NOT, x=HAS), asked(HAS_NOT, x=HAS_NOT, y=HAS, z=None)
    assert [{name: answer[name] for name in content} for answer in answers] == [content] * 3


class LeavingAgent(AgentLinks):
    """The links of a control plane whose agent was there until a moment ago."""

    async def ask(self, dataplane: Key, question: EnvoyQuestion, within: float) -> EnvoyAnswer:
        await asyncio.sleep(0)
        raise NoAgent(f"no agent of {dataplane} is connected")


@pytest.mark.parametrize(("within", "least_for_agent"), [(10.0, 5.0), (1.0, 0.2)])
def test_all_who_are_asked_have_the_time_of_the_question_together(within: float, least_for_agent: float) -> None:
    peers = FixedPeers({"x": HAS})

    answer = asyncio.run(EnvoyLinks(LeavingAgent(), cast("Peers", peers)).ask(WEB, STATS, within))

    (waited,) = peers.given
    assert least_for_agent < json.loads(answer.content)["within"] < waited < within


def test_an_answer_waits_for_nobody_else() -> None:
    class HangingPeers(FixedPeers):
        async def ask_one(self, peer: Instance, request: pb.Request, within: float) -> pb.Answer:
            if peer.id == "hangs":
                await asyncio.Event().wait()
            return await super().ask_one(peer, request, within)

    peers = HangingPeers({"hangs": None, "stale": Answering(SilentAgent("no answer within 3 s")), "has": HAS})

    async def answer() -> EnvoyAnswer:
        async with asyncio.timeout(5):
            return await EnvoyLinks(HAS_NOT, cast("Peers", peers)).ask(WEB, STATS, 30)

    assert json.loads(asyncio.run(answer()).content)["filter"] == "^a"


def test_a_store_that_does_not_say_who_else_there_is_costs_no_more_than_the_time() -> None:
    class SilentStore(FixedPeers):
        async def others_present(self) -> Sequence[Instance]:
            await asyncio.Event().wait()
            return ()

    with pytest.raises(NoAgent, match="the store does not say in time who else may have it"):
        asyncio.run(EnvoyLinks(HAS_NOT, cast("Peers", SilentStore({}))).ask(WEB, STATS, 0.01))


@pytest.mark.parametrize("fault", [SilentAgent("no answer within 3 s"), AgentFault("too long")])
def test_why_the_agent_has_no_answer_arrives(fault: Exception) -> None:
    with pytest.raises(type(fault), match=str(fault)):
        asked(HAS_NOT, x=Answering(fault))


def test_where_nobody_has_the_link_those_are_named_who_do_not_answer() -> None:
    with pytest.raises(NoAgent, match=r"is connected$"):
        asked(HAS_NOT, x=HAS_NOT)
    with pytest.raises(NoAgent, match=r"instance y \(http://y\), which may have it, does not answer"):
        asked(HAS_NOT, x=HAS_NOT, y=None)


# --- two control planes -----------------------------------------------------------------------------------------------


class FixedResponse(io.BytesIO):
    status = 200


@dataclass
class FixedAdmin:
    """The admin interface of an Envoy that answers everything with the path."""

    paths: list[str] = field(default_factory=list)

    @contextmanager
    def opened(self, path: str, patience: float) -> Iterator[FixedResponse]:
        self.paths.append(path)
        yield FixedResponse(json.dumps({"asked": path}).encode())


def membership(*planes: ControlPlane) -> Membership:
    return Membership(",".join(plane.api.url for plane in planes), MeshJoin("default", "web", ""), print)


def answer_of(plane: ControlPlane, parameters: str = "") -> Any:
    return plane.request("GET", f"/meshes/default/dataplanes/web/_envoy/stats{parameters}").json()


def links(plane: ControlPlane) -> float:
    return plane.metrics()["koguma_agent_links"]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[ControlPlane, ControlPlane]]:
    store = f"sqlite:///{tmp_path}/koguma.db"
    with ExitStack() as stack:
        first = stack.enter_context(ControlPlane(tmp_path / "first", store))
        second = stack.enter_context(ControlPlane(tmp_path / "second", store))
        first.apply(MESH, Proxy("web", "web").document)
        yield first, second


@pytest.mark.long
def test_each_control_plane_asks_and_a_link_moves_when_one_is_gone(pair: tuple[ControlPlane, ControlPlane]) -> None:
    first, second = pair
    eventually(lambda: len(first.get("/_instances")["items"]) == 2, within=10)
    with held_link(cast("EnvoyAdmin", FixedAdmin()), membership(second, first), print):
        eventually(lambda: links(second) == 1, within=10)
        for plane in pair:
            assert answer_of(plane, "?filter=^a") == {"asked": "/stats?usedonly&format=json&filter=%5Ea"}
        eventually(lambda: links(second) == 1)

        second.stop()

        eventually(lambda: links(first) == 1, within=20)
        assert answer_of(first) == {"asked": "/stats?usedonly&format=json"}
