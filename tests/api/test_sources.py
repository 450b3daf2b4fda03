"""Who may name a Secret in a document, and what nobody writes but the control plane."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import httpx
import msgspec
import pytest

from cp.access.rights_file import rights_of
from cp.api.authentication import AccessControl
from cp.resources.world import World
from cp.store.port import Put
from tests.access import forge
from tests.api.conftest import ADMINS, KINDS, Api, FixedState, Unit
from tests.identity.meshes import new_authority, trusting

FILE: Final = """\
rights:
  - {groups: [team], may: [write], meshes: [default]}
  - {groups: [team], may: [write], meshes: [default], kinds: [MeshIdentity]}
  - {groups: [keepers], may: [write], meshes: [default], kinds: [Secret, Mesh, MeshIdentity, MeshExternalService]}
"""
TEAM: Final = {"authorization": f"Bearer {forge.token({**forge.USER, 'Groups': ['team']})}"}
KEEPER: Final = {"authorization": f"Bearer {forge.token({**forge.USER, 'Groups': ['keepers']})}"}
ADMIN: Final[dict[str, str]] = {}
Write = Callable[[Api, dict[str, Any], dict[str, str]], httpx.Response]


def outside(key: str = "our-key", port: int = 443) -> dict[str, Any]:
    verification = {"clientCert": {"file": "/etc/client.pem"}, "clientKey": {"secret": key}}
    spec = {
        "match": {"type": "HostnameGenerator", "port": 443, "protocol": "tcp"},
        "endpoints": [{"address": "example.com", "port": port}],
        "tls": {"enabled": True, "verification": verification},
    }
    return {"type": "MeshExternalService", "mesh": "default", "name": "outside", "spec": spec}


def mesh(**key: Any) -> dict[str, Any]:
    conf = {"cert": {"inlineString": "x"}, "key": key or {"secret": "our-key"}}
    backends = [{"name": "ca", "type": "provided", "conf": conf}]
    return {"type": "Mesh", "name": "default", "mtls": {"enabledBackend": "ca", "backends": backends}}


def identity(**key: Any) -> dict[str, Any]:
    of_secret = {"type": "Secret", "secretRef": {"kind": "Secret", "name": "our-key"}}
    certificate = {"type": "InsecureInline", "insecureInline": {"value": "x"}}
    bundled = {"ca": {"certificate": certificate, "privateKey": key or of_secret}}
    spec = {"provider": {"type": "Bundled", "bundled": bundled}}
    return {"type": "MeshIdentity", "mesh": "default", "name": "identity", "spec": spec}


def put(api: Api, document: dict[str, Any], headers: dict[str, str]) -> httpx.Response:
    kind = KINDS[document["type"]]
    path = f"{'' if kind.is_global else '/meshes/default'}/{kind.plural}/{document['name']}"
    return api.request("PUT", path, json=document, headers=headers, peer=_peer(headers))


def apply(api: Api, document: dict[str, Any], headers: dict[str, str]) -> httpx.Response:
    body = {"resources": [{"text": msgspec.json.encode(document).decode()}]}
    return api.post("/_apply", json=body, headers=headers, peer=_peer(headers))


def _peer(headers: dict[str, str]) -> str:
    return "192.0.2.1" if headers else "127.0.0.1"


@pytest.fixture
def api(start: Unit) -> Api:
    rights = rights_of(FILE, "access.yaml", KINDS, ADMINS)
    control = AccessControl(lambda: rights, clock=lambda: forge.NOW)
    world = World.of(forge.signing_keys(), KINDS)
    return start(state=FixedState(world), access=control).with_mesh()


writing = pytest.mark.parametrize("write", [put, apply])


@writing
@pytest.mark.parametrize("document", [outside(), mesh(), identity()], ids=lambda document: str(document["type"]))
def test_who_names_a_secret_has_to_be_one_who_writes_secrets(api: Api, write: Write, document: dict[str, Any]) -> None:
    refused = write(api, document, TEAM)

    assert refused.status_code == 403
    assert "may not write Secret in mesh `default`" in refused.json()["detail"]
    assert "names the Secret `our-key`" in refused.json()["detail"]
    assert write(api, document, KEEPER).is_success
    assert write(api, document, ADMIN).is_success


@writing
def test_what_a_document_names_already_is_nobody_s_concern_again(api: Api, write: Write) -> None:
    assert write(api, outside(), ADMIN).is_success

    assert write(api, outside(port=8443), TEAM).is_success
    assert write(api, outside("another-key", port=8443), TEAM).status_code == 403


FILE_SOURCE: Final = {"type": "File", "file": {"path": "/etc/prod.key"}}
VARIABLE: Final = {"type": "EnvVar", "envVar": {"name": "PROD_KEY"}}


@writing
@pytest.mark.parametrize(
    ("document", "changed", "named"),
    [
        (mesh(file="/etc/prod.key"), mesh(file="/etc/other.key"), "/etc/prod.key"),
        (identity(**FILE_SOURCE), identity(**VARIABLE), "/etc/prod.key"),
        (identity(**VARIABLE), identity(**FILE_SOURCE), "PROD_KEY"),
    ],
)
def test_only_an_administrator_names_what_is_on_the_control_plane_s_machine(
    api: Api, write: Write, document: dict[str, Any], changed: dict[str, Any], named: str
) -> None:
    """It is read with the control plane's rights: somebody in one mesh would sign with the files of another."""
    refused = write(api, document, KEEPER)

    assert refused.status_code == 403
    assert f"names `{named}` on the control plane's machine, as only administrators may" in refused.json()["detail"]
    assert write(api, document, ADMIN).is_success
    assert write(api, {**document, "labels": {"a": "b"}}, KEEPER).is_success
    assert write(api, changed, KEEPER).status_code == 403


@writing
def test_a_file_that_envoy_reads_is_on_its_own_machine(api: Api, write: Write) -> None:
    document = outside()
    document["spec"]["tls"]["verification"] |= {"clientKey": {"file": "/etc/client.key"}}

    assert write(api, document, TEAM).is_success


@writing
@pytest.mark.parametrize("name", ["default.ca-trust", "frontend.identity-trust"])
@pytest.mark.parametrize("headers", [KEEPER, ADMIN], ids=["keeper", "administrator"])
def test_nobody_writes_whom_proxies_trust(api: Api, write: Write, name: str, headers: dict[str, str]) -> None:
    """A root that somebody adds to it stays for as long as it says."""
    document = {"type": "Secret", "mesh": "default", "name": name, "data": "e30="}
    answer = write(api, document, headers)

    assert answer.status_code == 403
    assert "says whom proxies trust, and the control plane alone writes it" in answer.json()["detail"]
    assert write(api, {**document, "name": "other.ca-trust"}, headers).is_success


def test_only_an_administrator_deletes_whom_proxies_trust(api: Api) -> None:
    records = trusting(new_authority()[1])
    asyncio.run(api.store.write(Put(records)))
    path = f"/meshes/default/secrets/{records.key.name}"

    assert api.delete(path, headers=KEEPER, peer="192.0.2.1").status_code == 403
    assert api.delete(path).is_success
