"""Two control planes on one store: when one is killed, its proxies go to the other, and nothing is lost."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

import pytest
import yaml

from cp.client.client import Client
from cp.serving.own_authority import ensure_certificate
from tests.cli.conftest import Koguma
from tests.support.client import Traffic, call
from tests.support.control_plane import KOGUMA, ControlPlane
from tests.support.envoy import envoy_binary
from tests.support.load import Calls
from tests.support.loopback import free_port, new_host
from tests.support.mesh import MESH, Document, Proxy, mesh_service, policy, request_timeout, service_item
from tests.support.postgres import shared_postgres
from tests.support.processes import Running
from tests.support.services import HttpService
from tests.support.waiting import eventually

# tests/e2e/test_outage.py is shorter: it stops a control plane under steady requests.
pytestmark = [pytest.mark.envoy, pytest.mark.long]

STORES: Final[dict[str, Callable[[Path], str]]] = {
    "sqlite": lambda folder: f"sqlite:///{folder}/koguma.db",
    "postgresql": lambda _: shared_postgres().new_url(),
}
CLIENTS: Final = 3
START: Final = 40.0
"""Seconds for a process to start on a busy machine."""

IN_SYNC: Final = 'koguma_proxies{state="in sync"}'
FLEET_IN_SYNC: Final = 'koguma_dataplanes{mesh="default",state="in sync"}'
METHOD_NOT_ALLOWED: Final = 405
DELAY: Final = 2.0
"""Seconds after which a proxy that nobody sees any more would be removed."""


@dataclass(slots=True)
class Instances:
    """Two control planes on one store, and proxies that know both."""

    folder: Path
    stack: ExitStack
    planes: list[ControlPlane]
    agents: dict[str, Running] = field(default_factory=dict)
    proxies: dict[str, Proxy] = field(default_factory=dict)
    name: str = ""
    """A name of both, if proxies know them by that."""

    @property
    def addresses(self) -> str:
        return ",".join(plane.api.url for plane in self.planes)

    @property
    def address_for_proxies(self) -> str:
        return f"http://{self.name}:{self.planes[0].api.port}" if self.name else self.addresses

    @property
    def surroundings(self) -> list[str]:
        """The beginning of a command that runs where the name has the addresses of both."""
        if not self.name:
            return []
        lines = [f"{plane.ads.host} {self.name}\n" for plane in self.planes]
        (hosts := self.folder / "hosts").write_text("".join(lines))
        return ["unshare", "--mount", "sh", "-c", f'mount --bind {hosts} /etc/hosts && exec "$@"', "sh"]

    def run(self, proxy: Proxy) -> Proxy:
        """Run it as an operator does."""
        (file := self.folder / f"{proxy.name}.yaml").write_text(yaml.safe_dump(proxy.document))
        command = [
            *self.surroundings,
            str(KOGUMA),
            "dp",
            "run",
            "--dataplane-file",
            str(file),
            "--envoy-path",
            str(envoy_binary()),
        ]
        options = ("--cp-address", self.address_for_proxies, "--drain-time", "1s")
        agent = Running([*command, *options], self.folder / f"{proxy.name}.log")
        self.agents[proxy.name] = self.stack.enter_context(agent)
        self.proxies[proxy.name] = proxy
        return proxy

    def client(self, name: str) -> Proxy:
        return self.run(Proxy(name, name, backends=("backend",)))

    def serving(self, name: str) -> bool:
        self.agents[name].check()
        return call(self.proxies[name].outbound()).status == 200

    def all_in_sync_with(self, *planes: ControlPlane) -> bool:
        return sum(plane.metrics()[IN_SYNC] for plane in planes) == len(self.agents)

    def fleet(self) -> list[float]:
        """How many of all proxies are in sync, as each control plane tells that tells it at all."""
        metrics = (plane.metrics() for plane in self.planes)
        return [of_plane[FLEET_IN_SYNC] for of_plane in metrics if FLEET_IN_SYNC in of_plane]


def timeout(milliseconds: int) -> Document:
    return policy("MeshTimeout", "edited", service_item("backend", request_timeout(f"{milliseconds}ms")))


def with_one_authority(folders: Iterable[Path]) -> None:
    """Proxies that trust the one control plane trust the other, as the guide has it."""
    first, *further = folders
    ensure_certificate(first, [], dt.datetime.fromtimestamp(time.time(), dt.UTC))
    for folder in further:
        folder.mkdir(parents=True)
        for name in ("koguma-cp-ca.crt", "koguma-cp-ca.key"):
            shutil.copy(first / name, folder / name)


def plane(folder: Path, store: str, port: int, admin: str, **changes: str) -> ControlPlane:
    settings = {
        "KUMA_DP_SERVER_PORT": str(port),
        "KUMA_BOOTSTRAP_SERVER_PARAMS_ADMIN_ADDRESS": admin,
        "KUMA_XDS_SERVER_DATAPLANE_DEREGISTRATION_DELAY": f"{DELAY}s",
        "KOGUMA_RETURN_GRACE": "0",
        **changes,
    }
    return ControlPlane(folder, store, new_host(), **settings)


@pytest.fixture(
    params=[
        pytest.param(("sqlite", "off"), id="sqlite"),
        pytest.param(("postgresql", "on"), id="postgresql over TLS"),
    ]
)
def instances(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Instances]:
    kind, tls = request.param
    store, port, admin = STORES[kind](tmp_path), free_port(new_host()), new_host()
    folders = [tmp_path / name for name in ("one", "two")]
    with_one_authority(folder / "work" for folder in folders)
    with ExitStack() as stack:
        planes = [
            stack.enter_context(plane(folder, store, port, admin, KOGUMA_DP_SERVER_TLS=tls)) for folder in folders
        ]
        planes[0].apply(MESH, mesh_service("backend"), timeout(9000))
        instances = Instances(tmp_path, stack, planes)
        with_proxies(instances)
        yield instances


def with_proxies(instances: Instances) -> None:
    service = instances.stack.enter_context(HttpService("backend"))
    instances.run(Proxy("backend", "backend", service.address))
    for number in range(CLIENTS):
        instances.client(f"client-{number}")
    for number in range(CLIENTS):
        eventually(partial(instances.serving, f"client-{number}"), START)


class Edits:
    """Edits of a timeout, one after the other, at whichever control plane answers; and what was answered last."""

    def __init__(self, addresses: str) -> None:
        self._client = Client(addresses, timeout=START)
        self._numbers = count(9001)
        self.stored = self.begun = 9000

    def __call__(self) -> str:
        self.begun = next(self._numbers)
        self._client.put("/meshes/default/meshtimeouts/edited", json.dumps(timeout(self.begun)))
        self.stored = self.begun
        return "stored"


def stored(plane: ControlPlane) -> int:
    document = plane.find(timeout(0)) or {}
    (item,) = document["spec"]["to"]
    return int(item["default"]["http"]["requestTimeout"].removesuffix("ms"))


def in_force(instances: Instances, plane: ControlPlane, milliseconds: int) -> None:
    """Write at one control plane, and wait until all proxies have it that call the service."""
    (file := instances.folder / "edit.yaml").write_text(json.dumps(timeout(milliseconds)))
    ended = Koguma(plane.api.url)("apply", "-f", file, "--wait")
    assert ended.status == 0, ended.err
    callers = len(instances.agents) - 1
    assert f"{callers} of {callers} proxies have it" in ended.out


def test_a_control_plane_that_is_killed_costs_no_request_and_no_edit(instances: Instances) -> None:
    one, two = instances.planes
    eventually(lambda: instances.all_in_sync_with(one, two), START)
    eventually(lambda: instances.fleet() == [CLIENTS + 1], START)  # one tells of all, so that sums count nothing twice
    edits = Edits(instances.addresses)
    for killed, left in ((one, two), (two, one)):  # the second time all are connected to the one that is killed
        with Traffic(instances.proxies["client-0"].outbound()) as traffic, Calls(edits, pause=0.2) as steady:
            goes_on(traffic, steady)
            killed.kill()
            eventually(partial(instances.all_in_sync_with, left), START)
            goes_on(traffic, steady)
            late = instances.client(f"late-{killed.api.port}")
            eventually(partial(instances.serving, late.name), START)
        assert traffic.failures == []
        assert steady.failures == []
        assert stored(left) == edits.stored
        in_force(instances, left, 5000)
        killed.start().ready(START)
    assert [plane.events("proxy.removed") for plane in instances.planes] == [[], []]


def goes_on(traffic: Traffic, steady: Calls) -> None:
    """Until some more requests and edits have been made."""
    requests, edits = len(traffic.outcomes) + 20, steady.answers["stored"] + 4
    eventually(lambda: len(traffic.outcomes) > requests and steady.answers["stored"] > edits, START)


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("unshare") is None, reason="only root has names of its own")
def test_proxies_that_know_a_name_with_several_addresses_go_to_the_other_one(tmp_path: Path) -> None:
    store, port, admin = shared_postgres().new_url(), free_port(new_host()), new_host()
    names = {"KUMA_API_SERVER_HTTP_PORT": str(free_port(new_host())), "KOGUMA_API_HOSTS": "control-planes.example"}
    with ExitStack() as stack:
        planes = [stack.enter_context(plane(tmp_path / name, store, port, admin, **names)) for name in ("one", "two")]
        planes[0].apply(MESH, mesh_service("backend"), timeout(9000))
        instances = Instances(tmp_path, stack, planes, name=names["KOGUMA_API_HOSTS"])
        with_proxies(instances)
        eventually(lambda: instances.all_in_sync_with(*planes), START)
        killed, left = sorted(planes, key=lambda plane: plane.metrics()[IN_SYNC], reverse=True)
        with Traffic(instances.proxies["client-0"].outbound()) as traffic:
            killed.kill()
            eventually(lambda: instances.all_in_sync_with(left), START)
            in_force(instances, left, 5000)
            late = instances.client("late")
            eventually(partial(instances.serving, late.name), START)
        assert traffic.failures == []


def test_control_planes_with_a_folder_each_share_what_proxies_register(tmp_path: Path) -> None:
    """Policies come with the folder, as from version control, and Dataplanes from the machines."""
    registrations, port, admin = shared_postgres().new_url(), free_port(new_host()), new_host()
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        (folder / "mesh").mkdir(parents=True)
        saved(folder, timeout(9000))
    with ExitStack() as stack:
        planes = [
            stack.enter_context(plane(folder, f"dir:{folder}/mesh", port, admin, KOGUMA_REGISTRATIONS=registrations))
            for folder in folders
        ]
        instances = Instances(tmp_path, stack, planes)
        with_proxies(instances)
        one, two = planes
        eventually(lambda: instances.all_in_sync_with(one, two), START)
        assert one.put(timeout(1)).status_code == METHOD_NOT_ALLOWED
        with Traffic(instances.proxies["client-0"].outbound()) as traffic:
            one.kill()
            eventually(lambda: instances.all_in_sync_with(two), START)
            saved(folders[1], timeout(8000))
            eventually(lambda: stored(two) == 8000, START)  # what was saved
            eventually(lambda: instances.all_in_sync_with(two), START)
            late = instances.client("late")
            eventually(partial(instances.serving, late.name), START)
            instances.agents.pop("client-2").stop()
            gone = instances.proxies["client-2"].document
            eventually(lambda: two.find(gone) is None, START)
        assert traffic.failures == []
        one.start().ready(START)
        registered = {name for name, proxy in instances.proxies.items() if one.find(proxy.document) is not None}
        assert registered == instances.agents.keys()


def saved(folder: Path, edited: Document) -> None:
    documents = [MESH, mesh_service("backend"), edited]
    (draft := folder / "mesh" / ".draft").write_text(yaml.safe_dump_all(documents))
    draft.rename(folder / "mesh" / "mesh.yaml")
