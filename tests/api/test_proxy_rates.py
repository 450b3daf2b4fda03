"""How often a proxy may register its Dataplane, how large that may be, and how many callers may wait."""

from __future__ import annotations

import json
from typing import Any, Final

import httpx
import pytest

from cp.agent.retrying import LONGEST_ASKED, RetryTime, pause_after, persistently
from cp.api import delivery
from cp.api.proxy_rates import AT_ONCE, LARGEST_DATAPLANE, REQUESTS_AT_ONCE, ProxyRates
from cp.api.shares import WaitingLimits, WaitingShares
from cp.client.failures import RequestRejected, rejected
from cp.client.http import HttpAnswer
from cp.client.problem import Problem
from cp.model.token_buckets import MOST_KEYS, TokenBucket, TokenBuckets
from tests.access import forge
from tests.api.conftest import Api
from tests.api.samples import dataplane
from tests.api.test_bootstrap_door import WEB, asked, locked, token
from tests.api.test_door import JANE, OF_PROXY, Entrance, bearer, entrance

__all__ = ["entrance", "locked"]

ONE: Final = "/meshes/default/dataplanes/web-1"
OTHER: Final = "/meshes/default/dataplanes/db-1"
OF_OTHER: Final = forge.token({**forge.DATAPLANE, "Name": "db-1", "jti": "of-db"})


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def api(entrance: Entrance, clock: Clock) -> Api:
    start = entrance._start
    entrance._start = lambda **changes: start(proxy_rates=ProxyRates(clock), **changes)
    return entrance.api()


def register(api: Api, where: str = ONE, proxy: str = OF_PROXY, **more: Any) -> httpx.Response:
    name = where.rpartition("/")[2]
    document = dataplane(name, service=name.partition("-")[0]) | more
    headers = bearer(proxy) | {"koguma-owner": "run"}
    return api.request("PUT", where, json=document, headers=headers, peer="192.0.2.1")


def limited(api: Api, limit: str) -> float:
    value = api.collaborators.metrics.registry.get_sample_value("koguma_api_limited_total", {"limit": limit})
    return value or 0.0


def test_registrations_are_limited_even_if_they_change_nothing(api: Api, clock: Clock) -> None:
    assert {register(api).status_code for _ in range(AT_ONCE)} <= {200, 201}
    before = api.run(api.store.revision())

    answer = register(api)

    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    assert "Dataplane default/web-1 is registered too often: 30 at once and 1 a second" in answer.json()["detail"]
    for method, path in (("DELETE", ONE), ("POST", f"{ONE}/_readiness")):
        answer = api.request(method, path, json={}, headers=bearer(OF_PROXY), peer="192.0.2.1")
        assert answer.status_code == 429, method
    assert (limited(api, "registrations"), api.run(api.store.revision())) == (3, before)
    assert register(api, OTHER, OF_OTHER).is_success
    assert api.get(ONE, headers=bearer(OF_PROXY)).status_code != 429
    clock.now += 1
    assert register(api).is_success


def test_a_token_uses_up_no_other_dataplane(api: Api) -> None:
    answers = {register(api, OTHER, OF_PROXY).status_code for _ in range(AT_ONCE + 1)}

    assert answers == {403, 429}
    assert register(api, OTHER, OF_OTHER).is_success


def test_people_write_dataplanes_as_often_as_they_like(api: Api) -> None:
    answers = [api.put(ONE, dataplane()) for _ in range(2 * AT_ONCE)]

    assert all(answer.is_success for answer in answers)


def test_requests_of_all_sorts_are_limited(api: Api, clock: Clock) -> None:
    claims = {"headers": bearer(OF_PROXY), "peer": "192.0.2.1"}
    for _ in range(REQUESTS_AT_ONCE):
        api.collaborators.proxy_rates._requests.bucket((str(forge.DATAPLANE["jti"]), "192.0.2.1")).take(1.0, clock())

    answer = api.get(ONE, **claims)

    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    assert limited(api, "requests of a proxy") == 1
    assert api.get(ONE, headers=bearer(OF_PROXY), peer="192.0.2.2").status_code != 429
    clock.now += 1
    assert api.get(ONE, **claims).status_code != 429


def test_a_registered_dataplane_has_a_size(api: Api) -> None:
    tags = {"kuma.io/service": "web", "note": "x" * LARGEST_DATAPLANE}
    inbound = {"port": 80, "tags": tags}
    large: dict[str, Any] = {"networking": {"address": "192.0.2.7", "inbound": [inbound]}}

    answer = register(api, **large)

    assert answer.status_code == 413
    assert f"{LARGEST_DATAPLANE // 1024} KiB" in answer.json()["detail"] or "65536 bytes" in answer.json()["detail"]
    assert "KOGUMA_BODY_LIMIT is" in answer.json()["detail"]
    assert api.put(ONE, dataplane() | large).status_code != 413


def test_bootstrap_requests_are_limited_so_that_kuma_dp_waits(locked: Api) -> None:
    """kuma-dp ends on any status 4xx, and tries again after others."""
    good = token()
    locked.collaborators.proxy_rates._clock = Clock()
    for _ in range(AT_ONCE):
        assert asked(locked, WEB, good).status_code == 200
    answer = asked(locked, WEB, good)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert "registered too often" in answer.json()["detail"]


def test_a_dataplane_in_a_bootstrap_request_has_a_size(locked: Api) -> None:
    text = json.dumps(dataplane()) + " " * LARGEST_DATAPLANE

    answer = asked(locked, {**WEB, "dataplaneResource": text}, token())

    assert (answer.status_code, "65536 bytes are the most" in answer.json()["detail"]) == (413, True)


def test_an_agent_waits_as_long_as_it_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("cp.agent.retrying.time.sleep", pauses.append)
    body = json.dumps({"status": 429, "detail": "too often"}).encode()
    problems = [rejected(HttpAnswer(429, {"retry-after": "7"}, body), "http://cp"), Problem("other")]

    def attempt() -> str:
        if len(problems) > 1:
            raise problems.pop(0)
        return "done"

    assert persistently(attempt, RetryTime(60, lambda _: None)) == "done"
    assert 7 <= pauses[0] < 8
    assert pause_after(RequestRejected(429, "", retry_after=1e9), 1.0) <= LONGEST_ASKED + 1
    assert pause_after(RequestRejected(404, ""), 1.0) <= 1


def test_callers_that_wait_are_limited(entrance: Entrance, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = WaitingLimits("waiting requests", most=2, most_without_token=1, most_of_caller=1)
    monkeypatch.setattr(delivery, "LIMITS", limits)
    api = entrance.api()
    share = []
    take = WaitingShares.take

    def noted(self: Any, *arguments: Any) -> Any:
        share.append(self)
        return take(self, *arguments)

    monkeypatch.setattr(WaitingShares, "take", noted)
    asked_for = {"params": {"wait": "1s"}, "headers": bearer(JANE), "peer": "192.0.2.1"}
    for _ in range(3):  # one after the other, each gives its place back
        assert api.get("/_delivery", **asked_for).status_code == 200
    share[0]._open["user jane"] = 1
    answer = api.get("/_delivery", **asked_for)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
    assert "1 waiting requests are open for user jane" in answer.json()["detail"]
    assert limited(api, "waiting requests") == 1
    assert api.get("/_delivery", headers=bearer(JANE), peer="192.0.2.1").status_code == 200, "it does not wait"


def test_buckets_are_refilled_and_forgotten() -> None:
    bucket = TokenBucket(burst=2, rate=0.5)
    assert [bucket.take(1, 0.0) for _ in range(3)] == [0.0, 0.0, 2.0]
    assert bucket.take(1, 2.0) == 0
    assert bucket.spend(10, 2.0) == 10
    buckets = TokenBuckets[int](1, 1)
    for key in range(MOST_KEYS + 5):
        buckets.bucket(key)
    assert len(buckets) == MOST_KEYS
