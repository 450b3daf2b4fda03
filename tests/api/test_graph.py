"""The graph of a mesh as it is answered: services by number, and how their proxies are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from cp.api import kept_work
from cp.api.graph import graph_data
from cp.api.kept_work import KeptWork
from cp.insight.graph import (
    CallerGroup,
    GraphCall,
    GraphMaker,
    GraphPoint,
    GraphRoute,
    GraphService,
    GraphSplit,
    MeshGraph,
)
from cp.model.checkpoint import never_stopped
from cp.model.document import Document
from cp.model.duration import Duration
from cp.model.envoy_questions import EnvoyAnswer, EnvoyQuestion, SilentAgent
from cp.model.names import Key
from cp.resources.rollout import RolledResource, RolloutSpec, content_of, rollout_document
from cp.resources.world import World
from cp.serving.agent_links import AgentLinks
from cp.serving.delivery import ProxyState
from cp.serving.instances.envoy_links import EnvoyLinks
from tests.api.conftest import KINDS, Api, Unit
from tests.api.samples import dataplane, timeout
from tests.api.test_feed import Changing, Seen
from tests.support.uncompilable import cannot_compile

PATH = "/meshes/default/_graph"


def documents(*callers: str) -> list[Document]:
    mesh = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})
    proxies = [Document(Key("Dataplane", "default", "backend-1"), dataplane("backend-1", service="backend"))]
    for name in callers:
        data = dataplane(name, service=name)
        data["networking"]["outbound"] = [{"port": 10000, "tags": {"kuma.io/service": "backend"}}]
        proxies.append(Document(Key("Dataplane", "default", name), data))
    return [mesh, *proxies]


def under_way() -> Document:
    """A rollout that waits after its first step."""
    spec = RolloutSpec(
        number=7,
        author="anna",
        begun="2026-01-01T00:00:00Z",
        resources=[RolledResource(type="MeshTimeout", name="slow", based_on=0, change="Deleted")],
        content=content_of([None]),
        steps=["1", "100%"],
        hold=Duration.parse("60s"),
        state="Holding",
        step=1,
        since="2026-01-01T00:00:00Z",
        reached=2,
        proxies=["web"],
    )
    return rollout_document("default", spec)


@pytest.fixture
def seen() -> Seen:
    return Seen(states={"default.backend-1": ProxyState.REFUSED, "default.web": ProxyState.ONLINE}, revision=100)


@pytest.fixture
def state() -> Changing:
    return Changing(World.of(documents("web", "jobs"), KINDS, revision=7))


@pytest.fixture
def api(start: Unit, seen: Seen, state: Changing) -> Api:
    return start(state=state, observed=seen)


def named(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {service["name"]: service for service in data["services"]}


def test_services_have_the_states_of_their_proxies_and_callers_what_they_call(api: Api) -> None:
    data = api.get(PATH).json()

    services = named(data)
    assert (data["mesh"], data["revision"]) == ("default", 7)
    assert services["backend"]["proxies"] == {"Refused": 1}
    assert services["backend"]["refusing"] == ["backend-1"]
    assert (services["web"]["proxies"], services["jobs"]["proxies"]) == ({"Online": 1}, {"Offline": 1})
    (group,) = data["groups"]
    numbers = [data["services"][number]["name"] for number in group["callers"]]
    assert (numbers, group["proxies"]) == (["jobs", "web"], 2)
    (call,) = group["calls"]
    assert data["services"][call["to"]]["name"] == "backend"
    (route,) = call["routes"]
    assert [(data["services"][split["to"]]["name"], split["weight"]) for split in route["splits"]] == [("backend", 1)]


def test_a_graph_is_worked_out_once_for_each_world_and_its_states_each_time(
    api: Api, seen: Seen, state: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    work = GraphMaker.graph

    def counted(*arguments: Any) -> MeshGraph:
        calls.append(1)
        return work(*arguments)

    monkeypatch.setattr(GraphMaker, "graph", counted)
    api.get(PATH)
    api.get(PATH)
    assert len(calls) == 1

    seen.states["default.backend-1"] = ProxyState.ONLINE
    state.world = World.of(documents("web"), KINDS, revision=8)
    data = api.get(PATH).json()

    assert len(calls) == 2
    assert named(data)["backend"]["proxies"] == {"Online": 1}
    assert "jobs" not in named(data)


def test_rows_beyond_some_are_counted_unless_they_lead_elsewhere() -> None:
    point, other = GraphPoint("MeshService", "cart"), GraphPoint("MeshService", "cart-next")

    def route(path: str, *splits: tuple[GraphPoint | None, int], reason: str = "") -> GraphRoute:
        return GraphRoute("", path, tuple(GraphSplit(to, "main", weight, "cluster") for to, weight in splits), reason)

    alike = [route(f"/{number}", (point, 1)) for number in range(30)]
    elsewhere = [
        route("/some", (point, 9), (other, 1)),
        route("/none", (None, 1), reason="there is no such service"),
        route("/half", (point, 18), (other, 2)),
    ]
    call = GraphCall(point, "main", "http", ("cluster",), (*alike, *elsewhere))
    graph = MeshGraph(
        (GraphService(point, ("http",), ()), GraphService(other, (), ())), (CallerGroup((), (other,), (call,)),)
    )

    (told,) = graph_data(graph, {}, never_stopped)["groups"][0]["calls"]

    assert [row["path"] for row in told["routes"]] == [*(f"/{number}" for number in range(20)), "/some", "/none"]
    assert told["moreRoutes"] == 11


def test_a_failed_proxy_refuses_nothing_and_those_who_are_not_named_are_counted() -> None:
    proxies = tuple(Key("Dataplane", "default", f"backend-{number}") for number in range(50))
    states = dict.fromkeys(proxies[:30], ProxyState.REFUSED) | dict.fromkeys(proxies[30:], ProxyState.FAILED)
    service = GraphService(GraphPoint("MeshService", "backend"), ("http",), proxies)

    (told,) = graph_data(MeshGraph((service,), ()), states, never_stopped)["services"]

    assert told["proxies"] == {"Failed": 20, "Refused": 30}
    assert told["refusing"] == [proxy.name for proxy in proxies[:20]]
    assert told["failed"] == [proxy.name for proxy in proxies[30:]]


def test_a_graph_says_that_a_rollout_is_under_way(api: Api, state: Changing) -> None:
    assert "rollout" not in api.get(PATH).json()

    state.world = World.of([*documents("web"), under_way()], KINDS, revision=8)

    assert api.get(PATH).json()["rollout"].startswith("rollout 7 of mesh default is under way: step 1 of 2 (1)")


def test_a_mesh_that_is_not_there_has_no_graph(api: Api) -> None:
    assert api.get("/meshes/defualt/_graph").status_code == 404


class Counting(EnvoyLinks):
    """Envoys that have counted so many requests to `backend`; None: one that does not answer."""

    def __init__(self, requests: Mapping[str, int | None]) -> None:
        super().__init__(AgentLinks())
        self.requests, self.asked = requests, list[str]()

    async def ask(self, dataplane: Key, question: EnvoyQuestion, within: float) -> EnvoyAnswer:
        self.asked.append(dataplane.name)
        count = self.requests[dataplane.name]
        if count is None:
            raise SilentAgent("it says nothing")
        stats = [
            {"name": "cluster.backend.upstream_rq_total", "value": count},
            {"name": "cluster.backend.upstream_cx_total", "value": 1},
            {"name": "cluster.localhost_80.upstream_rq_total", "value": 7},
            {"name": "cluster.backend.upstream_rq_time", "value": "P0(1,2)"},
        ]
        return EnvoyAnswer(json.dumps({"stats": stats}).encode())


def requests_of(data: dict[str, Any]) -> list[Any]:
    splits = (split for group in data["groups"] for call in group["calls"] for split in call["routes"][0]["splits"])
    return [split.get("requests") for split in splits]


def test_what_envoys_have_counted_is_asked_for_on_demand_alone(start: Unit, seen: Seen, state: Changing) -> None:
    envoys = Counting({"web": 12, "jobs": 30})
    seen.states["default.jobs"] = ProxyState.ONLINE
    api = start(state=state, observed=seen, envoys=envoys)

    assert requests_of(api.get(PATH).json()) == [None]
    assert not envoys.asked

    data = api.get(f"{PATH}?traffic=true").json()
    assert requests_of(data) == [42]
    assert (data["traffic"]["asked"], data["traffic"]["answered"]) == (2, 2)
    assert data["traffic"]["at"] > 0


def test_who_does_not_answer_is_counted_and_who_is_not_connected_is_not_asked(
    start: Unit, seen: Seen, state: Changing
) -> None:
    envoys = Counting({"web": None})
    data = start(state=state, observed=seen, envoys=envoys).get(f"{PATH}?traffic=true").json()

    assert envoys.asked == ["web"]
    assert (data["traffic"]["asked"], data["traffic"]["answered"]) == (1, 0)
    assert requests_of(data) == [None]


def test_of_each_group_only_some_are_asked(start: Unit) -> None:
    names = [f"web-{number}" for number in range(30)]
    envoys = Counting(dict.fromkeys(names, 1))
    seen = Seen(states={f"default.{name}": ProxyState.ONLINE for name in names})
    state = Changing(World.of(documents(*names), KINDS))

    data = start(state=state, observed=seen, envoys=envoys).get(f"{PATH}?traffic=true").json()

    assert len(envoys.asked) == 2
    assert requests_of(data) == [2]


def test_a_graph_names_the_proxies_of_which_nobody_can_tell_what_they_call(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    cannot_compile(monkeypatch, "web")
    data = api.get(PATH).raise_for_status().json()

    assert (data["failed"], {"backend", "jobs"} <= named(data).keys()) == (["web"], True)
    assert sum(group["proxies"] for group in data["groups"]) == 1


def test_what_a_graph_or_a_plan_came_to_goes_once_nobody_asks(
    start: Unit, state: Changing, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both keep it in one way."""
    made: list[Any] = []
    work = kept_work.KeptWork.keep_for_a_while

    def keep(kept: KeptWork[Any]) -> None:
        made.append((kept, kept.value))
        work(kept)

    monkeypatch.setattr(kept_work.KeptWork, "keep_for_a_while", keep)
    monkeypatch.setattr(kept_work, "KEPT", 0.0)
    api = start(state=state, observed=seen).with_mesh()
    api.get(PATH).raise_for_status()
    api.put("/meshes/default/meshtimeouts/slow?dryRun=true&plan=true", timeout("slow")).raise_for_status()
    api.get("/config")

    assert len(made) == 2
    assert [kept.value is value for kept, value in made] == [False, False]
