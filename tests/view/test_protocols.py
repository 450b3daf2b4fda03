"""What an inbound speaks is read in any case, as validators take it."""

from __future__ import annotations

from typing import Final

import pytest

from cp.model.names import Destination
from cp.translate.view.proxies import inbounds
from cp.translate.view.services import protocol_of
from generators.proxy import Protocol
from tests.rules.worlds import dataplane, world_of

MESH: Final = """
type: Mesh
name: default
---
type: Dataplane
mesh: default
name: web
networking:
  address: 10.0.0.1
  inbound: [INBOUND]
"""


@pytest.mark.parametrize(
    "inbound",
    [
        "{port: 80, tags: {kuma.io/service: web, kuma.io/protocol: http2}}",
        "{port: 80, tags: {kuma.io/service: web, kuma.io/protocol: HTTP2}}",
        "{port: 80, protocol: Http2, tags: {kuma.io/service: web}}",
        "{port: 80, protocol: HTTP2, tags: {kuma.io/service: web, kuma.io/protocol: tcp}}",
    ],
)
def test_a_protocol_is_the_same_in_any_case(inbound: str) -> None:
    world = world_of(MESH.replace("INBOUND", inbound))

    assert [served.protocol for _, served in inbounds(dataplane(world))] == [Protocol.HTTP2]
    assert protocol_of(world, "default", Destination("web")) is Protocol.HTTP2
