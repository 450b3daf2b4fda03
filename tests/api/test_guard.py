"""No website speaks to the control plane through the browser of somebody who reaches it."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from cp.api.http import create_diagnostics
from tests.api.conftest import Api, Unit
from tests.api.samples import TIMEOUT_YAML, timeout

SLOW = "/meshes/default/meshtimeouts/slow"
APPLY = '{"resources": [{"text": "type: Mesh\\nname: evil\\n"}]}'
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:8080", "http://localhost"])
@pytest.mark.parametrize(("method", "path"), [("POST", "/_apply"), ("DELETE", SLOW), ("GET", "/meshes"), ("PUT", SLOW)])
def test_a_page_of_another_website_is_refused(api: Api, origin: str, method: str, path: str) -> None:
    answer = api.request(method, path, content=APPLY, headers=JSON | {"origin": origin})

    assert (answer.status_code, answer.json()["title"]) == (403, "Forbidden")
    assert api.get("/meshes").json()["total"] == 1
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_page_of_its_own_is_answered(api: Api) -> None:
    assert api.get("/meshes", headers={"origin": "http://localhost:5681"}).status_code == 200


@pytest.mark.parametrize(
    ("site", "mode", "status"),
    [
        ("cross-site", "no-cors", 403),
        ("same-site", "no-cors", 403),
        ("cross-site", "navigate", 200),
        ("none", "navigate", 200),
    ],
)
def test_what_a_page_has_fetched_is_told_from_a_link_that_somebody_follows(
    api: Api, site: str, mode: str, status: int
) -> None:
    assert api.get("/meshes", headers={"sec-fetch-site": site, "sec-fetch-mode": mode}).status_code == status


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:5681", "localhost.evil.example", "127.0.0.1.evil.example"),
        *("127.0.0.1:80@evil.example", "localhost:x", "[::1]evil.example", "127.0.0.1]:80@evil.example"),
    ],
)
def test_a_name_that_somebody_made_to_lead_here_is_refused(api: Api, host: str) -> None:
    answer = api.get("/meshes", headers={"host": host})

    assert answer.status_code == 421
    assert "KOGUMA_API_HOSTS" in answer.json()["detail"]


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:5681", "127.0.0.1:5681", "10.1.2.3", "[::1]:5681", "cp.example", "cp.example.:5681"],
)
def test_addresses_and_names_of_its_own_are_answered(start: Unit, host: str) -> None:
    assert start(hosts=["cp.example"]).get("/meshes", headers={"host": host}).status_code == 200


def test_any_name_is_answered_where_the_operator_says_so(start: Unit) -> None:
    assert start(hosts=["*"]).get("/meshes", headers={"host": "anything.example"}).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_body_that_any_form_can_send_is_refused(api: Api, kind: str) -> None:
    """Such requests are sent without asking first (CORS-safelisted content types)."""
    answers = [
        api.post("/_apply", content=APPLY, headers={"content-type": kind}),
        api.put_yaml(SLOW, TIMEOUT_YAML, content_type=kind),
        api.post("/bootstrap", content="{}", headers={"content-type": kind}),
        api.post("/validate", content=TIMEOUT_YAML, headers={"content-type": kind}),
    ]

    assert [answer.status_code for answer in answers] == [415] * 4
    assert "application/yaml" in answers[0].json()["detail"]


def test_a_question_before_another_origin_is_not_granted(api: Api) -> None:
    headers = {"origin": "http://evil.example", "access-control-request-method": "PUT"}
    answer = api.request("OPTIONS", SLOW, headers=headers)

    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers


def test_kumactl_and_curl_are_answered(api: Api) -> None:
    assert api.put(SLOW, timeout()).status_code == 201
    assert api.put_yaml(SLOW, TIMEOUT_YAML, user_agent="curl/8.5.0").status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"), [({"host": "evil.example"}, 421), ({"origin": "http://evil.example"}, 403), ({}, 200)]
)
def test_diagnostics_are_guarded_alike(api: Api, headers: dict[str, str], status: int) -> None:
    async def metrics() -> bytes:
        return b""

    async def exchange() -> httpx.Response:
        transport = httpx.ASGITransport(create_diagnostics(api.collaborators, metrics))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get("/metrics", headers=headers)

    assert asyncio.run(exchange()).status_code == status


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/meshes"),
        ("GET", "/nothing/there"),
        ("PUT", SLOW),
        ("GET", "/ready"),
        ("GET", "/metrics"),
        ("GET", "/gui"),
    ],
)
def test_every_answer_has_safe_headers(api: Api, method: str, path: str) -> None:
    headers = api.request(method, path).headers

    assert headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["referrer-policy"] == "no-referrer"
    assert "cache-control" in headers


def test_request_from_another_website_is_answered_with_safe_headers(api: Api) -> None:
    answer = api.get("/meshes", headers={"origin": "http://evil.example"})

    assert (answer.status_code, answer.headers["x-content-type-options"]) == (403, "nosniff")
