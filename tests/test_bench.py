"""What the benchmark counts, on a mesh that is too small to take time. Times are not looked at."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bench import reachability, store
from bench.mtls import stand as mtls
from bench.mtls.mesh import certificate_names
from bench.mtls.promises import counted, own
from bench.mtls.stand import Size
from bench.serving.edge import HTTP, HTTPS
from bench.serving.gateways import COLD as COLD_GATEWAY
from bench.serving.gateways import GatewayResult, GatewayStand, gateway_promises
from bench.serving.promises import exponent, promises
from bench.serving.scenarios import AGAIN, COLD, ENDPOINT, FEW, ROUTE, SAME, UNRELATED, scenarios
from bench.serving.stand import ScenarioResult, Stand
from generators.envoy.names import mesh_identity
from tests.support.envoy import envoy_binary
from tests.support.postgres import needs_postgres

PROXIES = SERVICES = 5
OWN = 1  # each proxy has an inbound
HOSTNAMES = 5
SIZE = 20
TIMES = 2  # that each edit is made; only a time gets better by more


KINDS = ["delta", "sotw"]

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=KINDS)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, ScenarioResult]:
    stand = Stand(tmp_path_factory.mktemp("bench"), PROXIES, SERVICES, delta=request.param == "delta")
    few = (replace(scenario, edits=scenario.edits[:TIMES]) for scenario in scenarios(SERVICES))
    return {found.scenario: found for found in stand.run(scenario for scenario in few if not scenario.takes_turns)}


def test_everybody_gets_everything_from_cold(found: dict[str, ScenarioResult]) -> None:
    resources = found[COLD].middle.resources

    assert resources["endpoints"] == PROXIES * SERVICES
    assert resources["routes"] == PROXIES * (SERVICES + OWN)


@pytest.mark.parametrize(("scenario", "kind"), [(ROUTE, "routes"), (ENDPOINT, "endpoints")])
def test_an_edit_sends_one_resource_to_each(found: dict[str, ScenarioResult], scenario: str, kind: str) -> None:
    for one in found[scenario].measured:
        assert (one.messages, one.resources) == (Counter({kind: PROXIES}), Counter({kind: PROXIES}))
        assert one.fragments == 1


def test_an_edit_for_some_sends_to_those(found: dict[str, ScenarioResult]) -> None:
    assert all(one.messages == Counter({"routes": PROXIES}) for one in found[FEW].measured)


@pytest.mark.parametrize("scenario", [UNRELATED, SAME])
def test_what_changes_nothing_for_envoy_sends_nothing(found: dict[str, ScenarioResult], scenario: str) -> None:
    assert [one.messages.total() for one in found[scenario].measured] == [0]


def test_who_comes_back_with_what_it_has_is_sent_no_resource(found: dict[str, ScenarioResult]) -> None:
    assert found[AGAIN].middle.resources.total() == 0


def test_the_floor_sends_the_same(found: dict[str, ScenarioResult]) -> None:
    for one in found.values():
        if one.scenario != AGAIN:
            assert [floor.size for floor in one.floor] == [measured.size for measured in one.measured]
            assert [floor.resources for floor in one.floor] == [measured.resources for measured in one.measured]


def test_a_promise_that_is_not_kept_is_marked(found: dict[str, ScenarioResult]) -> None:
    held = {one.says.partition(": ")[2]: one.held for one in promises([found[SAME], found[ROUTE]], PROXIES + 1)}

    assert held["nothing is sent"]
    assert not held["one resource of routes to each, and nothing else"]


def test_an_exponent_is_found_for_each_size() -> None:
    costs = {(proxies, services): proxies * services**2.0 for proxies in (10, 100) for services in (10, 100, 1000)}

    assert exponent(costs, 0) == pytest.approx(1)
    assert exponent(costs, 1) == pytest.approx(2)


def test_one_size_tells_nothing_about_growth() -> None:
    assert exponent({(10, 10): 1.0}, 0) is None


@pytest.mark.parametrize("kind", KINDS)
def test_each_proxy_gets_its_own_certificate_and_a_renewal_is_one_message(kind: str, tmp_path: Path) -> None:
    size = Size(PROXIES, SERVICES, rounds=1, edits=1, lifetime="4s")
    found = mtls.Stand(tmp_path, size, delta=kind == "delta").run()

    assert [promise for promise in counted(found, size) if not promise.held] == []


def test_an_edit_of_a_permission_reaches_those_alone_whom_it_is_for() -> None:
    held = {says: is_held for says, _, is_held in reachability.promises([reachability.measure(SIZE)])}

    assert held["an edit for one caller is for one proxy"]
    assert held["an edit for everybody is for all others"]


def test_a_permission_that_reaches_more_is_noticed() -> None:
    row = {"size": 20.0, "cold": 9.0, "for_one": 0.1, "for_all": 1.0, "proxies_of_one": 2.0, "proxies_of_all": 3.0}

    assert [is_held for _, _, is_held in reachability.promises([row])] == [False, False, True, True, True]


def test_a_certificate_of_another_proxy_is_noticed() -> None:
    size = Size(2, 2)
    first, second = ([_certificate(number)] for number in range(2))

    assert own({"default.p0": first, "default.p1": second}, size).held
    assert not own({"default.p0": second, "default.p1": first}, size).held
    assert not own({"default.p0": [*first, *second], "default.p1": second}, size).held
    assert not own({"default.p0": first}, size).held


@pytest.fixture(scope="module")
def at_gateways(tmp_path_factory: pytest.TempPathFactory) -> list[GatewayResult]:
    return GatewayStand(tmp_path_factory.mktemp("gateways"), envoy_binary(), HOSTNAMES).run(times=TIMES)


@pytest.mark.envoy
def test_an_edit_sends_a_gateway_one_table_and_a_certificate_alone(at_gateways: list[GatewayResult]) -> None:
    counted_promises = [each for each in gateway_promises(at_gateways, HOSTNAMES) if "in force" not in each.says]

    assert [each for each in counted_promises if not each.held] == []
    assert len(counted_promises) > len(at_gateways)


@pytest.mark.envoy
def test_a_gateway_is_sent_a_table_for_each_hostname_of_tls_and_one_without(at_gateways: list[GatewayResult]) -> None:
    tables = {each.proxy: each.middle.resources for each in at_gateways if each.scenario == COLD_GATEWAY}

    assert tables[HTTPS]["RouteConfiguration"] == HOSTNAMES
    assert tables[HTTP]["RouteConfiguration"] == 1


@pytest.mark.envoy
def test_more_than_one_table_is_noticed(at_gateways: list[GatewayResult]) -> None:
    held = {each.says: each.held for each in gateway_promises(at_gateways, HOSTNAMES + 1)}

    assert not held["https gateway, a timeout for all: each route table once, and nothing else"]


def _certificate(number: int) -> dict[str, object]:
    names = sorted(certificate_names(number, services=2))
    return {"secret": mesh_identity("default"), "uris": names, "key": str(number), "fits": True}


def test_every_follower_of_a_store_is_given_every_write_that_is_timed() -> None:
    needs_postgres()

    found = store.run(store.Options(rate=50, seconds=1, resources=50, growth=(0, 10)))

    assert len(found["feed"]) == store.FOLLOWERS  # it stops where one of them misses a write
    assert found["growth"].keys() == {0, 10}
