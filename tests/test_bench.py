"""What the benchmark counts, on a mesh that is too small to take time. Times are not looked at."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bench.mtls import stand as mtls
from bench.mtls.mesh import certificate_names
from bench.mtls.promises import counted, own
from bench.mtls.stand import Size
from bench.serving.promises import exponent, promises
from bench.serving.scenarios import AGAIN, COLD, ENDPOINT, FEW, ROUTE, SAME, UNRELATED, scenarios
from bench.serving.stand import ScenarioResult, Stand
from generators.envoy.names import mesh_identity

PROXIES = SERVICES = 5
OWN = 1  # each proxy has an inbound
TIMES = 2  # that each edit is made; only a time gets better by more


@pytest.fixture(scope="module", params=["delta", "sotw"])
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


@pytest.mark.parametrize("kind", ["delta", "sotw"])
def test_each_proxy_gets_its_own_certificate_and_a_renewal_is_one_message(kind: str, tmp_path: Path) -> None:
    size = Size(PROXIES, SERVICES, rounds=1, edits=1, lifetime="4s")
    found = mtls.Stand(tmp_path, size, delta=kind == "delta").run()

    assert [promise for promise in counted(found, size) if not promise.held] == []


def test_a_certificate_of_another_proxy_is_noticed() -> None:
    size = Size(2, 2)
    first, second = ([_certificate(number)] for number in range(2))

    assert own({"default.p0": first, "default.p1": second}, size).held
    assert not own({"default.p0": second, "default.p1": first}, size).held
    assert not own({"default.p0": [*first, *second], "default.p1": second}, size).held
    assert not own({"default.p0": first}, size).held


def _certificate(number: int) -> dict[str, object]:
    names = sorted(certificate_names(number, services=2))
    return {"secret": mesh_identity("default"), "uris": names, "key": str(number), "fits": True}
