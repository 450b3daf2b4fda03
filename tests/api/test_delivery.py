"""How far changes have come, and where proxies stand, over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from cp.access.rights import Rights, Subjects
from cp.ads.connection import ConnectionRecord
from cp.ads.session.messages import Nack, NackedResource, Node, ResponseCounts, TypeStatus
from cp.api.authentication import AccessControl
from cp.cli.explained import lines
from cp.cli.proxies import dataplanes, delivery
from cp.cli.text_sections import TextWidth
from cp.identity.leaf import Certificate
from cp.model.names import Key
from cp.resources.world import World
from cp.serving.delivery import ChangeProgress, Delivery, NackReport, PolicyPart, Presence, ProxyState, StandingNack
from cp.serving.delivery.delivery import StreamDelivery, TypeDelivery
from cp.translate.packing import CLUSTER, LISTENER
from tests.api.conftest import KINDS, RIGHTS, Api, FixedState, NobodyThere, Unit
from tests.api.samples import dataplane, timeout
from tests.api.test_feed import Changing
from tests.rollouts.test_assignment import rollout

WEB = Key("Dataplane", "default", "web-1")
PLACE = PolicyPart(Key("MeshProxyPatch", "default", "patch"), "spec.default.appendModifications[0]", "patch.yaml", 7)
NACK = Nack("2", "cluster backend: no", ("backend",))
REPORT = NackReport("default.web-1", WEB, CLUSTER, NACK, 20.0, 10.0, ("backend",), True, (PLACE,), (PLACE,), (PLACE,))
NODE = Node("default.web-1", version="1.36.0", metadata={"version": {"kumaDp": {"version": "2.14.3"}}})
VISIT = ConnectionRecord(
    NODE, "delta", 0.0, None, 20.0, (ResponseCounts(CLUSTER, 3, 2, 1), ResponseCounts(LISTENER, 1, 1, 0))
)


@dataclass
class Seen(NobodyThere):
    """What is seen of one proxy that refuses something."""

    presence: Presence
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]:
        return dict.fromkeys(dataplanes, self.presence)

    async def delivery(self, dataplane: Key) -> Delivery:
        status = TypeStatus(CLUSTER, "2", "1", (NACK,), False, 3, 9, 900, (NackedResource("backend", "v2", "v1"),))
        of_type = TypeDelivery(status, 10.0, 2, 1, (StandingNack(NACK, 10.0, status.held_back, REPORT),))
        return Delivery(dataplane, self.presence, (StreamDelivery("delta", "1.36.0", 0.0, 20.0, (of_type,)),))

    async def nack_reports(self) -> Iterable[NackReport]:
        return [REPORT]

    async def progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> AsyncIterator[ChangeProgress]:
        self.asked.append((revisions, resources, within))
        yield ChangeProgress(7, 2, 1, waiting=("default.web-1",))
        yield ChangeProgress(7, 2, 1, refusing=("default.web-1",), nack_reports=(REPORT,), is_done=True)


@pytest.fixture
def seen() -> Seen:
    return Seen(Presence(ProxyState.REFUSED, 10.0, (VISIT,)))


@pytest.fixture
def seeing(start: Unit, api: Api, seen: Seen) -> Api:
    """An API that sees one proxy, which refuses something."""
    api.put("/meshes/default/dataplanes/web-1", dataplane()).raise_for_status()
    api.put("/meshes/default/dataplanes/web-2", dataplane("web-2")).raise_for_status()
    return start(store=api.store, state=FixedState(api.world()), observed=seen)


def test_a_proxy_that_has_no_certificate_though_it_should_is_told_of(start: Unit, api: Api, seen: Seen) -> None:
    mtls = {"enabledBackend": "ca", "backends": [{"name": "ca", "type": "builtin"}]}
    api.put("/meshes/default/dataplanes/web-1", dataplane()).raise_for_status()

    def told() -> dict[str, Any]:
        seeing = start(store=api.store, state=FixedState(api.world()), observed=seen)
        answer: dict[str, Any] = seeing.get("/meshes/default/dataplanes/web-1/_delivery").json()
        return answer

    assert "certificateFault" not in told()
    api.put("/meshes/default", {"type": "Mesh", "name": "default", "mtls": mtls}).raise_for_status()

    assert "nobody signs" in told()["certificateFault"]
    assert [line for line in delivery(told()) if line.startswith("It has no certificate") and "koguma lint" in line]
    seen.presence = replace(seen.presence, certificate=CERTIFICATE)
    assert "certificateFault" not in told()


CERTIFICATE = Certificate("default", "ca", "1", ("spiffe://default/web",), 0.0, 0.0, 1.0, None, 1)


def test_a_write_answers_with_the_revision_that_it_made_and_with_none_if_it_changed_nothing(api: Api) -> None:
    where = "/meshes/default/meshtimeouts/slow"
    first, again = api.put(where, timeout()), api.put(where, timeout())
    gone = api.delete(where)

    assert int(gone.headers["koguma-revision"]) == int(first.headers["koguma-revision"]) + 1
    assert "koguma-revision" not in again.headers
    assert first.headers["etag"] == again.headers["etag"]


def test_it_is_answered_at_once_how_far_everything_has_come(seeing: Api, seen: Seen) -> None:
    answer = seeing.get("/_delivery").json()

    assert (answer["proxies"], answer["have"], answer["refusing"], answer["done"]) == (2, 1, ["default.web-1"], True)
    (finding,) = answer["findings"]
    assert (finding["code"], finding["file"], finding["line"]) == ("refused-by-envoy", "patch.yaml", 7)
    assert seen.asked == [([], [], 0)]


def test_who_waits_is_told_line_by_line(seeing: Api, seen: Seen) -> None:
    query = {"revision": ["3", "4"], "resource": "MeshTimeout/default/slow", "wait": "1m"}

    answer = seeing.get("/_delivery", params=query)

    assert answer.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line)["done"] for line in answer.text.splitlines()] == [False, True]
    assert seen.asked == [([3, 4], [Key("MeshTimeout", "default", "slow")], 60.0)]


def test_head_is_judged_as_get(seeing: Api) -> None:
    answer = seeing.request("HEAD", "/_delivery", params={"revision": "3", "wait": "1m"})

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/x-ndjson"


@dataclass
class Away(NobodyThere):
    """Proxies that are not connected, and one that a rollout serves what it proposes."""

    async def progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> AsyncIterator[ChangeProgress]:
        yield ChangeProgress(7, 1, 0, waiting=("default.web-2",), is_done=True)


def test_who_is_expected_and_who_is_held_by_a_rollout_is_told_apart(start: Unit, api: Api) -> None:
    for name in ("web-1", "web-2"):
        api.put(f"/meshes/default/dataplanes/{name}", dataplane(name)).raise_for_status()
    slow = Key("MeshTimeout", "default", "slow")
    held = World.of([*(each.document for each in api.world()), rollout({slow: None}, ["web-2"])], KINDS)
    for alike_since, unknown in ((time.time() + 1, ["default.web-1", "default.web-2"]), (0.0, [])):
        since = partial(float, alike_since)
        begun = start(store=api.store, state=FixedState(held), observed=Away(), alike_since=since)
        of_slow = begun.get("/_delivery", params={"resource": "MeshTimeout/default/slow"}).json()
        of_mesh = begun.get("/_delivery", params={"resource": "Mesh/default"}).json()

        assert (of_slow["held"], of_mesh["held"]) == (["default.web-2"], [])
        assert (of_slow["unknown"], of_slow["missing"]) == (unknown, 1 + len(unknown))
        assert begun.get("/_delivery", params={"resource": "MeshTimeout/other/slow"}).json()["unknown"] == []


@pytest.mark.parametrize(("since", "is_expected"), [(1.0, True), (-60.0, False)])
def test_a_proxy_that_no_process_remembers_is_expected(start: Unit, api: Api, since: float, is_expected: bool) -> None:
    api.put("/meshes/default/dataplanes/web-1", dataplane("web-1")).raise_for_status()
    begun = start(store=api.store, state=FixedState(api.world()), alike_since=partial(float, time.time() + since))

    overview = begun.get("/meshes/default/dataplanes/web-1/_overview").json()
    standing = begun.get("/meshes/default/dataplanes/web-1/_delivery").json()

    assert (overview["status"], standing["status"]) == ("Offline", "Offline")
    assert ("expectedUntil" in overview, "expectedUntil" in standing) == (is_expected, is_expected)
    assert ("(expected back)" in dataplanes([overview])) == is_expected
    assert ("is expected to connect again until" in "".join(delivery(standing))) == is_expected


def test_what_does_not_fit_in_a_url_is_asked_in_a_body(seeing: Api, seen: Seen) -> None:
    asked = {"revisions": [3, 4], "resources": ["Mesh/default", "MeshTimeout/default/slow"]}

    assert seeing.post("/_delivery", json=asked).json()["done"]
    assert seen.asked == [([3, 4], [Key("Mesh", "", "default"), Key("MeshTimeout", "default", "slow")], 0)]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("revision=x", "`x` is no revision"),
        ("revision=-1", "Koguma-Revision"),
        ("revision=9223372036854775808", "`9223372036854775808` is no revision"),
        ("resource=slow", "write TYPE/MESH/NAME"),
        ("resource=a//b", "write TYPE/MESH/NAME"),
        ("wait=soon", "`soon` is not a duration"),
        ("wait=10", "write `10s`"),
        ("wait=11m", "not between 0s and 10m0s"),
        ("wait=-1s", "not between 0s and 10m0s"),
    ],
)
def test_a_question_that_is_none_is_answered_with_what_would_be_one(api: Api, query: str, said: str) -> None:
    answer = api.get(f"/_delivery?{query}")

    assert answer.status_code == 400
    assert said in answer.json()["detail"]


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[]", b'{"revision": 1}', b'{"revisions": ["x"]}'),
        *(b'{"revisions": [9223372036854775808]}', b'{"revisions": [-1]}'),
    ],
)
def test_a_body_that_is_no_question_is_refused(api: Api, body: bytes) -> None:
    answer = api.post("/_delivery", content=body, headers={"content-type": "application/json"})

    assert answer.status_code == 400
    assert "not a question about changes" in answer.json()["detail"]


def test_one_proxy_is_shown_with_what_it_refuses_why_and_what_it_has_instead(seeing: Api) -> None:
    answer = seeing.get("/meshes/default/dataplanes/web-1/_delivery").json()

    assert (answer["status"], answer["inSync"], answer["since"]) == ("Refused", False, "1970-01-01T00:00:10.000000Z")
    (clusters,) = answer["streams"][0]["types"]
    assert (clusters["type"], clusters["sent"], clusters["acked"]) == ("clusters", "2", "1")
    assert (clusters["responses"], clusters["accepted"], clusters["rejected"]) == (3, 2, 1)
    (refusal,) = clusters["refusals"]
    assert refusal["text"] == NACK.text
    assert refusal["resources"] == [{"name": "backend", "refused": "v2", "inForce": "v1"}]
    assert refusal["policies"] == [
        {
            "type": "MeshProxyPatch",
            "mesh": "default",
            "name": "patch",
            "path": "spec.default.appendModifications[0]",
            "file": "patch.yaml",
            "line": 7,
            "suspect": True,
        }
    ]
    assert [one["resource"] for one in answer["findings"]] == ["MeshProxyPatch default/patch"]


def test_a_proxy_that_was_never_there_is_offline(start: Unit, seeing: Api) -> None:
    api = start(store=seeing.store, state=FixedState(seeing.world()))

    answer = api.get("/meshes/default/dataplanes/web-1/_delivery").json()

    assert (answer["status"], answer["since"], answer["streams"], answer["lastConnection"]) == (
        "Offline",
        None,
        [],
        None,
    )
    assert "did you mean `web-1`" in api.get("/meshes/default/dataplanes/web-11/_delivery").json()["detail"]


def test_what_proxies_refuse_is_among_the_findings(seeing: Api) -> None:
    for path in ("/_lint", "/meshes/default/_lint"):
        assert "refused-by-envoy" in {one["code"] for one in seeing.get(path).json()["findings"]}


@pytest.mark.parametrize(
    "path", ["/meshes/default/dataplanes/web-1/_overview", "/meshes/default/dataplanes+insights/web-1"]
)
def test_an_overview_is_a_dataplane_with_its_connections_as_kuma_has_it(seeing: Api, path: str) -> None:
    answer = seeing.get(path).json()

    assert (answer["type"], answer["mesh"], answer["name"]) == ("DataplaneOverview", "default", "web-1")
    assert answer["dataplane"] == {"networking": dataplane()["networking"]}
    (connection,) = answer["dataplaneInsight"]["subscriptions"]
    assert connection["connectTime"] == "1970-01-01T00:00:00.000000Z"
    assert connection["status"] == {
        "lastUpdateTime": "1970-01-01T00:00:20.000000Z",
        "total": {"responsesSent": "4", "responsesAcknowledged": "3", "responsesRejected": "1"},
        "cds": {"responsesSent": "3", "responsesAcknowledged": "2", "responsesRejected": "1"},
        "eds": {},
        "lds": {"responsesSent": "1", "responsesAcknowledged": "1"},
        "rds": {},
    }
    assert connection["version"] == {"kumaDp": {"version": "2.14.3"}, "envoy": {"version": "1.36.0"}}
    assert answer["status"] == "Refused"


@pytest.mark.parametrize(
    "path",
    ["/meshes/default/dataplanes/_overview", "/meshes/default/dataplanes+insights", "/dataplanes/_overview"],
)
def test_overviews_are_listed_page_by_page(seeing: Api, path: str) -> None:
    first = seeing.get(path, params={"size": "1"}).json()
    second = seeing.get(first["next"]).json()

    assert (first["total"], second["next"]) == (2, None)
    assert [page["items"][0]["name"] for page in (first, second)] == ["web-1", "web-2"]
    assert [one["name"] for one in seeing.get(path, params={"name": "web-2"}).json()["items"]] == ["web-2"]


class Behind(Changing):
    """A control plane that has not entered the last write yet, until somebody waits for that."""

    def __init__(self, world: World, newest: World) -> None:
        super().__init__(world)
        self.newest = newest

    async def current(self) -> World:
        self.world = self.newest
        return self.world


@dataclass
class SeenBehind(NobodyThere):
    """A proxy that has what was served before the last write."""

    state: Behind

    async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]:
        is_old = self.state.world is not self.state.newest
        return dict.fromkeys(
            dataplanes, Presence(ProxyState.ONLINE if is_old else ProxyState.OUT_OF_SYNC, None, (VISIT,))
        )


@pytest.mark.parametrize("path", ["/dataplanes/_overview", "/meshes/default/dataplanes/web-1/_overview"])
def test_an_overview_speaks_of_what_was_written_before_and_names_its_revision(start: Unit, api: Api, path: str) -> None:
    api.put("/meshes/default/dataplanes/web-1", dataplane()).raise_for_status()
    documents = [stored.document for stored in api.run(api.store.read()).stored]
    state = Behind(World.of(documents, KINDS, 7), World.of(documents, KINDS, 8))

    answer = start(store=api.store, state=state, observed=SeenBehind(state)).get(path)

    assert answer.json().get("items", [answer.json()])[0]["status"] == "Out of sync"
    assert answer.headers["koguma-revision"] == "8"


def test_of_a_policy_it_is_told_what_a_proxy_refuses_of_it_and_what_it_has_not_yet(
    start: Unit, seeing: Api, seen: Seen
) -> None:
    spec = {"default": {"appendModifications": [{"cluster": {"operation": "Patch", "value": "connectTimeout: -5s"}}]}}
    patch = {"type": "MeshProxyPatch", "mesh": "default", "name": "patch", "spec": spec}
    where = "/meshes/default/meshproxypatches/patch"
    seeing.put(where, patch).raise_for_status()
    seeing = start(store=seeing.store, state=FixedState(seeing.world()), observed=seen)

    refusing, other = seeing.get(f"{where}/_resources/dataplanes").json()["items"]
    assert [proxy["status"] for proxy in (refusing, other)] == ["Refused", "Refused"]
    assert refusing["survives"][0]["refused"] == ["the cluster backend: cluster backend: no"]
    assert "refused" not in other["survives"][0]
    seen.presence = Presence(ProxyState.OUT_OF_SYNC, 10.0, (VISIT,))
    behind, _ = seeing.get(f"{where}/_resources/dataplanes").json()["items"]
    assert behind["status"] == "Out of sync"
    assert "refused" not in behind["survives"][0]


def test_an_explanation_says_that_the_proxy_refuses_what_it_explains(start: Unit, seeing: Api, seen: Seen) -> None:
    outbound = {"port": 10080, "tags": {"kuma.io/service": "web"}}
    where = "/meshes/default/dataplanes/web-1"
    seeing.put(where, dataplane(outbound=[outbound])).raise_for_status()
    seeing = start(store=seeing.store, state=FixedState(seeing.world()), observed=seen)
    answer = seeing.get(f"{where}/_explain", params={"call": "http://web/"}).json()

    refused = "the cluster backend: cluster backend: no"
    assert (answer["status"], answer["refused"]) == ("Refused", [refused])
    told = [text.strip() for text, _ in lines(answer, TextWidth(200))]
    place = told.index("NOT IN SYNC")
    assert told[place + 1 : place + 3] == [
        f"The proxy refuses {refused}",
        "The proxy refuses a part of what it was sent: above is what it should do, and not what it does now.",
    ]
    in_files = {name: value for name, value in answer.items() if name not in {"status", "refused"}}
    assert "NOT IN SYNC" not in [text for text, _ in lines(in_files, TextWidth(200))]


class Endless(NobodyThere):
    """Somebody never answers."""

    async def progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> AsyncIterator[ChangeProgress]:
        for _ in range(3):
            yield ChangeProgress(1, 1, 0, waiting=("default.web-1",))
        yield ChangeProgress(1, 1, 0, waiting=("default.web-1",), is_done=True)


@dataclass
class Moving:
    """Rights that are others after they were asked for so many times."""

    rights: list[Rights]

    def __call__(self) -> Rights:
        return self.rights.pop(0) if len(self.rights) > 1 else self.rights[0]


def test_who_waits_is_told_no_more_than_he_may_know_by_now(start: Unit) -> None:
    nobody = Rights(Subjects())
    for rights, told in (([RIGHTS], 4), ([RIGHTS, RIGHTS, RIGHTS, nobody], 2)):
        api = start(observed=Endless(), access=AccessControl(Moving(rights)))
        lines_told = api.post("/_delivery", json={"wait": "1s"}).text.splitlines()

        assert [json.loads(line)["waiting"] for line in lines_told] == [["default.web-1"]] * told
