"""Real Envoys whose proxy becomes one with redirected calls, and one without again."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import yaml

from cp.translate.compiler import Compiler
from cp.translate.snapshot import Snapshot
from tests.rules.worlds import dataplane as dataplane_of
from tests.rules.worlds import world_of
from tests.snapshots import policies
from tests.support.loopback import Address, free_port, new_address
from tests.support.waiting import eventually
from tests.witness import Witness

MESH = {"type": "Mesh", "name": "default"}


def snapshot_with_inbound(address: Address, *, is_redirected: bool) -> Snapshot:
    networking: dict[str, Any] = {
        "address": address.host,
        "inbound": [{"port": address.port, "tags": {"kuma.io/service": "web", "kuma.io/protocol": "tcp"}}],
    }
    if is_redirected:
        ports = {f"redirectPort{side}": free_port("0.0.0.0") for side in ("Inbound", "Outbound")}
        networking["transparentProxying"] = ports
    dataplane = {"type": "Dataplane", "mesh": "default", "name": "web-1", "networking": networking}
    world = world_of(yaml.safe_dump_all([MESH, dataplane]))
    return Compiler(policies()).snapshot(world, dataplane_of(world, "web-1"))


def wait_until_listening(address: Address, *, is_wanted: bool) -> None:
    def is_so() -> bool:
        with socket.socket() as client:
            return (client.connect_ex(address) == 0) is is_wanted

    eventually(is_so)


@pytest.mark.envoy
def test_an_inbound_follows_redirection_on_and_off(witness: Witness) -> None:
    address = new_address()
    for is_redirected in (True, False, True, False):
        assert witness.refusal(snapshot_with_inbound(address, is_redirected=is_redirected)) == ""
        wait_until_listening(address, is_wanted=not is_redirected)
