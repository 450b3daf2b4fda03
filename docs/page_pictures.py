"""Takes the pictures of the page in docs/pictures: `make screenshots`, or `make screenshots ARGS=mesh` for one.

They show a mesh that runs meanwhile: a few Envoys, of which one refuses something, and light clients that answer as
Envoys would.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import yaml
from playwright.sync_api import Page

from bench.serving.processes import Worker
from tests.page.conftest import write
from tests.support.browser import chromium, missing
from tests.support.control_plane import ControlPlane
from tests.support.loopback import Address
from tests.support.mesh import MESH, Document, bare_dataplane, mesh_service
from tests.support.playground import Playground

IMAGES: Final = Path(__file__).resolve().parent / "pictures"
LARGEST: Final = 200 * 1024
SIZE: Final = {"width": 1180, "height": 720}

SERVICES: Final = ("billing", "catalog", "checkout", "payments", "search", "shipping")
CALLS: Final = {
    "search": ("catalog",),
    "checkout": ("billing", "catalog", "shipping"),
    "billing": ("payments",),
    "shipping": ("catalog",),
}
OF_EACH: Final = 150
AWAY: Final = 17
"""Each so many-th light client is not connected."""

POLICIES: Final = """\
type: MeshHTTPRoute
mesh: default
name: reports
spec:
  to:
  - targetRef: {kind: MeshService, name: backend}
    rules:
    - matches:
      - path: {type: PathPrefix, value: /reports}
      default:
        backendRefs:
        - {kind: MeshService, name: backend, port: 80, weight: 90}
        - {kind: MeshService, name: backend-next, port: 80, weight: 10}
---
type: MeshTimeout
mesh: default
name: for-everybody
spec:
  to:
  - targetRef: {kind: Mesh}
    default:
      connectionTimeout: 2s
      http: {requestTimeout: 10s}
---
type: MeshTimeout
mesh: default
name: reports-take-long
spec:
  to:
  - targetRef: {kind: MeshHTTPRoute, name: reports}
    default:
      http: {requestTimeout: 45s}
---
type: MeshRetry
mesh: default
name: backend-is-flaky
spec:
  to:
  - targetRef: {kind: MeshService, name: backend}
    default:
      http:
        numRetries: 3
        perTryTimeout: 4s
        retryOn: [5xx]
"""
REFUSED: Final = """\
type: MeshProxyPatch
mesh: default
name: too-clever
spec:
  targetRef: {kind: Dataplane, name: web-2}
  default:
    appendModifications:
    - cluster:
        operation: Patch
        match: {name: kri_msvc_default___backend_main}
        value: |
          connect_timeout: 0s
"""
PICTURES: Final = {
    "fleet": ("light", "/gui/fleet?by=service", "a.cell.refusing"),
    "proxy": ("light", "/gui/proxies/default/web-1", "tr.lost"),
    "refused": ("dark", "/gui/proxies/default/web-2?tab=delivery", ".note.bad h2"),
    "mesh": ("light", "/gui/mesh?mesh=default", "svg a"),
    "policy": ("light", "/gui/policies/default/meshtimeouts/for-everybody", "tr.idle"),
    "changes": ("dark", "/gui/changes", "ol.timeline li.refusing"),
    "explain": ("dark", "/gui/explain?mesh=default&proxy=web-1&call=GET+http://backend/reports/7", "tr.taken"),
}


def light_clients() -> Iterator[Document]:
    for service in SERVICES:
        for number in range(OF_EACH):
            client = dict(bare_dataplane(f"{service}-{number:03}", service, Address("10.0.0.1", 8080)))
            called = enumerate(CALLS.get(service, ()), 10_000)
            outbound = [{"port": port, "tags": {"kuma.io/service": name}} for port, name in called]
            yield client | {"networking": client["networking"] | {"outbound": outbound}}


def started(folder: Path, stack: ExitStack) -> Playground:
    """The mesh, with everybody in it who is to be seen."""
    control_plane = stack.enter_context(ControlPlane(folder, host="127.0.0.1"))
    control_plane.apply(MESH, mesh_service("backend"), mesh_service("backend-next"))
    mesh = Playground(control_plane, folder, stack)
    for name in ("backend-1", "backend-2", "backend-next-1"):
        mesh.service(name, of=name.rpartition("-")[0])
    for name in ("web-1", "web-2"):
        mesh.proxy(name, "web", None, "backend")
    write(mesh, POLICIES, "mesh/policies.yaml")
    clients = list(light_clients())
    body = {"resources": [{"text": yaml.safe_dump(dict(client))} for client in clients]}
    answer = control_plane.request("POST", "/_apply", json.dumps(body).encode(), **{"content-type": "application/json"})
    answer.raise_for_status()
    load = stack.enter_context(Worker("bench.serving.load", log=folder / "load.log"))
    names = [f"default.{client['name']}" for number, client in enumerate(clients) if number % AWAY]
    load.do("make", names=names, delta=True)
    load.do("prepare")
    load.do("connect", port=control_plane.ads.port)
    load.do("settle", wants="ready", least=len(names), quiet=0.3, within=60.0)
    mesh.ready()
    write(mesh, REFUSED, "mesh/patches.yaml")
    control_plane.in_force()
    return mesh


def taken(page: Page, address: str, awaited: str, file: Path) -> None:
    page.goto(address)
    page.wait_for_selector(awaited)
    page.mouse.move(0, 0)
    page.screenshot(path=file)
    size = file.stat().st_size
    if size > LARGEST:
        raise RuntimeError(f"{file.name} has {size} bytes: more than {LARGEST}")
    sys.stdout.write(f"wrote {file}\n")


def main() -> None:
    if reason := missing():
        raise SystemExit(f"No pictures can be taken: {reason}")
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        origin = started(Path(folder), stack).control_plane.api.url
        with chromium() as browser:
            for name in sys.argv[1:] or PICTURES:
                scheme, path, awaited = PICTURES[name]
                options: dict[str, Any] = {"color_scheme": scheme, "viewport": SIZE}
                context = browser.new_context(**options)
                taken(context.new_page(), origin + path, awaited, IMAGES / f"page-{name}.png")
                context.close()


if __name__ == "__main__":
    main()
