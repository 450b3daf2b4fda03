"""The timeline: who wrote what, and what became of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from cp.access.rights_file import rights_of
from cp.api.authentication import AccessControl
from cp.api.recent_changes import RecentChanges
from cp.model.document import Document
from cp.model.names import Key
from cp.model.registration import WAY
from cp.resources.rollout import rollout_key, step_origin
from cp.resources.world import World
from cp.serving.delivery import ChangeReach
from cp.store.port import Author, Put
from tests.access import forge
from tests.api.conftest import ADMINS, KINDS, RIGHTS, Api, FixedState, NobodyThere, Unit
from tests.api.samples import dataplane, timeout
from tests.api.test_door import OF_MEMBER, OF_TEAM, bearer, documents

READERS = rights_of(
    "rights: [{groups: [team], may: [read], meshes: [default], kinds: [MeshTimeout]}]", "access.yaml", KINDS, ADMINS
)


@dataclass
class Reaching(NobodyThere):
    reached: Sequence[Sequence[ChangeReach]] = ()
    asked: list[Collection[int]] = field(default_factory=list)

    async def reaches(self, revisions: Collection[int]) -> Sequence[Sequence[ChangeReach]]:
        self.asked.append(sorted(revisions))
        return self.reached


def timeout_of(name: str = "slow", mesh: str = "default") -> Put:
    return Put(Document(Key("MeshTimeout", mesh, name), timeout(name, mesh=mesh)))


def api_of(start: Unit, observed: Reaching, rights: object = RIGHTS) -> Api:
    access = AccessControl(lambda: rights, clock=lambda: forge.NOW)  # type: ignore[arg-type,return-value]
    return start(observed=observed, access=access, state=FixedState(World.of(documents(), KINDS)))


def test_a_write_says_who_made_it_and_what_became_of_it(start: Unit) -> None:
    refused = ChangeReach(1, 2, 1000.0, 3, have=2, refusals=1, refused=("default.a", "other.a"), answered_at=1000.25)
    taken = ChangeReach(0, 1, 999.0, 2, have=2, answered_at=999.5)
    observed = Reaching([[taken, refused]])
    api = api_of(start, observed)
    api.run(api.store.write(timeout_of("a"), timeout_of("b"), author=Author("jane", "apply from 192.0.2.7")))
    api.run(api.store.write(timeout_of("c"), author=Author("joe", "put from 192.0.2.8")))
    proxy = Put(Document(Key("Dataplane", "default", "web-9"), dataplane("web-9")))
    api.run(api.store.write(proxy, author=Author("proxy", f"{WAY} from 192.0.2.9")))

    data = api.get("/_changes").json()

    second, first = data["items"]
    assert observed.asked == [[1, 2]]
    assert (first["revision"], first["author"], first["origin"]) == (1, "jane", "apply from 192.0.2.7")
    assert [(each["name"], each["change"]) for each in first["resources"]] == [("a", "Created"), ("b", "Created")]
    assert first["reach"] == {
        "revisions": [1, 1],
        "published": "1970-01-01T00:16:39.000000Z",
        "inForce": "1970-01-01T00:16:39.500000Z",
        "proxies": 2,
        "have": 2,
        "waiting": 0,
        "gone": 0,
        "refusals": 0,
        "failed": 0,
        "limited": 0,
        "refused": [],
        "complete": True,
    }
    assert (second["reach"]["inForce"], second["reach"]["refused"]) == (None, ["default.a", "other.a"])
    assert (data["newest"], data["oldest"], data["next"]) == (3, 0, None)


@pytest.mark.parametrize("unbuilt", ["failed", "limited"])
def test_an_unbuilt_part_is_not_in_effect(start: Unit, unbuilt: str) -> None:
    changes: dict[str, Any] = {unbuilt: 1}
    reach = replace(ChangeReach(0, 1, 1.0, 2, have=1, answered_at=2.0), **changes)
    api = api_of(start, Reaching([[reach]]))
    api.run(api.store.write(timeout_of("a")))

    (item,) = api.get("/_changes").json()["items"]

    assert (item["reach"][unbuilt], item["reach"]["inForce"]) == (1, None)


def test_of_what_nobody_remembers_it_says_so_and_of_what_some_do_that_it_is_not_all(start: Unit) -> None:
    api = api_of(start, Reaching([[ChangeReach(0, 1, 1.0, 2, have=2)], []]))
    api.run(api.store.write(timeout_of("a")))
    api.run(api.store.write(timeout_of("b")))

    second, first = api.get("/_changes").json()["items"]

    assert second["reach"] is None
    assert (first["reach"]["complete"], first["reach"]["inForce"]) == (False, "1970-01-01T00:00:01.000000Z")


def test_nobody_is_told_of_a_write_that_he_may_not_read_nor_whom_it_reached_where_he_may_not_look(start: Unit) -> None:
    reached = [[ChangeReach(number, number + 1, 1.0, 1, refusals=1, refused=("other.a",)) for number in range(3)]]
    for rights, has_reach in ((OF_TEAM, True), (READERS, False)):
        api = api_of(start, Reaching(reached), rights)
        api.run(api.store.write(timeout_of("a"), timeout_of("a", "other")))
        api.run(api.store.write(timeout_of("b", "other"), author=Author("secretive")))

        answer = api.get("/_changes", headers=bearer(OF_MEMBER), peer="192.0.2.1")

        (item,) = answer.json()["items"]
        assert ("reach" in item) == has_reach
        assert [each["mesh"] for each in item["resources"]] == ["default"]
        assert "other" not in answer.text
        assert "secretive" not in answer.text


def test_pages_follow_each_other(start: Unit) -> None:
    api = api_of(start, Reaching())
    for number in range(5):
        api.run(api.store.write(timeout_of(f"slow-{number}")))

    first = api.get("/_changes?size=2").json()
    second = api.get(f"/_changes?size=2&before={first['next']}").json()

    assert [item["revision"] for item in (*first["items"], *second["items"])] == [5, 4, 3, 2]


def test_writes_are_counted_and_not_their_resources(start: Unit) -> None:
    api = api_of(start, Reaching())
    for number in range(3):
        api.run(api.store.write(*(timeout_of(f"slow-{number}-{each}") for each in range(30))))

    page = api.get("/_changes?size=2").json()

    assert [(item["revision"], len(item["resources"])) for item in page["items"]] == [(3, 30), (2, 30)]
    assert page["next"] == 2
    assert [item["revision"] for item in api.get("/_changes?size=2&before=2").json()["items"]] == [1]


def rollout_at(step: int) -> Put:
    key = rollout_key("default")
    return Put(Document(key, {"type": key.type, "mesh": key.mesh, "name": key.name, "spec": {"step": step}}))


def rolled_out(api: Api) -> None:
    """A rollout that somebody begins and pauses, that takes two steps, and that ends: revisions 1 to 5."""
    jane = Author("jane", "apply from 192.0.2.7")
    api.run(api.store.write(rollout_at(0), author=jane))
    api.run(api.store.write(rollout_at(1), author=Author("control plane", step_origin(1))))
    api.run(api.store.write(rollout_at(2), author=Author("jane", "rollout pause from 192.0.2.7")))
    api.run(api.store.write(rollout_at(3), author=Author("control plane", step_origin(1))))
    api.run(api.store.write(timeout_of("a"), rollout_at(4), author=Author(jane.name, step_origin(1))))


def test_steps_of_a_rollout_are_left_out_of_the_timeline_and_what_people_do_with_it_is_not(start: Unit) -> None:
    api = api_of(start, Reaching())
    rolled_out(api)

    items = api.get("/_changes").json()["items"]

    assert [item["revision"] for item in items] == [5, 3, 1]
    assert [(each["type"], each["name"]) for each in items[0]["resources"]] == [("MeshTimeout", "a")]
    assert (items[0]["author"], items[0]["origin"]) == ("jane", "rollout 1")
    assert [each["type"] for item in items[1:] for each in item["resources"]] == ["Rollout", "Rollout"]


def test_the_history_leaves_out_the_same_where_it_is_asked_to_and_counts_it(start: Unit) -> None:
    api = api_of(start, Reaching())
    rolled_out(api)

    whole = api.get("/_history").json()
    without = api.get("/_history?rollouts=false").json()

    assert [item["revision"] for item in whole["items"]] == [5, 5, 4, 3, 2, 1]
    assert [(item["revision"], item["type"]) for item in without["items"]] == [
        (5, "MeshTimeout"),
        (3, "Rollout"),
        (1, "Rollout"),
    ]
    assert (without["leftOut"], without["stepsLeftOut"], whole["stepsLeftOut"]) == (0, 3, 0)


def test_the_feed_leaves_out_the_same(start: Unit) -> None:
    api = api_of(start, Reaching())
    changes = RecentChanges(api.store)
    api.run(changes.read_up_to(0, "count"))
    rolled_out(api)
    api.run(changes.read_up_to(5, "count"))

    told = changes.since(0)
    assert told is not None
    assert [(change.revision, change.key.type) for change in told] == [
        (1, "Rollout"),
        (3, "Rollout"),
        (5, "MeshTimeout"),
    ]
