"""Who a move of mTLS waits for is told wherever somebody asks about a proxy, a call, a mesh or a write."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pytest

from cp.cli.explained import lines
from cp.cli.proxies import delivery
from cp.cli.text_sections import TextWidth
from cp.model.names import Key
from cp.resources.world import World
from cp.serving.delivery import Delivery, Presence, ProxyState
from cp.serving.trust_moves import ProxyStanding, TrustMove, TrustStep
from tests.api.conftest import Api, FixedState, NobodyThere, Unit
from tests.api.samples import dataplane

WEB: Final = Key("Dataplane", "default", "web-1")
MOVE: Final = "the authority `ca-2` signs as soon as every proxy trusts it; it waits for web-1 (has not answered), "
OTHERS: Final = {"inbound": [{"port": 9, "tags": {"kuma.io/service": "web"}}], "address": "10.0.0.2"}


class Connected(NobodyThere):
    async def delivery(self, dataplane: Key) -> Delivery:
        return Delivery(dataplane, Presence(ProxyState.OUT_OF_SYNC, 10.0, ()), ())


async def moves(world: World, mesh: str) -> Iterable[TrustMove]:
    resource = world.mesh(mesh)
    assert resource is not None
    behind = ProxyStanding(WEB, ProxyState.OUT_OF_SYNC, is_expected=True, is_certified=True, serves=True)
    return [TrustMove(resource, "mtls.backends[0]", TrustStep.SIGNS, "ca-2", until=60.0, proxies=(behind,))]


@pytest.fixture
def moving(start: Unit, api: Api) -> Api:
    for name in ("web-1", "web-2"):
        api.put(f"/meshes/default/dataplanes/{name}", dataplane(name)).raise_for_status()
    return start(store=api.store, state=FixedState(api.world()), observed=Connected(), moves_of=moves)


@pytest.mark.parametrize("path", ["/_lint", "/meshes/default/_lint"])
def test_lint_names_who_is_waited_for(moving: Api, path: str) -> None:
    told = [one for one in moving.get(path).json()["findings"] if one["code"] == "move-waits"]

    assert [(one["resource"], one["path"]) for one in told] == [("Mesh default", "mtls.backends[0]")]
    assert MOVE in told[0]["message"]


def test_a_proxy_is_told_to_hold_up_a_move_and_no_other_is(moving: Api) -> None:
    held, other = (moving.get(f"/meshes/default/dataplanes/{name}/_delivery").json() for name in ("web-1", "web-2"))

    assert held["moves"] == [f"{MOVE}until 1970-01-01 00:01:00 UTC at the latest"]
    assert other["moves"] == []
    assert f"mTLS: {held['moves'][0]}" in list(delivery({**held, "status": "Out of sync"}))


def test_whoever_waits_for_a_mesh_hears_what_comes_later_and_for_other_resources_nothing(moving: Api) -> None:
    def told(resource: str) -> Any:
        return moving.get(f"/_delivery?resource={resource}").json()["moves"]

    assert [sentence.startswith(f"mesh default: {MOVE}") for sentence in told("Mesh/default")] == [True]
    assert len(told("Secret/default/ca-cert")) == 1
    assert told("MeshTimeout/default/slow") == []


def test_the_explanation_of_a_call_says_what_goes_on() -> None:
    data: dict[str, Any] = {
        "proxy": {"name": "web-1"},
        "listener": None,
        "call": {"method": "GET", "host": "backend", "port": None, "path": "/"},
        "outbound": {"address": "a", "port": 1, "kind": "k", "destination": "backend", "protocol": "http"},
        "outcome": {
            "path": "/",
            "reply": {"status": 404, "location": "", "body": "", "reason": "none"},
            "forward": None,
        },
        **{name: [] for name in ("rows", "changes", "values", "backends", "access", "hops", "servers", "notEnforced")},
    }

    told = [text for text, _ in lines({**data, "moves": [MOVE]}, TextWidth(200))]

    assert told[-2:] == ["GOING ON with mTLS", f"  {MOVE}".rstrip()]
