"""Document 003 (listed in record 0024), requirement by requirement, on running control planes with real Envoys.

A Mesh has an engine that decides with which policies it starts, in the six ways of its table
    tests/test_policy_engine.py
        test_a_mesh_that_is_made_has_its_engine_written_down_with_its_policies
        test_a_mesh_that_is_changed_has_the_engine_that_the_change_names_and_the_policies_that_it_had
        test_a_mesh_that_was_stored_before_the_start_has_no_policies_of_either_engine
Without a word about engines a new deployment has policies with a targetRef, and traffic needs no permission or route
    tests/e2e/test_document_003.py
        test_a_new_deployment_has_policies_with_a_target_and_traffic_without_permissions
The setting is TargetRef or Legacy, and TargetRef unless it is given
    tests/test_settings.py
        test_every_fault_is_told_with_its_variable
    tests/test_policy_engine.py
        test_the_first_mesh_has_the_engine_of_the_settings
A new Mesh can have the old policies, beside others on the same control plane that have the new ones
    tests/e2e/test_document_003.py
        test_meshes_of_both_engines_stand_beside_each_other
Old policies go on working, and new ones can be used with them, whatever the engine
    tests/e2e/test_document_003.py
        test_policies_of_both_sorts_hold_under_either_engine
    tests/e2e/test_legacy_policies.py
        test_a_policy_with_a_target_lies_over_a_timeout
Existing meshes stay as they are: with the setting Legacy also those that name no engine, and what writes them again
    tests/e2e/test_document_003.py
        test_a_mesh_of_before_is_served_the_same_whoever_writes_it_again
    tests/test_policy_engine.py
        test_another_setting_changes_no_mesh_but_those_that_leave_it_to_the_settings
Default policies are made with a Mesh alone, and by no later change of its engine
    tests/e2e/test_document_003.py
        test_another_engine_makes_no_policies_and_opens_external_services
    tests/api/test_policy_engine.py
        test_another_engine_neither_makes_nor_removes_policies
Under Legacy permissions decide who may call an ExternalService
    tests/e2e/test_engines.py
        test_under_legacy_those_call_it_whom_the_best_permission_names
        test_whom_no_permission_names_is_not_sent_the_address
Under TargetRef every dataplane may call all of them
    tests/e2e/test_engines.py
        test_under_target_ref_everybody_calls_it
which `reachableServices` narrows
    tests/e2e/test_transparent_proxying.py
        test_a_dataplane_that_says_what_it_reaches_is_told_of_nothing_else
or `autoReachableServices`
    tests/e2e/test_derived_reachability.py
        test_an_external_service_is_called_once_a_permission_is_for_its_tag
"""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from cp.model.document import Document as Stored
from cp.model.names import Key
from cp.store.port import Put
from cp.store.sqlite import SqliteStore
from tests.support.client import Traffic, call
from tests.support.control_plane import ControlPlane
from tests.support.loopback import Address, free_port
from tests.support.mesh import Document, Proxy, legacy_external_service
from tests.support.playground import Playground
from tests.support.services import HttpService
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

ROOT: Final = Path(__file__).resolve().parents[2]
NEW, OLD = "default", "old"
MESHES: Final = (NEW, OLD)
ANY: Final = [{"match": {"kuma.io/service": "*"}}]
OF_NEW: Final = {"MeshTimeout", "MeshCircuitBreaker", "MeshRetry"}
OF_OLD: Final = {"TrafficPermission", "TrafficRoute", "Timeout", "CircuitBreaker", "Retry"}


def legacy(kind: str, name: str, mesh: str, **fields: Any) -> Document:
    return {"type": kind, "mesh": mesh, "name": name, "sources": ANY, "destinations": ANY, **fields}


def outside(mesh: str, address: str) -> Document:
    return {**legacy_external_service("payments", "payments", address), "mesh": mesh}


@pytest.fixture(scope="module")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    """A new deployment of which no setting is about engines, and a second Mesh; in both a caller and a service."""
    folder = tmp_path_factory.mktemp("meshes")
    with ExitStack() as stack:
        settings = {"KUMA_DEFAULTS_SKIP_MESH_CREATION": "false"}
        control_plane = stack.enter_context(ControlPlane(folder, **settings))
        meshes = Playground(control_plane, folder, stack)
        service = stack.enter_context(HttpService("outside", Address("127.0.0.1", free_port("127.0.0.1"))))
        control_plane.apply({"type": "Mesh", "name": OLD, "policyEngine": "Legacy"})
        for mesh in MESHES:
            control_plane.apply(outside(mesh, f"localhost:{service.address.port}"))
            backend = stack.enter_context(HttpService(f"backend-{mesh}"))
            meshes.started(Proxy(f"backend-{mesh}", "backend", backend.address, mesh=mesh))
            calls = ("tag=backend", "tag=payments")
            meshes.started(Proxy(f"frontend-{mesh}", "frontend", backends=calls, mesh=mesh))
        meshes.ready()
        yield meshes


def outbound(meshes: Playground, mesh: str, called: str) -> Address:
    return meshes.proxies[f"frontend-{mesh}"].outbound(f"tag={called}")


def status(meshes: Playground, mesh: str, called: str) -> int:
    return call(outbound(meshes, mesh, called)).status


def policies(meshes: Playground, mesh: str) -> set[str]:
    """The kinds of those that there are in a mesh, and of routes and permissions."""
    plurals = {
        **{kind: f"{kind.lower()}s" for kind in ("MeshTimeout", "MeshCircuitBreaker", "MeshHTTPRoute", "MeshTCPRoute")},
        "MeshRetry": "meshretries",
        "MeshTrafficPermission": "meshtrafficpermissions",
        "Retry": "retries",
        "TrafficPermission": "traffic-permissions",
        "TrafficRoute": "traffic-routes",
        "Timeout": "timeouts",
        "CircuitBreaker": "circuit-breakers",
    }
    return {
        kind for kind, plural in plurals.items() if meshes.control_plane.get(f"/meshes/{mesh}/{plural}")["total"] > 0
    }


def test_a_new_deployment_has_policies_with_a_target_and_traffic_without_permissions(playground: Playground) -> None:
    assert playground.control_plane.get(f"/meshes/{NEW}")["policyEngine"] == "TargetRef"
    assert policies(playground, NEW) == OF_NEW
    eventually(lambda: call(outbound(playground, NEW, "backend")).service == f"backend-{NEW}")


def test_meshes_of_both_engines_stand_beside_each_other(playground: Playground) -> None:
    assert playground.control_plane.get(f"/meshes/{OLD}")["policyEngine"] == "Legacy"
    assert policies(playground, OLD) == OF_OLD
    eventually(lambda: call(outbound(playground, OLD, "backend")).service == f"backend-{OLD}")
    with without_permission(playground):
        eventually(lambda: status(playground, OLD, "payments") == 500)
        assert status(playground, NEW, "payments") == 200
    eventually(lambda: status(playground, OLD, "payments") == 200)


@contextmanager
def without_permission(meshes: Playground) -> Iterator[None]:
    """Nobody may call an ExternalService of the mesh of the old engine, for as long as the block runs."""
    allowing = legacy("TrafficPermission", f"allow-all-{OLD}", OLD)
    meshes.control_plane.delete(allowing)
    try:
        yield
    finally:
        meshes.control_plane.apply(allowing)


@pytest.mark.parametrize("mesh", MESHES)
def test_policies_of_both_sorts_hold_under_either_engine(playground: Playground, mesh: str) -> None:
    def aborted(status: int) -> Document:
        return {"abort": {"httpStatus": status, "percentage": 100}}

    backend = [{"match": {"kuma.io/service": "backend", "kuma.io/protocol": "http"}}]
    old = {**legacy("FaultInjection", "faults", mesh, conf=aborted(418)), "destinations": backend}
    http = {"http": [aborted(428)]}
    new: Document = {"type": "MeshFaultInjection", "mesh": mesh, "name": "faults"}
    new["spec"] = {"targetRef": {"kind": "Dataplane"}, "rules": [{"default": http}]}
    with playground.having(old):
        eventually(lambda: status(playground, mesh, "backend") == 418)
        with playground.having(new):
            eventually(lambda: status(playground, mesh, "backend") == 428)
    eventually(lambda: status(playground, mesh, "backend") == 200)


def test_another_engine_makes_no_policies_and_opens_external_services(playground: Playground) -> None:
    """Calls between services are not disturbed by it."""
    with without_permission(playground), Traffic(outbound(playground, OLD, "backend")) as traffic:
        eventually(lambda: status(playground, OLD, "payments") == 500)
        playground.control_plane.apply({"type": "Mesh", "name": OLD, "policyEngine": "TargetRef"})
        try:
            eventually(lambda: status(playground, OLD, "payments") == 200)
            assert policies(playground, OLD) == OF_OLD - {"TrafficPermission"}
        finally:
            playground.control_plane.apply({"type": "Mesh", "name": OLD, "policyEngine": "Legacy"})
        eventually(lambda: status(playground, OLD, "payments") == 500)
        assert policies(playground, OLD) == OF_OLD - {"TrafficPermission"}

    assert traffic.outcomes
    assert traffic.failures == []


def of_before() -> Iterator[Document]:
    """A mesh as it was stored when there were no engines: one of two callers may call a service outside."""
    yield {"type": "Mesh", "name": "before"}
    yield outside("before", "10.0.0.9:443")
    yield {**legacy("TrafficPermission", "web", "before"), "sources": [{"match": {"kuma.io/service": "web"}}]}
    yield legacy("Timeout", "all", "before", conf={"http": {"requestTimeout": "7s"}})
    for number, name in enumerate(("web", "mail")):
        inbound = {"port": 8080, "tags": {"kuma.io/service": name, "kuma.io/protocol": "http"}}
        outbounds = [{"port": 10000, "tags": {"kuma.io/service": "payments"}}]
        networking = {"address": f"10.0.0.{number + 1}", "inbound": [inbound], "outbound": outbounds}
        yield {"type": "Dataplane", "mesh": "before", "name": name, "networking": networking}


async def _stored(path: Path) -> None:
    store = await SqliteStore.open(path)
    for data in of_before():
        await store.write(Put(Stored(Key(data["type"], data.get("mesh", ""), data["name"]), data)))
    await store.close()


@pytest.mark.long
def test_a_mesh_of_before_is_served_the_same_whoever_writes_it_again(tmp_path: Path) -> None:
    """As those do who keep it in Terraform, in a file that names no engine."""
    asyncio.run(_stored(tmp_path / "koguma.db"))
    store = f"sqlite:///{tmp_path / 'koguma.db'}"
    settings = {"KUMA_DEFAULTS_POLICY_ENGINE": "Legacy"}
    with ControlPlane(tmp_path / "here", store, **settings) as control_plane:
        before = served(control_plane)
        control_plane.apply(*of_before())
        assert served(control_plane) == before
    with ControlPlane(tmp_path / "again", store, **settings) as control_plane:
        assert served(control_plane) == before
        control_plane.apply({"type": "Mesh", "name": "before", "policyEngine": "TargetRef"})
        assert "10.0.0.9" in served(control_plane)["mail"]

    assert ["10.0.0.9" in before[name] for name in ("web", "mail")] == [True, False]
    assert "'timeout': '7s'" in before["web"]


def served(control_plane: ControlPlane) -> dict[str, str]:
    """What each of the two callers is served."""
    return {name: str(control_plane.get(f"/meshes/before/dataplanes/{name}/_config")) for name in ("web", "mail")}


def test_each_requirement_names_tests_that_there_are() -> None:
    listed = re.findall(r"^    (tests/\S+\.py)\n((?: {8}\w+\n)+)", __doc__ or "", re.MULTILINE)
    assert sum(len(tests.split()) for _, tests in listed) == (__doc__ or "").count("test_") - len(listed)
    for path, tests in listed:
        tree = ast.parse((ROOT / path).read_text())
        assert set(tests.split()) <= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, path
