"""`?dryRun=true` on every write: what it would do, with a plan if that is asked for; nothing is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
import yaml

from cp.access.rights_file import rights_of
from cp.api import planning
from cp.api.authentication import AccessControl
from cp.model.names import Key
from cp.model.violation import Finding, Severity
from cp.resources.world import World
from cp.store.memory import MemoryStore
from cp.store.port import Delete, Put, Store
from tests.access import forge
from tests.api.conftest import ADMINS, KINDS, Api, Unit
from tests.api.samples import dataplane, timeout
from tests.api.test_door import OF_MEMBER
from tests.rollouts.test_assignment import rollout
from tests.support.uncompilable import REASON, cannot_compile

SLOW = "/meshes/default/meshtimeouts/slow"
PROXIES = [
    dataplane("web-1", outbound=[{"port": 10001, "tags": {"kuma.io/service": "api"}}]),
    dataplane("api-1", service="api"),
]


@dataclass(frozen=True)
class StoredState:
    """The World of what is stored now, as a control plane has it that has seen every write."""

    store: Store
    is_ready: bool = True
    is_stopping: bool = False
    follows: bool = True

    async def current(self) -> World:
        contents = await self.store.read()
        return World.of([stored.document for stored in contents.stored], KINDS, contents.revision)

    @property
    def loaded_world(self) -> World | None:
        return None


class Watched:
    """A store that counts what is written: all kinds of stores are written by this way alone."""

    def __init__(self, store: Store) -> None:
        self._store, self.writes = store, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def write(self, *writes: Put | Delete, **options: Any) -> int:
        self.writes += 1
        return await self._store.write(*writes, **options)


@pytest.fixture
def api(start: Unit) -> Api:
    """An API whose state follows its store, with two proxies."""
    store: Any = Watched(MemoryStore())
    api = start(store=store, state=StoredState(store)).with_mesh()
    for proxy in PROXIES:
        api.put(f"/meshes/default/dataplanes/{proxy['name']}", proxy).raise_for_status()
    return api


def plan_of(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    plan: dict[str, Any] = answer.json()["plan"]
    return plan


def put_plan(api: Api, data: dict[str, Any], path: str = SLOW) -> dict[str, Any]:
    return plan_of(api.put(f"{path}?dryRun=true&plan=true", data))


def written(api: Api) -> int:
    count: int = cast("Any", api.store).writes
    return count


def fields(plan: dict[str, Any]) -> set[tuple[str, Any, Any]]:
    return {
        (field["path"].rpartition(".")[2], field.get("before"), field.get("after"))
        for mesh in plan["meshes"]
        for difference in mesh["differences"]
        for field in difference["fields"]
    }


def test_the_plan_of_a_put_tells_fields_and_where_their_values_come_from(api: Api) -> None:
    plan = put_plan(api, timeout(request_timeout="7s"))

    assert [(each["name"], each["change"]) for each in plan["documents"]] == [("slow", "Created")]
    (mesh,) = plan["meshes"]
    (difference,) = mesh["differences"]
    assert (mesh["reached"], difference["type"], difference["causes"]) == (
        ["web-1"],
        "routes",
        [{"type": "MeshTimeout", "mesh": "default", "name": "slow"}],
    )
    (field,) = difference["fields"]
    assert (field["before"], field["after"]) == ("15s", "7s")
    assert field["values"] == [0]
    ((value,),) = difference["values"]
    assert value["field"] == "http.requestTimeout"
    assert value["before"] == {"value": "15s", "builtIn": True}
    assert value["after"] == {"value": "7s", "policy": "slow", "path": "spec.to[0].default.http.requestTimeout"}


def test_each_field_has_the_values_from_which_it_follows_and_no_others(api: Api) -> None:
    both = timeout(request_timeout="7s")
    both["spec"]["to"][0]["default"]["connectionTimeout"] = "2s"
    plan = put_plan(api, both)

    origins = {
        field["path"].rpartition(".")[2]: [
            value["field"] for place in field["values"] for value in difference["values"][place]
        ]
        for difference in plan["meshes"][0]["differences"]
        for field in difference["fields"]
    }
    assert origins == {"timeout": ["http.requestTimeout"], "connectTimeout": ["connectionTimeout"]}


def writes() -> list[Callable[[Api], httpx.Response]]:
    body = {"resources": [{"text": yaml.safe_dump(timeout("new"))}]}
    return [
        lambda api: api.put(f"{SLOW}?dryRun=true", timeout(request_timeout="7s")),
        lambda api: api.put(f"{SLOW}?dryRun=true&plan=true", timeout(request_timeout="7s")),
        lambda api: api.put("/meshes/shop?dryRun=true&plan=true", {"type": "Mesh", "name": "shop"}),
        lambda api: api.delete(f"{SLOW}?dryRun=true&plan=true"),
        lambda api: api.delete("/meshes/default?cascade=true&dryRun=true&plan=true"),
        lambda api: api.post("/_apply?dryRun=true&plan=true", json=body),
        lambda api: api.post("/_rollback?dryRun=true&plan=true", json={"revision": 3}),
    ]


@pytest.mark.parametrize("write", writes())
def test_a_dry_run_stores_nothing(api: Api, write: Callable[[Api], httpx.Response]) -> None:
    api.put(SLOW, timeout())
    before = written(api)

    answer = write(api)

    assert (answer.status_code, written(api)) == (200, before)
    assert answer.json()["resources"]
    assert "koguma-revision" not in answer.headers


def test_what_would_change_nothing_is_an_empty_plan(api: Api) -> None:
    api.put(SLOW, timeout())

    plan = put_plan(api, timeout())
    assert (plan["empty"], plan["documents"], plan["meshes"]) == (True, [], [])


def test_where_nothing_would_change_the_rollout_is_named_by_which_not_all_are_served_what_is_stored(api: Api) -> None:
    api.put(SLOW, timeout()).raise_for_status()
    assert put_plan(api, timeout())["rollouts"] == []
    api.run(api.store.write(Put(rollout({Key("MeshTimeout", "default", "slow"): None}, ["web-1"]))))

    plan, elsewhere = put_plan(api, timeout()), put_plan(api, {"type": "Mesh", "name": "other"}, "/meshes/other")

    assert plan["empty"]
    assert plan["rollouts"] == ["rollout 1 of mesh default is under way: step 1 of 2 (1), 1 of 0 proxies, going"]
    assert elsewhere["rollouts"] == []


def test_a_write_without_effect_says_that_no_proxy_would_notice(api: Api) -> None:
    plan = put_plan(api, timeout(request_timeout="15s"))

    assert plan["documents"]
    assert [(mesh["reached"], mesh["differences"]) for mesh in plan["meshes"]] == [([], [])]
    assert any(finding["code"] == "redundant" for finding in plan["findings"]["appearing"]), plan["findings"]


def test_the_plan_of_a_deletion_tells_what_holds_then(api: Api) -> None:
    api.put(SLOW, timeout(request_timeout="7s"))

    plan = plan_of(api.delete(f"{SLOW}?dryRun=true&plan=true"))
    assert fields(plan) == {("timeout", "7s", "15s")}
    assert [each["change"] for each in plan["documents"]] == ["Deleted"]


def test_a_proxy_that_goes_is_told_and_whose_connections_end(api: Api) -> None:
    plan = plan_of(api.delete("/meshes/default/dataplanes/api-1?dryRun=true&plan=true"))

    (mesh,) = plan["meshes"]
    assert (mesh["removed"], mesh["reached"]) == (["api-1"], ["web-1"])
    drains = [difference.get("drains") for difference in mesh["differences"]]
    assert "HTTP connections to 127.0.0.1:8080, each after its requests under way" in drains


def test_a_dry_run_is_refused_as_the_write_would_be(api: Api) -> None:
    revision = api.put(SLOW, timeout()).headers["etag"]
    api.put(SLOW, timeout(request_timeout="9s"))
    wrong = timeout() | {"spec": {"to": 3}}

    assert api.put(f"{SLOW}?dryRun=true", wrong).status_code == 400
    assert api.put(f"{SLOW}?dryRun=true", timeout(), if_match=revision).status_code == 412
    assert api.put(f"{SLOW}?dryRun=true", timeout(), if_none_match="*").status_code == 412
    assert api.put("/meshes/nowhere/meshtimeouts/slow?dryRun=true", timeout(mesh="nowhere")).status_code == 404
    assert api.delete("/meshes/default/meshtimeouts/none?dryRun=true").status_code == 404
    assert api.delete("/meshes/default?dryRun=true").status_code == 400
    assert api.delete(f"{SLOW}?dryRun=true", headers={"if-match": revision}).status_code == 412


def test_a_plan_is_told_before_a_write_alone(api: Api) -> None:
    answer = api.put(f"{SLOW}?plan=true", timeout())

    assert answer.status_code == 400
    assert "add `dryRun=true`" in answer.text
    assert api.put(f"{SLOW}?dryRun=perhaps", timeout()).status_code == 400
    assert api.get(SLOW).status_code == 404


def test_the_way_between_two_revisions_is_a_plan(api: Api) -> None:
    before = int(api.put(SLOW, timeout(request_timeout="7s")).headers["koguma-revision"])
    after = int(api.put(SLOW, timeout(request_timeout="8s")).headers["koguma-revision"])

    there = plan_of(api.get(f"/_diff/plan?from={before}&to={after}"))
    back = plan_of(api.get(f"/_diff/plan?from={after}&to={before}"))
    assert (fields(there), fields(back)) == ({("timeout", "7s", "8s")}, {("timeout", "8s", "7s")})


def test_plans_one_after_the_other_each_begin_with_what_is_there(api: Api) -> None:
    seen = []
    for seconds in ("7s", "8s", "9s"):
        seen.append(fields(put_plan(api, timeout(request_timeout=seconds))))
        if seconds == "7s":
            api.put(SLOW, timeout(request_timeout="7s"))

    assert seen == [{("timeout", "15s", "7s")}, {("timeout", "7s", "8s")}, {("timeout", "7s", "9s")}]


class StateWithKeys(StoredState):
    """The same, and the keys of tokens."""

    @property
    def loaded_world(self) -> World:
        return World.of(forge.signing_keys(), KINDS)


READS = "{groups: [team], may: [read, write], meshes: [default], kinds: [Mesh, MeshTimeout, Dataplane%s]}"


@pytest.mark.parametrize(("kinds", "told"), [(", Inspection", (["web-1"], None)), ("", (None, ["default"]))])
def test_a_plan_tells_nothing_of_proxies_to_who_may_not_look_into_the_mesh(
    start: Unit, kinds: str, told: tuple[list[str] | None, list[str] | None]
) -> None:
    store = MemoryStore()
    rights = rights_of(f"rights: [{READS % kinds}]", "access.yaml", KINDS, ADMINS)
    access = AccessControl(lambda: rights, clock=lambda: forge.NOW)
    api = start(store=store, state=StateWithKeys(store), access=access).with_mesh()
    for proxy in PROXIES:
        api.put(f"/meshes/default/dataplanes/{proxy['name']}", proxy).raise_for_status()
    headers = {"authorization": f"Bearer {OF_MEMBER}"}
    answer = api.request(
        "PUT", f"{SLOW}?dryRun=true&plan=true", peer="192.0.2.1", json=timeout(request_timeout="7s"), headers=headers
    )
    plan = plan_of(answer)
    meshes = plan["meshes"]
    assert (meshes[0]["reached"] if meshes else None, plan.get("meshesNotTold")) == told


def test_a_proxy_that_cannot_be_compiled_is_named_and_all_others_are_compared(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    cannot_compile(monkeypatch, "api-1")
    plan = put_plan(api, timeout(request_timeout="7s"))

    (mesh,) = plan["meshes"]
    assert (mesh["proxies"], mesh["reached"], mesh["failed"]) == (1, ["web-1"], ["api-1"])
    assert (mesh["added"], mesh["removed"]) == ([], [])
    (sentence,) = (each for each in plan["notCompared"] if "api-1" in each)
    assert sentence.startswith(f"api-1 of mesh default, by a fault of koguma: {REASON}")


def test_what_cannot_be_compiled_stops_no_comparison_of_revisions(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    before = int(api.put(SLOW, timeout(request_timeout="7s")).headers["koguma-revision"])
    api.put(SLOW, timeout(request_timeout="8s")).raise_for_status()
    cannot_compile(monkeypatch, "api-1")

    (mesh,) = api.get(f"/_diff/proxies?from={before}").raise_for_status().json()["meshes"]
    assert (mesh["proxies"], mesh["failed"]) == (1, ["api-1"])
    assert [difference["proxies"] for difference in mesh["differences"]] == [["web-1"]]


class Connected:
    """What gRPC clients say that they have."""

    def __init__(self) -> None:
        self.clients: dict[Key, bool] = {}

    async def read(self, *_: Any) -> dict[Key, bool]:
        return dict(self.clients)


@pytest.fixture
def linted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, bool]]:
    """For what moment, and for how many clients, lint was asked; it finds something else each time."""
    asked: list[tuple[float, bool]] = []

    def lint(_policies: Any, _world: World, _checkpoint: Any, now: float, clients: dict[Key, bool]) -> list[Finding]:
        asked.append((now, any(clients.values())))
        return [Finding("at", Severity.WARNING, None, f"at {now}, with {clients}")]

    monkeypatch.setattr(planning, "lint", lint)
    return asked


def test_findings_that_come_of_time_or_of_clients_are_not_of_the_change(
    api: Api, monkeypatch: pytest.MonkeyPatch, linted: list[tuple[float, bool]]
) -> None:
    """Both sides are told for the same moment, and for the same clients."""
    connected, clock = Connected(), iter(range(1_000, 2_000))
    world = api.world()

    class Still(StoredState):
        async def current(self) -> World:
            return world

    monkeypatch.setattr(planning, "certified_clients", connected.read)
    monkeypatch.setattr(planning, "time", SimpleNamespace(time=lambda: float(next(clock))))
    monkeypatch.setattr(StoredState, "current", Still.current)
    plans = [put_plan(api, timeout(request_timeout="7s"))]
    plans.append(put_plan(api, timeout(request_timeout="8s")))
    connected.clients = {Key("Dataplane", "default", "client"): True}
    plans.append(put_plan(api, timeout(request_timeout="9s")))

    assert [plan["findings"] for plan in plans] == [{"appearing": [], "vanishing": []}] * 3
    assert [is_certified for _, is_certified in linted] == [False, False, False, True, True]


def test_findings_are_kept_for_a_while_only(
    api: Api, monkeypatch: pytest.MonkeyPatch, linted: list[tuple[float, bool]]
) -> None:
    world, moments = api.world(), iter((1_000.0, 1_001.0, 2_000.0))

    async def current(_: StoredState) -> World:
        return world

    monkeypatch.setattr(StoredState, "current", current)
    monkeypatch.setattr(planning, "time", SimpleNamespace(time=lambda: next(moments)))
    for seconds in ("7s", "8s", "9s"):
        put_plan(api, timeout(request_timeout=seconds))

    assert [now for now, _ in linted] == [1_000.0, 1_000.0, 1_000.0, 2_000.0, 2_000.0]
