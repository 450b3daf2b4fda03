"""A mesh with Envoys, and a browser that looks at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

import pytest
import yaml
from playwright.sync_api import Browser

from tests.support.browser import Visit, chromium, visit
from tests.support.control_plane import path
from tests.support.loopback import Address
from tests.support.mesh import Proxy, bare_dataplane, mesh_service
from tests.support.playground import Playground, dp_run, playground
from tests.support.waiting import eventually

Open = Callable[..., AbstractContextManager[Visit]]

POLICIES: Final = """\
type: MeshTimeout
mesh: default
name: for-all
spec:
  to:
  - targetRef:
      kind: Mesh
    default:
      http:
        requestTimeout: 9s
---
type: MeshTimeout
mesh: default
name: for-backend
spec:
  to:
  - targetRef:
      kind: MeshService
      name: backend
    default:
      connectionTimeout: 2s
      http:
        requestTimeout: 3s
---
type: MeshHTTPRoute
mesh: default
name: slow-ones
spec:
  to:
  - targetRef:
      kind: MeshService
      name: backend
    rules:
    - matches:
      - path:
          type: PathPrefix
          value: /slow
      default: {}
"""


def write(mesh: Playground, text: str, file: str) -> None:
    """Write documents as `koguma apply -f` does, which says where in the file each begins."""
    line = 1
    for document in text.split("---\n"):
        answer = mesh.control_plane.request(
            "PUT", path(yaml.safe_load(document)), document.encode(), **{"Koguma-Source": f"{file}:{line}"}
        )
        answer.raise_for_status()
        line += document.count("\n") + 1


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="package")
def mesh(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    """A service with an Envoy, a client with one that `koguma dp run` started, and a proxy that is not there."""
    folder = tmp_path_factory.mktemp("page")
    with playground(folder) as started:
        started.control_plane.apply(mesh_service("backend"))
        started.service("backend-1", of="backend", version="v1")
        started.control_plane.apply(bare_dataplane("absent-1", "absent", Address("10.0.0.1", 80)))
        write(started, POLICIES, "mesh/timeouts.yaml")
        with dp_run(started, Proxy("frontend-1", "frontend-1", backends=("backend",)), folder):
            started.ready()
            eventually(lambda: started.control_plane.metrics()["koguma_agent_links"] > 0, within=20)
            started.control_plane.in_force()
            yield started


@pytest.fixture
def open_page(browser: Browser, mesh: Playground) -> Open:
    """Opens windows on the mesh."""
    return partial(visit, browser, mesh.control_plane.api.url)


@pytest.fixture
def window(open_page: Open) -> Iterator[Visit]:
    """Whatever a test does in it, nothing comes from elsewhere and nothing fails."""
    with open_page() as visited:
        yield visited
        assert not visited.elsewhere
        assert not visited.faults
