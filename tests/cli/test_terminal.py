"""What others name is printed, and no terminal obeys it: files of resources, and what is quoted of them."""

from __future__ import annotations

from typing import Final

import httpx
import pytest

from cp.cli.proxies import delivery
from tests.api.samples import dataplane
from tests.cli.conftest import Koguma

HOSTILE: Final = "\x1b[2J\x9b31m\u202eevil.yaml"
TIMEOUTS: Final = """\
type: MeshTimeout
mesh: default
name: slow
spec:
  to:
    - targetRef: {kind: Mesh}
      default: {connectionTimeout: 7s}
    - targetRef: {kind: MeshService, name: nobody}
      default: {connectionTimeout: 8s}
"""
CALLING: Final = {"port": 10080, "tags": {"kuma.io/service": "web"}}


@pytest.mark.parametrize("command", [("lint",), ("explain", "web-1", "127.0.0.1:10080")], ids=["lint", "explain"])
def test_the_name_of_a_file_is_not_obeyed(koguma: Koguma, command: tuple[str, ...]) -> None:
    """Whoever may write a policy says in which file it stands."""
    with httpx.Client(base_url=koguma.environment["KOGUMA_ADDRESS"]) as client:
        web = dataplane(outbound=[CALLING])
        client.put("/meshes/default/dataplanes/web-1", json=web).raise_for_status()
        body = {"resources": [{"text": TIMEOUTS, "place": f"{HOSTILE}:1"}]}
        client.post("/_apply", json=body).raise_for_status()
    ended = koguma(*command)

    assert "evil.yaml" in ended.out
    assert all(line.isprintable() for line in f"{ended.out}{ended.err}".split("\n"))


def test_what_a_proxy_refuses_is_not_obeyed() -> None:
    """An Envoy, or who passes for one, says why it refuses something; the policy behind it stands in a file."""
    policy = {"type": "MeshTimeout", "name": "slow", "path": "spec", "file": HOSTILE, "line": 1, "suspect": True}
    refusal = {"since": "2026-01-01T00:00:00Z", "resources": [], "policies": [policy]}
    of_type = {"type": "clusters", "since": "2026-01-01T00:00:00Z", "inSync": False, "refusals": [refusal]}
    of_type |= {"responses": 1, "accepted": 0, "rejected": 1, "resources": 1, "bytes": 1}
    stream = {"connectedSince": "2026-01-01T00:00:00Z", "protocol": "delta", "envoy": HOSTILE, "types": [of_type]}
    answer = {"mesh": "default", "name": "web-1", "status": "Refused", "since": None, "streams": [stream]}

    lines = list(delivery(answer | {"findings": []}))

    assert sum("evil.yaml" in line for line in lines) == 2
    assert all(line.isprintable() for line in lines)
