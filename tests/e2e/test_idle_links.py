"""What the links of many agents cost a control plane while nobody asks anything."""

from __future__ import annotations

import socket
import ssl
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support import memory
from tests.support.control_plane import ControlPlane
from tests.support.loopback import Address, free_port, new_host
from tests.support.mesh import MESH

LINKS = 300
MOST = 120_000
"""Bytes for each, where asyncio's own buffer has 262,144."""

BODY = b'{"owner": "run", "subjects": ["stats"]}'


@pytest.mark.long
@pytest.mark.skipif(memory.IS_COVERED, reason="the control plane has to trace its own lines here")
def test_an_idle_link_over_tls_takes_little_memory(tmp_path: Path) -> None:
    host = new_host()
    port = free_port(host)
    none = {"KUMA_DP_SERVER_AUTHN_DP_PROXY_TYPE": "none"}  # so that nobody asks whether there is such a Dataplane
    tls = none | {"KUMA_API_SERVER_HTTPS_ENABLED": "true", "KUMA_API_SERVER_HTTPS_PORT": str(port)}
    with ControlPlane(tmp_path, "memory:", host, **tls) as control_plane:
        control_plane.apply(MESH)
        trusted = ssl.create_default_context(cafile=str(tmp_path / "work" / "koguma-cp-ca.crt"))

        with ExitStack() as stack:
            hold(stack, trusted, Address(host, port), 10)  # what the first few need is there afterwards
            before = memory.resident(control_plane.process.pid)
            hold(stack, trusted, Address(host, port), LINKS)
            grown = memory.resident(control_plane.process.pid) - before

        assert grown / LINKS < MOST
        assert control_plane.stop() == 0


def hold(stack: ExitStack, trusted: ssl.SSLContext, address: Address, count: int) -> None:
    for number in range(count):
        plain = stack.enter_context(socket.create_connection((address.host, address.port), 20))
        link = stack.enter_context(trusted.wrap_socket(plain, server_hostname=address.host))
        path = f"/meshes/default/dataplanes/web-{count}-{number}/_link"
        head = f"POST {path} HTTP/1.1\r\nhost: {address.host}\r\ncontent-type: application/json\r\n"
        link.sendall(f"{head}content-length: {len(BODY)}\r\n\r\n".encode() + BODY)
        assert link.recv(12) == b"HTTP/1.1 200"
