"""A request leaves nothing to the garbage collector, which seldom runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

import httpx

from cp.model.document import Document
from cp.model.names import Key
from tests.plan.rig import planned_control_plane
from tests.support.garbage import cyclic_garbage, types_of

PROXY: Final = "/meshes/default/dataplanes/web"
HEADERS: Final = {"content-type": "application/yaml"}


def dataplane(name: str, **labels: str) -> Mapping[str, Any]:
    inbound = [{"port": 80, "tags": {"kuma.io/service": name}}]
    networking = {"address": "192.0.2.1", "inbound": inbound}
    return {"type": "Dataplane", "mesh": "default", "name": name, "labels": labels, "networking": networking}


def written(*documents: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"json": {"resources": [{"text": json.dumps(document)} for document in documents]}}


BAD: Final = {**dataplane("web"), "networking": {}}
REQUESTS: Final[tuple[tuple[str, str, int, Mapping[str, Any]], ...]] = (
    *(("GET", path, 200, {}) for path in ("/meshes", PROXY, f"{PROXY}/_overview", "/_lint", "/_history", "/_delivery")),
    *(("GET", f"{PROXY}/{answer}", 200, {}) for answer in ("_values", "_rules", "_config")),
    ("GET", "/meshes/default/_graph", 200, {}),
    ("GET", "/nowhere", 404, {}),
    ("GET", "/meshes/default/dataplanes/none/_config", 404, {}),
    ("GET", "/_history?size=x", 400, {}),
    ("GET", f"{PROXY}/_explain?call=GET+db", 400, {}),
    ("PUT", PROXY, 400, {"json": BAD}),
    ("PUT", PROXY, 400, {"content": b"a: [", "headers": HEADERS}),
    ("PUT", PROXY, 412, {"json": dataplane("web"), "headers": {"if-match": '"99"'}}),
    ("PUT", PROXY, 415, {"content": b"x", "headers": {"content-type": "text/html"}}),
    ("PUT", f"{PROXY}?dryRun=true&plan=true", 200, {"json": dataplane("web", some="label")}),
    ("POST", "/_apply?dryRun=true&plan=true", 200, written(dataplane("web", another="label"))),
    ("POST", "/_apply", 400, written(BAD)),
    ("POST", "/_apply?preflight=true", 400, written(dataplane("web"))),
    ("POST", "/bootstrap", 404, {"json": {"mesh": "default", "name": "none"}}),
    ("POST", "/bootstrap", 422, {"json": {"mesh": "none", "name": "web"}}),
)


def test_requests_leave_nothing_to_the_collector() -> None:
    async def statuses(api: httpx.AsyncClient) -> list[tuple[str, str, int]]:
        return [
            (method, path, (await api.request(method, path, **options)).status_code)
            for method, path, _, options in REQUESTS
        ]

    async def scene() -> None:
        names = ("web", "db")
        documents = [Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})]
        documents += [Document(Key("Dataplane", "default", name), dataplane(name)) for name in names]
        async with planned_control_plane(documents) as control_plane:
            await statuses(control_plane.api)  # fills caches
            with cyclic_garbage() as garbage:
                answered = await statuses(control_plane.api)
        assert answered == [(method, path, status) for method, path, status, _ in REQUESTS]
        assert types_of(garbage) == set()

    asyncio.run(scene())
