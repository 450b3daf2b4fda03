"""A bad hour, made short: at its end every proxy has exactly what a full computation gives, and no request was lost.

`make soak` lets it last 10 minutes with 200 proxies and `make test-long` some seconds and half a minute.
"""

from __future__ import annotations

import asyncio
import statistics
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import psutil
import pytest

from cp.policies import kinds
from cp.resources.world import World
from cp.store.open import open_store
from cp.translate.compiler import Compiler
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES
from cp.translate.snapshot import Snapshot
from tests.snapshots import policies
from tests.soak.chaos import Chaos, of_fake, of_real
from tests.soak.crowd import Crowd
from tests.support.client import Traffic
from tests.support.control_plane import ControlPlane
from tests.support.envoy import Envoy
from tests.support.mesh import mesh_service
from tests.support.playground import Playground, playground
from tests.support.waiting import eventually

pytestmark = [pytest.mark.envoy, pytest.mark.long]

Versions = dict[str, dict[str, str]]

CALLERS = 4
SHORT = 4.0
"""Seconds in which all that happens in a bad hour happens, but most of it once only."""
LONG = 120
"""From so many seconds on it is told whether memory grows."""

AT_ONCE = {"KOGUMA_LISTENER_DRAIN_TIME": "0"}
"""Proxies have what a full computation gives, without what listeners use that drain."""

_MIB = 1024 * 1024


def test_after_bad_seconds_everybody_has_what_is_right_and_no_request_was_lost(tmp_path: Path) -> None:
    everybody_is_right_after(tmp_path, SHORT, fakes=20, seed=1)


@pytest.mark.timeout(1800)
def test_after_a_bad_hour_everybody_has_what_is_right_and_no_request_was_lost(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    options = (request.config.getoption(f"--soak-{name}") for name in ("seconds", "proxies", "seed"))
    everybody_is_right_after(tmp_path, *options)


def everybody_is_right_after(tmp_path: Path, seconds: float, fakes: int, seed: int) -> None:
    chance = Random(seed)
    store = f"sqlite:///{tmp_path}/koguma.db"
    checks = str(seconds < LONG).lower()  # it costs too much for hundreds of proxies
    with ExitStack() as stack:
        mesh = stack.enter_context(
            playground(tmp_path, store, KOGUMA_LOG_LEVEL="info", KOGUMA_CHECKS_ITSELF=checks, **AT_ONCE)
        )
        traffic = _real(mesh, stack, chance)
        for number in range(fakes):
            mesh.control_plane.apply(dict(of_fake(number, chance).data))
        crowd = Crowd([f"default.fake-{number}" for number in range(fakes)], mesh.control_plane.ads, chance)
        stack.enter_context(crowd.alive())
        chaos = Chaos(mesh.control_plane, crowd, chance)

        chaos.rage(seconds * 0.4, restarts=True)
        with _sampled(mesh.control_plane) as memory:
            chaos.rage(seconds * 0.6, restarts=False)
        crowd.calm_down()
        everybody = {"in sync": fakes + CALLERS + 1, "behind": 0, "refusing": 0}
        eventually(lambda: _standings(mesh.control_plane) == everybody, 60)
        assert not mesh.control_plane.events("self_check.failed")
        expected = _computed(store)
        eventually(lambda: _same(crowd, mesh, expected), 30)
        lost = [outcome for one in traffic for outcome in one.failures]
        refusals = sum(proxy.refusals for proxy in crowd.proxies)
        requests = sum(len(one.outcomes) for one in traffic)
    print(f"seed {seed}: {chaos.done}, {refusals} refusals, {requests} requests, memory {_grown(memory)}")  # noqa: T201
    assert not lost
    assert refusals > 0
    assert not mesh.control_plane.events("self_check.failed")
    assert not mesh.control_plane.events("proxy.failed")
    if seconds >= LONG:
        before, after = _grown(memory)
        assert after < before * 1.1 + 8, "MiB in the last third, against the first"


def _real(mesh: Playground, stack: ExitStack, chance: Random) -> list[Traffic]:
    """A service and its callers, who never stop."""
    mesh.control_plane.apply(mesh_service("echo"), of_real(chance))
    mesh.service("echo")
    for number in range(CALLERS):
        mesh.client(f"caller-{number}", "echo")
    mesh.ready()
    addresses = [mesh.proxies[f"caller-{number}"].outbound() for number in range(CALLERS)]
    return [stack.enter_context(Traffic(address, per_second=20, timeout=30)) for address in addresses]


@contextmanager
def _sampled(control_plane: ControlPlane) -> Iterator[list[float]]:
    """The control plane's memory in MiB, looked at every now and then."""
    process, samples, ending = psutil.Process(control_plane.process.pid), list[float](), threading.Event()

    def sample() -> None:
        while not ending.wait(0.5):
            samples.append(process.memory_info().rss / _MIB)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        ending.set()
        thread.join(5)


def _grown(samples: list[float]) -> tuple[float, float]:
    third = max(1, len(samples) // 3)
    return round(statistics.median(samples[:third])), round(statistics.median(samples[-third:]))


def _standings(control_plane: ControlPlane) -> Mapping[str, float]:
    samples = control_plane.metrics()
    return {state: samples[f'koguma_proxies{{state="{state}"}}'] for state in ("in sync", "behind", "refusing")}


def _computed(store: str) -> Mapping[str, Versions]:
    """What every proxy should have, worked out from nothing."""

    async def read() -> World:
        async with open_store(store) as opened:
            contents = await opened.read()
        return World.of([one.document for one in contents.stored], kinds(policies()), contents.revision)

    world = asyncio.run(read())
    compiler = Compiler(policies())
    return {
        f"default.{dataplane.name}": _versions(compiler.snapshot(world, dataplane))
        for dataplane in world.table("Dataplane", "default")
    }


def _versions(snapshot: Snapshot) -> Versions:
    return {url: dict(snapshot.versions(url)) for url in (CLUSTER, ENDPOINTS, LISTENER, ROUTES)}


def _same(crowd: Crowd, mesh: Playground, expected: Mapping[str, Versions]) -> bool:
    """Everybody has what was worked out. Of the real ones names are compared: that they are in sync tells the rest."""
    fakes = crowd.do(lambda: {proxy.name: {url: dict(of) for url, of in proxy.has.items()} for proxy in crowd.proxies})
    assert {name: _differences(has, expected[name]) for name, has in fakes.items() if has != expected[name]} == {}
    for name, envoy in mesh.envoys.items():
        wanted = expected[f"default.{name}"]
        assert _names(envoy) == {url: set(wanted[url]) for url in (CLUSTER, LISTENER, ROUTES)}, name
    return True


def _names(envoy: Envoy) -> dict[str, set[str]]:
    clusters = {entry["cluster"]["name"] for entry in envoy.config("dynamic_active_clusters")}
    listeners = {entry["name"] for entry in envoy.config("dynamic_listeners")}
    tables = {entry["route_config"]["name"] for entry in envoy.config("dynamic_route_configs")}
    return {CLUSTER: clusters, LISTENER: listeners, ROUTES: tables}


def _differences(has: Versions, expected: Versions) -> set[tuple[str, str, str, str]]:
    """Each resource of a proxy that is another one than it should be: type, name, what it has, what it should have."""
    return {
        (url.rpartition(".")[2], name, has[url].get(name, ""), expected[url].get(name, ""))
        for url in has
        for name in has[url].keys() | expected[url].keys()
        if has[url].get(name) != expected[url].get(name)
    }
