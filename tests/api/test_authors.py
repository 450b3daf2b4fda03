"""Every write of the API says in the history who made it, by which way and from where."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
import yaml

from cp.access.rights import EVERYBODY_IS_ADMINISTRATOR, User
from cp.api.caller import ApiCaller
from cp.store.port import Author, Change
from tests.api.conftest import Api
from tests.api.samples import timeout


def history(api: Api) -> Sequence[Change]:
    return asyncio.run(api.store.history())


def test_each_way_of_writing_is_told(api: Api) -> None:
    before = len(history(api))
    document = {"type": "MeshService", "mesh": "default", "name": "shop", "spec": {}}
    api.post("/_apply", json={"resources": [{"text": yaml.safe_dump(document)}]})
    api.put("/meshes/default/meshtimeouts/slow", timeout("slow"))
    api.delete("/meshes/default/meshtimeouts/slow")

    new = list(reversed(history(api)))[before:]
    assert [change.author for change in new] == [
        Author("mesh-system:admin", f"{way} from 127.0.0.1") for way in ("apply", "PUT", "DELETE")
    ]


@pytest.mark.parametrize("name", ["control plane", "Control  Plane ", "proxy web-1", "user control plane", "unknown"])
def test_no_user_passes_for_somebody_else(name: str) -> None:
    caller = ApiCaller(User(name), "192.0.2.7:1", EVERYBODY_IS_ADMINISTRATOR)

    assert caller.author("apply") == Author(f"user {name}", "apply from 192.0.2.7")


@pytest.mark.parametrize("name", ["jane", "control plane operators", "proxying", "mesh-system:admin"])
def test_other_users_have_their_own_names(name: str) -> None:
    caller = ApiCaller(User(name), "192.0.2.7:1", EVERYBODY_IS_ADMINISTRATOR)

    assert caller.author("apply").name == name
