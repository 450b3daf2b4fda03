"""What is secret is shown to nobody, and what is shown in its place is not taken for it."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.api.conftest import Api

KEY = "PRIVATE-KEY-THAT-NOBODY-MAY-SEE"
INLINE = base64.b64encode(KEY.encode()).decode()

SECRET = {"type": "Secret", "mesh": "default", "name": "key", "data": INLINE}
GLOBAL = {"type": "GlobalSecret", "name": "key", "data": INLINE}
OUTSIDE: dict[str, Any] = {
    "type": "MeshExternalService",
    "mesh": "default",
    "name": "outside",
    "spec": {
        "match": {"type": "HostnameGenerator", "port": 443, "protocol": "tcp"},
        "endpoints": [{"address": "example.com", "port": 443}],
        "tls": {
            "enabled": True,
            "verification": {"clientCert": {"inline": INLINE}, "clientKey": {"inlineString": KEY}},
        },
    },
}
MESH = {
    "type": "Mesh",
    "name": "default",
    "mtls": {
        "enabledBackend": "ca",
        "backends": [
            {"name": "ca", "type": "provided", "conf": {"cert": {"inlineString": KEY}, "key": {"inline": INLINE}}}
        ],
    },
}
IDENTITY = {
    "type": "MeshIdentity",
    "mesh": "default",
    "name": "identity",
    "spec": {
        "provider": {
            "type": "Bundled",
            "bundled": {
                "ca": {
                    "certificate": {"type": "File", "file": {"path": "/etc/ca.pem"}},
                    "privateKey": {"type": "InsecureInline", "insecureInline": {"value": KEY}},
                }
            },
        }
    },
}
WITH_SECRETS = {
    "/meshes/default/secrets": SECRET,
    "/globalsecrets": GLOBAL,
    "/meshes/default/meshexternalservices": OUTSIDE,
    "/meshes": MESH,
    "/meshes/default/meshidentities": IDENTITY,
}


@pytest.mark.parametrize(("folder", "document"), WITH_SECRETS.items(), ids=lambda value: str(value)[:30])
def test_secrets_are_not_shown(api: Api, folder: str, document: dict[str, Any]) -> None:
    path = f"{folder}/{document['name']}"
    assert api.put(path, document).is_success

    for answer in (api.get(path), api.get(folder), api.get(f"{path}?format=kubernetes")):
        assert answer.status_code == 200
        assert "[redacted]" in answer.text
        assert KEY not in answer.text
        assert INLINE not in answer.text


@pytest.mark.parametrize(("folder", "document"), WITH_SECRETS.items(), ids=lambda value: str(value)[:30])
def test_what_is_shown_cannot_be_written_back(api: Api, folder: str, document: dict[str, Any]) -> None:
    path = f"{folder}/{document['name']}"
    api.put(path, document).raise_for_status()
    etag = api.get(path).headers["etag"]

    written = api.put(path, api.get(path).json())
    applied = api.post("/_apply", json={"resources": [{"text": api.get(path).text}]})

    for answer in (written, applied):
        assert answer.status_code == 400
        assert "which is shown in place of a secret" in answer.text
    assert api.get(path).headers["etag"] == etag


def test_the_names_of_secrets_are_shown(api: Api) -> None:
    """Where a secret comes from is no secret."""
    by_name = OUTSIDE | {
        "spec": OUTSIDE["spec"] | {"tls": {"enabled": True, "verification": {"caCert": {"secret": "ca"}}}}
    }
    api.put("/meshes/default/meshexternalservices/outside", by_name).raise_for_status()

    found = api.get("/meshes/default/meshexternalservices/outside").json()

    assert found["spec"]["tls"]["verification"]["caCert"] == {"secret": "ca"}


def test_a_secret_that_is_refused_is_not_repeated(api: Api) -> None:
    for data in (f"{KEY}!", [KEY], {"key": KEY}, 12345678901):
        answer = api.put("/meshes/default/secrets/key", SECRET | {"data": data})
        assert answer.status_code == 400
        assert KEY not in answer.text
        assert "12345678901" not in answer.text
