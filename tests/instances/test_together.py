"""Two control planes on one store: what is known of proxies is known of all of them, and what is not is said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

import pytest

from cp.serving.instances.members import LEASE
from cp.translate.packing import ROUTES
from tests.cli.conftest import Koguma
from tests.soak.fake import DeltaFake, Fake, SotwFake, Temper
from tests.support.cable import cable_to
from tests.support.control_plane import ControlPlane
from tests.support.loopback import Address, free_port, new_host
from tests.support.mesh import MESH, Document, Proxy, mesh_service, policy, request_timeout, service_item
from tests.support.postgres import database_of, shared_postgres
from tests.support.waiting import eventually

NAMES = ("web-0", "web-1", "web-2", "web-3")


@contextmanager
def connected(*proxies: Fake) -> Iterator[None]:
    """Proxies that live in a thread of their own until the block ends."""
    ended = Event()

    async def live() -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(proxy.live()) for proxy in proxies]
            await asyncio.to_thread(ended.wait)
            for task in tasks:
                task.cancel()

    thread = Thread(target=asyncio.run, args=(live(),))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(20)


def fakes(address: Address, *names: str) -> list[Fake]:
    kinds = (SotwFake, DeltaFake)
    return [
        kinds[number % 2](f"default.{name}", address, Temper(), Random(number)) for number, name in enumerate(names)
    ]


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.long), "postgres"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[ControlPlane, ControlPlane]]:
    store = database_of(tmp_path) if request.param == "postgres" else f"sqlite:///{tmp_path}/koguma.db"
    with ExitStack() as stack:
        first = stack.enter_context(ControlPlane(tmp_path / "first", store))
        second = stack.enter_context(ControlPlane(tmp_path / "second", store))
        first.apply(MESH, mesh_service("web"), timeout("9s"))
        first.apply(*(Proxy(name, "web", backends=("web",)).document for name in NAMES))
        yield first, second


def timeout(value: str) -> Document:
    return policy("MeshTimeout", "edited", service_item("web", request_timeout(value)))


def statuses(control_plane: ControlPlane) -> list[str]:
    return [item["status"] for item in control_plane.get("/_instances")["items"]]


def of_proxies(control_plane: ControlPlane) -> dict[str, str]:
    items = control_plane.get("/meshes/default/dataplanes/_overview")["items"]
    return {item["name"]: item["status"] for item in items}


def all_are_online(control_plane: ControlPlane) -> bool:
    return set(of_proxies(control_plane).values()) == {"Online"}


def waited(control_plane: ControlPlane, revision: int, within: str = "20s") -> dict[str, Any]:
    """The last line that tells how far a change has come."""
    answer = control_plane.request("GET", f"/_delivery?revision={revision}&wait={within}")
    answer.raise_for_status()
    last: dict[str, Any] = json.loads(answer.text.strip().splitlines()[-1])
    return last


def test_each_knows_the_proxies_of_both(pair: tuple[ControlPlane, ControlPlane]) -> None:
    first, second = pair
    with connected(*fakes(first.ads, *NAMES[:2]), *fakes(second.ads, *NAMES[2:])):
        for control_plane in pair:
            eventually(partial(all_are_online, control_plane), within=20)
            listed = control_plane.get("/_instances")["items"]
            assert [item["status"] for item in listed] == ["Online", "Online"]
            assert [item["proxies"] for item in listed] == [2, 2]
            assert [item["self"] for item in listed] == [control_plane is first, control_plane is second]
            assert sum(item["leads"] for item in listed) == 1

        revision = int(second.put(timeout("8s")).headers["koguma-revision"])
        progress = waited(first, revision)

        assert (progress["proxies"], progress["have"], progress["waiting"]) == (4, 4, [])
        shown = Koguma(first.api.url)("inspect", "instances").out
        assert shown.count("Online") == 2


class Refusing(SotwFake):
    """It takes no routes that it has not had from the beginning."""

    def _take(self, type_url: str, name: str, body: bytes) -> bool:
        if type_url == ROUTES and self.has[type_url].get(name):
            self.refusals += 1
            return False
        return super()._take(type_url, name, body)


@pytest.mark.long
@pytest.mark.parametrize("pair", ["postgres"], indirect=True)
def test_what_a_proxy_of_another_one_refuses_is_told(pair: tuple[ControlPlane, ControlPlane]) -> None:
    first, second = pair
    refusing = Refusing("default.web-1", second.ads, Temper(), Random(1))
    with connected(*fakes(first.ads, "web-0"), refusing):
        eventually(lambda: [of_proxies(first)[name] for name in NAMES[:2]] == ["Online", "Online"], within=20)

        progress = waited(first, int(first.put(timeout("5s")).headers["koguma-revision"]))

        assert (progress["have"], progress["refusing"]) == (1, ["default.web-1"])
        assert [finding["code"] for finding in progress["findings"]] == ["refused-by-envoy"]
        assert of_proxies(first)["web-1"] == "Refused"
        refusals = [item for item in first.get("/_lint")["findings"] if item["code"] == "refused-by-envoy"]
        assert [item["resource"] for item in refusals] == ["MeshTimeout default/edited"]


@pytest.mark.long
def test_nobody_knows_what_the_proxies_of_one_that_died_have_until_it_is_gone(
    pair: tuple[ControlPlane, ControlPlane],
) -> None:
    first, second = pair
    with connected(*fakes(first.ads, *NAMES[:2]), *fakes(second.ads, *NAMES[2:])):
        eventually(partial(all_are_online, first), within=20)
        revision = int(first.put(timeout("7s")).headers["koguma-revision"])
        waited(first, revision)
        second.kill()
        revision = int(first.put(timeout("6s")).headers["koguma-revision"])

        at_first, known = waited(first, revision, "0s"), of_proxies(first)

        assert [name for name in at_first["waiting"] if name.startswith("all of instance")]
        assert [known[name] for name in NAMES[2:]] == ["Unknown", "Unknown"]
        assert statuses(first) == ["Online", "Unknown"]
        assert "instance-silent" in {finding["code"] for finding in first.get("/_lint")["findings"]}
        assert "unknown" in Koguma(first.api.url)("inspect", "instances").out
        progress = waited(first, revision)
        assert (progress["have"], progress["waiting"]) == (2, [])
        assert statuses(first) == ["Online", "Gone"]
        assert [of_proxies(first)[name] for name in NAMES[2:]] == ["Offline", "Offline"]


@pytest.mark.parametrize("pair", ["postgres"], indirect=True)
def test_who_is_started_again_takes_his_own_place(pair: tuple[ControlPlane, ControlPlane]) -> None:
    first, second = pair
    eventually(lambda: statuses(first) == ["Online", "Online"], within=5)
    assert [item["leads"] for item in first.get("/_instances")["items"]] == [True, False]
    first.kill()
    first.start().ready()

    eventually(lambda: statuses(second) == ["Online", "Online"], within=5)
    eventually(lambda: any(item["leads"] for item in second.get("/_instances")["items"]), within=5)
    assert second.stop() == 0
    eventually(lambda: statuses(first) == ["Online"], within=5)


@pytest.mark.parametrize("pair", ["sqlite"], indirect=True)
def test_nobody_else_is_answered(pair: tuple[ControlPlane, ControlPlane]) -> None:
    first, second = pair
    eventually(lambda: statuses(first) == ["Online", "Online"], within=5)  # so that there is a key
    user = second.request("POST", "/tokens/user", b'{"name": "a", "groups": [], "validFor": "1h"}').text
    for token in ("", "x.y.z", user):
        headers = {"koguma-instance-token": token, "content-type": "application/x-protobuf"}
        answer = first.request("POST", "/_instances/_ask", b"\x12\x00", **headers)
        assert answer.status_code == 401


@pytest.mark.long
def test_over_tls_each_trusts_whom_the_store_names(tmp_path: Path) -> None:
    """Each has made an authority of its own."""
    with ExitStack() as stack:
        pair = []
        for name in ("first", "second"):
            host = new_host()
            tls = {"KUMA_API_SERVER_HTTPS_ENABLED": "true", "KUMA_API_SERVER_HTTPS_PORT": str(free_port(host))}
            started = ControlPlane(tmp_path / name, f"sqlite:///{tmp_path}/koguma.db", host, **tls)
            pair.append(stack.enter_context(started))
        eventually(lambda: statuses(pair[0]) == ["Online", "Online"], within=5)
        listed = pair[1].get("/_instances")["items"]

        assert [item["status"] for item in listed] == ["Online", "Online"]
        assert all(item["address"].startswith("https://") for item in listed)


@pytest.mark.long
@pytest.mark.parametrize("pair", ["sqlite"], indirect=True)
def test_who_hangs_loses_the_chores_and_does_not_know_better_when_he_wakes_up(
    pair: tuple[ControlPlane, ControlPlane],
) -> None:
    first, second = pair
    eventually(lambda: leader(second) == address(first), within=5)
    first.hang()
    try:
        eventually(lambda: second.metrics()["koguma_instance_leads"] == 1, within=30)
    finally:
        first.resume()

    eventually(lambda: statuses(second) == ["Online", "Online"], within=10)
    assert leader(second) == address(second)
    eventually(lambda: first.metrics()["koguma_instance_leads"] == 0, within=10)
    assert leader(first) == address(second)


@pytest.mark.long
def test_who_has_lost_the_store_alone_is_not_gone(tmp_path: Path) -> None:
    url = database_of(tmp_path)
    with ExitStack() as stack:
        far = stack.enter_context(cable_in_a_thread(shared_postgres().address))
        first = stack.enter_context(ControlPlane(tmp_path / "first", url))
        second = stack.enter_context(
            ControlPlane(tmp_path / "second", url.replace(str(far.cable.target), str(far.cable.address)))
        )
        first.apply(MESH, Proxy("web-0", "web").document)
        stack.enter_context(connected(*fakes(second.ads, "web-0")))
        eventually(lambda: of_proxies(first) == {"web-0": "Online"}, within=20)

        far.cut()
        eventually(lambda: first.get("/_instances")["items"][1]["silentFor"] > LEASE, within=30)

        eventually(lambda: statuses(first) == ["Online", "Online"], within=10)
        eventually(lambda: of_proxies(first) == {"web-0": "Online"}, within=10)
        assert statuses(second) == ["Online", "Online"]
        first.apply(mesh_service("web"), timeout("5s"))
        eventually(lambda: of_proxies(first) == {"web-0": "Out of sync"}, within=10)  # with what is served here


def address(control_plane: ControlPlane) -> str:
    return control_plane.api.url


def leader(asked: ControlPlane) -> str:
    return next(str(item["address"]) for item in asked.get("/_instances")["items"] if item["leads"])


class CableInAThread:
    """A cable that a test cuts from outside its loop."""

    def __init__(self, target: Address) -> None:
        self._ready, self._ended = Event(), Event()
        self._target = target
        self._thread = Thread(target=asyncio.run, args=(self._live(),))
        self._thread.start()
        assert self._ready.wait(10)

    def cut(self) -> None:
        self.cable.is_open = False
        self._loop.call_soon_threadsafe(self.cable.cut)

    def close(self) -> None:
        self._ended.set()
        self._thread.join(20)

    async def _live(self) -> None:
        async with cable_to(self._target) as self.cable:
            self._loop = asyncio.get_running_loop()
            self._ready.set()
            await asyncio.to_thread(self._ended.wait)


@contextmanager
def cable_in_a_thread(target: Address) -> Iterator[CableInAThread]:
    cable = CableInAThread(target)
    try:
        yield cable
    finally:
        cable.close()
