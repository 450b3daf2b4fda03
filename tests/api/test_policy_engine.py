"""The engine of a Mesh: it is written down when the Mesh is made, and no change that leaves it out touches it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.engine import Engine
from cp.resources.initial_policies import initial_policies
from cp.store.memory import MemoryStore
from cp.store.port import UNKNOWN, Author, Delete, Put
from cp.store.roster import Fence
from tests.api.conftest import Api, Unit

SHOP = "/meshes/shop"
SERVICES = {"meshServices": {"mode": "Exclusive"}}


def shop(**fields: Any) -> dict[str, Any]:
    return {"type": "Mesh", "name": "shop", **fields}


def put(api: Api, data: dict[str, Any]) -> httpx.Response:
    return api.put(f"/meshes/{data['name']}", data)


def apply(api: Api, data: dict[str, Any]) -> httpx.Response:
    return api.post("/_apply", json={"resources": [{"text": json.dumps(data)}]})


WAYS = pytest.mark.parametrize("write", [put, apply])


def with_setting(start: Unit, engine: Engine) -> Api:
    return start(companions=initial_policies, engine=engine, kinds=kinds(discover(), engine))


def stored(api: Api) -> dict[str, Any]:
    """A Mesh as it is in the store, whatever is shown."""
    mesh = api.world().mesh("shop")
    assert mesh is not None
    return dict(mesh.document.data)


@WAYS
def test_a_new_mesh_is_stored_with_the_engine_of_the_settings(start: Unit, write: Any) -> None:
    api = with_setting(start, "Legacy")

    write(api, shop()).raise_for_status()

    assert stored(api) == shop(policyEngine="Legacy")
    assert api.get(SHOP).json()["policyEngine"] == "Legacy"
    assert api.get(SHOP, params={"format": "k8s"}).json()["spec"]["policyEngine"] == "Legacy"


@WAYS
@pytest.mark.parametrize("left_out", [{}, {"policyEngine": None}])
def test_a_change_that_leaves_the_engine_out_keeps_it(start: Unit, write: Any, left_out: dict[str, Any]) -> None:
    """Terraform and pipelines write again and again what they were given, which names no engine."""
    api = with_setting(start, "TargetRef")
    write(api, shop(policyEngine="Legacy")).raise_for_status()

    write(api, shop(**SERVICES, **left_out)).raise_for_status()

    assert stored(api) == shop(policyEngine="Legacy", **SERVICES)


@WAYS
def test_the_same_again_changes_nothing(start: Unit, write: Any) -> None:
    api = with_setting(start, "TargetRef")
    write(api, shop()).raise_for_status()

    again = write(api, shop())

    assert "koguma-revision" not in again.headers
    assert "Updated" not in again.text


@WAYS
def test_a_mesh_of_which_the_settings_decide_stays_so_until_somebody_names_an_engine(start: Unit, write: Any) -> None:
    api = with_setting(start, "Legacy")
    write(api, shop(policyEngine="TargetRef")).raise_for_status()
    write(api, shop(policyEngine="Undefined")).raise_for_status()
    write(api, shop(**SERVICES)).raise_for_status()

    assert stored(api) == shop(policyEngine="Undefined", **SERVICES)
    assert api.get(SHOP).json()["policyEngine"] == "Legacy"
    write(api, shop(policyEngine="TargetRef")).raise_for_status()
    assert stored(api)["policyEngine"] == "TargetRef"


@WAYS
@pytest.mark.parametrize("engine", ["TargetRef", "Legacy"])
def test_another_engine_neither_makes_nor_removes_policies(start: Unit, write: Any, engine: Engine) -> None:
    api = with_setting(start, engine)
    write(api, shop()).raise_for_status()
    before = [resource.key for resource in api.world()]

    other = "Legacy" if engine == "TargetRef" else "TargetRef"
    write(api, shop(policyEngine=other)).raise_for_status()

    assert [resource.key for resource in api.world()] == before
    assert api.delete(SHOP).status_code == 200
    assert [resource.key for resource in api.world()] == []


class Raced(MemoryStore):
    """Somebody else gives a Mesh another engine when it has been read for a write."""

    is_raced = False

    async def write(self, *writes: Put | Delete, author: Author = UNKNOWN, fence: Fence | None = None) -> int:
        if self.is_raced:
            self.is_raced = False
            await super().write(Put(Document(Key("Mesh", "", "shop"), shop(policyEngine="Legacy"))))
        return await super().write(*writes, author=author, fence=fence)


@WAYS
@pytest.mark.parametrize("is_new", [True, False])
def test_the_engine_that_somebody_wrote_meanwhile_is_kept(start: Unit, write: Any, is_new: bool) -> None:
    store = Raced()
    api = start(companions=initial_policies, store=store)
    if not is_new:
        write(api, shop()).raise_for_status()
    store.is_raced = True

    write(api, shop(**SERVICES)).raise_for_status()

    assert stored(api) == shop(policyEngine="Legacy", **SERVICES)
