"""A legacy policy of which we cannot work out what it comes to costs itself, and is named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from cp.insight.lint import lint
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import kinds
from cp.resources.kinds import Kinds, LegacyConf, LegacySide
from cp.resources.legacy.gateway_route import conf_of_route
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.compiler import CompiledProxy, Compiler
from cp.translate.packing import ROUTES
from tests.random_mesh import MESH, document
from tests.rules.test_gateway_routes import EDGE, GATEWAY, route, to
from tests.snapshots import policies

EVERYBODY: Final = [{"match": {"kuma.io/service": "*", "kuma.io/protocol": "http"}}]
NOBODY: Final = [{"match": {"kuma.io/service": "nobody", "kuma.io/protocol": "http"}}]
SERVICES: Final = [{"match": {"kuma.io/service": "*"}}]
REFUSED: Final = "1m6s"
"""A timeout that the faulty kind can make nothing of."""

CONFS: Final[Mapping[str, Any]] = {
    "Timeout": {"connectTimeout": "66s"},
    "Retry": {"tcp": {"maxConnectAttempts": 3}},
    "CircuitBreaker": {"thresholds": {"maxConnections": 3}},
    "HealthCheck": {"interval": "1s", "timeout": "1s", "unhealthyThreshold": 1, "healthyThreshold": 1},
    "TrafficLog": None,
    "TrafficRoute": {"destination": {"kuma.io/service": "api"}},
    "TrafficPermission": None,
    "RateLimit": {"http": {"requests": 1, "interval": "1s"}},
    "FaultInjection": {"abort": {"percentage": 1, "httpStatus": 500}},
    "TrafficTrace": None,
    "ProxyTemplate": {"modifications": [{"listener": {"operation": "remove"}}]},
}
LEGACY: Final = {name: kind for name, kind in kinds(policies()).items() if kind.legacy is not None}


def faulty(kind: str, confs: Any = None) -> Kinds:
    """The kinds, of which one comes to nothing that we could say, always or for one document."""
    shape = LEGACY[kind].legacy
    assert shape is not None

    def refused(data: Mapping[str, Any], mesh: Mapping[str, Any], protocol: str) -> Iterator[LegacyConf]:
        if CONFS[kind] is None or data.get("conf") == CONFS[kind]:
            raise RecursionError("too deep")
        yield from shape.confs(data, mesh, protocol)

    broken = replace(LEGACY[kind], legacy=replace(shape, confs=confs or refused))
    return Kinds(*{**kinds(policies()), kind: broken}.values())


def policy(kind: str, whom: Any, conf: Any, name: str = "cursed") -> Document:
    shape = LEGACY[kind].legacy
    assert shape is not None
    said = {} if conf is None or kind == "TrafficPermission" else {"conf": conf}
    if shape.side is LegacySide.PROXY:
        return document(kind, name, selectors=whom, **said)
    sides = (SERVICES, whom) if shape.side is LegacySide.INBOUND else (whom, SERVICES)
    return document(kind, name, sources=sides[0], destinations=sides[1], **said)


def web() -> Document:
    inbound = [{"port": 8080, "tags": {"kuma.io/service": "web", "kuma.io/protocol": "http"}}]
    outbound = [{"port": 10001, "tags": {"kuma.io/service": "web"}}]
    return document("Dataplane", "web", networking={"address": "10.0.0.1", "inbound": inbound, "outbound": outbound})


FINE: Final = (
    policy("Timeout", EVERYBODY, {"connectTimeout": "3s"}, "fine"),
    policy("Retry", EVERYBODY, {"http": {"numRetries": 7}}, "fine"),
    policy("RateLimit", EVERYBODY, {"http": {"requests": 9, "interval": "1s"}}, "fine"),
)


def world(known: Kinds, *documents: Document) -> World:
    made = World.of([MESH, web(), *documents], known)
    assert not [str(finding) for finding in made.findings if finding.severity == "error"]
    return made


def proxy_of(here: World, name: str = "web") -> Resource:
    resource = here.get(Key("Dataplane", "default", name))
    assert resource is not None
    return resource


def compiled(here: World) -> CompiledProxy:
    return Compiler(policies()).proxy(here, proxy_of(here))


def failed(here: World) -> list[Key | None]:
    return [finding.resource for finding in lint(policies(), here) if finding.code == "failed"]


@pytest.mark.parametrize("kind", sorted(LEGACY))
def test_a_policy_that_fails_and_selects_nobody_is_told_and_changes_nothing(kind: str) -> None:
    cursed = policy(kind, NOBODY, CONFS[kind])
    fine = [each for each in FINE if each.key.type != kind]
    with_it = world(faulty(kind), *fine, cursed)
    proxy = compiled(with_it)

    assert proxy.snapshot == compiled(world(faulty(kind), *fine)).snapshot
    assert proxy.failures == ()
    assert failed(with_it) == [cursed.key]


@pytest.mark.parametrize("kind", sorted(LEGACY))
def test_a_policy_that_fails_says_nothing_and_is_named_where_it_would_hold(kind: str) -> None:
    cursed = policy(kind, EVERYBODY, CONFS[kind])
    fine = [each for each in FINE if each.key.type != kind]
    with_it = world(faulty(kind), *fine, cursed)
    proxy = compiled(with_it)
    (failure,) = proxy.failures

    assert proxy.snapshot == compiled(world(faulty(kind), *fine)).snapshot
    assert failure.policies == (cursed.key,)
    assert f"a fault of koguma in {kind} cursed, which serves nothing: RecursionError" in str(failure)
    assert failed(with_it) == [cursed.key]


def test_what_a_policy_came_to_before_stays_and_the_rest_is_news() -> None:
    known = faulty("Timeout")
    good = policy("Timeout", EVERYBODY, {"connectTimeout": "5s"})
    retry = policy("Retry", EVERYBODY, {"http": {"numRetries": 1}}, "fine")
    compiler, before = Compiler(policies()), world(known, good, FINE[1])
    compiler.snapshot(before, proxy_of(before))
    cursed = policy("Timeout", EVERYBODY, CONFS["Timeout"])

    after = before.next({cursed.key: cursed}, 1)
    once = compiler.proxy(after, proxy_of(after))
    again = after.next({cursed.key: replace(cursed, data={**cursed.data}), retry.key: retry}, 2)
    twice = compiler.proxy(again, proxy_of(again))

    assert once.snapshot == compiled(before).snapshot
    assert twice.snapshot == compiled(world(known, good, retry)).snapshot
    assert [failure.is_kept for failure in (*once.failures, *twice.failures)] == [True, True]
    mended = again.next({good.key: good}, 3)
    assert compiler.proxy(mended, proxy_of(mended)).failures == ()


def test_a_conf_that_its_policy_cannot_read_stops_no_proxy_for_which_it_does_not_hold() -> None:
    def unreadable(*_: Any) -> Iterator[LegacyConf]:
        yield LegacyConf("MeshAccessLog", {"backends": 7})

    known = faulty("TrafficLog", unreadable)

    assert compiled(world(known, *FINE, policy("TrafficLog", NOBODY, None))).failures == ()


def test_a_gateway_route_that_fails_leaves_the_other_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(data: Mapping[str, Any]) -> LegacyConf | None:
        if "cursed" in str(data):
            raise RecursionError("too deep")
        return conf_of_route(data)

    monkeypatch.setattr("cp.rules.legacy.gateway_routes.conf_of_route", refused)
    elsewhere = route("elsewhere", to("cursed"), match={"kuma.io/service": "other"})
    cursed, known = route("cursed", to("cursed")), kinds(policies())
    here = world(known, GATEWAY, EDGE, cursed, elsewhere, route("fine", to("web", "/fine")))
    proxy = Compiler(policies()).proxy(here, proxy_of(here, "edge-1"))

    assert [failure.policies for failure in proxy.failures] == [(cursed.key,)]
    assert b"/fine" in b"".join(packed.body for packed in proxy.snapshot.of(ROUTES))
    assert set(failed(here)) == {cursed.key, elsewhere.key}
