"""Whether an Envoy has its first configuration, so that whoever starts a proxy hears of it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import httpx

_EVERY: Final = 0.05
_HINT_AFTER: Final = 10.0
_OK: Final = 200


def announce(bootstrap: str, say: Callable[[str], None]) -> None:
    """Say, from a thread of its own, when the Envoy of this bootstrap configuration is ready, or why it may not be."""
    address = json.loads(bootstrap)["admin"]["address"]
    threading.Thread(target=_watch, args=(address, say), name="readiness", daemon=True).start()


def where(bootstrap: str) -> str:
    """How to reach Envoy's admin interface from a shell."""
    address = json.loads(bootstrap)["admin"]["address"]
    if "pipe" in address:
        return f"curl --unix-socket {address['pipe']['path']} http://envoy/"
    return f"curl {_url(address)}/"


def _watch(address: Mapping[str, Any], say: Callable[[str], None]) -> None:
    begun, hinted = time.monotonic(), False
    with _client(address) as client:
        while not _is_ready(client):
            if not hinted and time.monotonic() - begun > _HINT_AFTER:
                say("Envoy runs, but has no configuration yet. Does it reach the control plane's port for proxies?")
                hinted = True
            time.sleep(_EVERY)
    say(f"ready after {time.monotonic() - begun:.1f} s")


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/ready").status_code == _OK
    except httpx.HTTPError:
        return False


def _client(address: Mapping[str, Any]) -> httpx.Client:
    if "pipe" in address:
        transport = httpx.HTTPTransport(uds=address["pipe"]["path"])
        return httpx.Client(transport=transport, base_url="http://envoy", timeout=1)
    return httpx.Client(base_url=_url(address), timeout=1)


def _url(address: Mapping[str, Any]) -> str:
    socket = address["socketAddress"]
    host = f"[{socket['address']}]" if ":" in socket["address"] else socket["address"]
    return f"http://{host}:{socket['portValue']}"
