"""Certificates over SDS, from running control planes: made, rolled while a control plane is killed, and never shown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
import yaml
from cryptography import x509
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryResponse

from cp.identity.authority import KeyPair
from cp.translate.packing import CLUSTER, LISTENER, SECRET
from generators.envoy.names import mesh_identity
from tests.ads.proxy import Proxy
from tests.identity.meshes import dataplane, mesh, provided
from tests.identity.meshes import new_authority as authority_made_at
from tests.support.control_plane import ControlPlane
from tests.support.leaks import spellings
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

NAME = mesh_identity("default")
_ASKED: Final[Mapping[str, Sequence[str]]] = {CLUSTER: (), LISTENER: (), SECRET: (NAME,)}
WEB = dataplane({"kuma.io/service": "web"}).data


def new_authority() -> KeyPair:
    pair, _ = authority_made_at(now=time.time())
    return pair


class Sds:
    """A proxy that asks for what an Envoy asks for, and takes all that it is sent."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def ask(self) -> None:
        for type_url, names in _ASKED.items():
            await self._proxy.ask(type_url, *names)

    async def certificate(self) -> tuple[x509.Certificate, bytes]:
        """The next one, and its key."""
        while True:
            response = await self._proxy.hear()
            await self._proxy.answer(response, *_ASKED[response.type_url])
            if response.type_url == SECRET:
                return leaf(response)


def leaf(response: DiscoveryResponse) -> tuple[x509.Certificate, bytes]:
    [resource] = response.resources
    tls = Secret.FromString(resource.value).tls_certificate
    chain = x509.load_pem_x509_certificates(tls.certificate_chain.inline_string.encode())
    return chain[0], tls.private_key.inline_bytes


def issuer(certificate: x509.Certificate) -> bytes:
    named = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    assert named is not None
    return named


def authorities(control_plane: ControlPlane) -> set[str]:
    names = {item["name"] for item in control_plane.get("/meshes/default/secrets")["items"]}
    return {name.removeprefix("default.ca-builtin-key-") for name in names if "builtin-key" in name}


def certificate_facts(control_plane: ControlPlane) -> dict[str, object]:
    found: dict[str, object] = control_plane.get("/meshes/default/dataplanes/web-1/_overview")["dataplaneInsight"]
    return found


@pytest.mark.long
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_root_is_rolled_although_the_control_plane_is_killed(tmp_path: Path, workers: str) -> None:
    store, settings = f"sqlite:///{tmp_path}/koguma.db", {"KOGUMA_WORKERS": workers, "KOGUMA_TRUST_PROPAGATION": "2s"}
    control_plane = ControlPlane(tmp_path, store, "127.0.0.1", **settings)

    async def before() -> bytes:
        async with Proxy(control_plane.ads.port, "default.web-1") as proxy:
            sds = Sds(proxy)
            await sds.ask()
            certificate, key = await sds.certificate()
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            assert names.get_values_for_type(x509.UniformResourceIdentifier)[0] == "spiffe://default/web"
            insight = await asyncio.to_thread(certificate_facts, control_plane)
            assert insight["mTLS"]["issuedBackend"] == "ca-1"  # type: ignore[index]
            _shown_nowhere(control_plane, key)
            return issuer(certificate)

    async def after(old: bytes) -> None:
        async with Proxy(control_plane.ads.port, "default.web-1") as proxy:
            sds = Sds(proxy)
            await sds.ask()
            certificate, key = await sds.certificate()
            assert issuer(certificate) == old
            certificate, key = await sds.certificate()
            assert issuer(certificate) != old
            _shown_nowhere(control_plane, key)

    with control_plane:
        control_plane.apply(mesh().data, WEB)
        old = asyncio.run(before())
        control_plane.apply(mesh("ca-2").data)
        eventually(lambda: authorities(control_plane) == {"ca-1", "ca-2"})
        control_plane.kill()
        control_plane.start().ready()
        asyncio.run(after(old))
        control_plane.delete(WEB)
        control_plane.delete(mesh("ca-2").data)  # what we made for it holds it in place no more than its defaults


@pytest.mark.long
def test_a_folder_of_files_provides_an_authority(tmp_path: Path) -> None:
    folder = tmp_path / "resources"
    folder.mkdir()
    for document in (provided(new_authority(), mode="PERMISSIVE").data, WEB):
        (folder / f"{document['type']}.yaml").write_text(yaml.safe_dump(dict(document)))
    control_plane = ControlPlane(tmp_path, f"dir:{folder}", "127.0.0.1", KOGUMA_TRUST_PROPAGATION="1s")

    async def test() -> None:
        async with Proxy(control_plane.ads.port, "default.web-1") as proxy:
            sds = Sds(proxy)
            await sds.ask()
            old, _ = await sds.certificate()
            (folder / "Mesh.yaml").write_text(yaml.safe_dump(dict(provided(new_authority(), "ca-2").data)))
            new, key = await sds.certificate()
            assert issuer(new) != issuer(old)
            _shown_nowhere(control_plane, key)

    with control_plane:
        asyncio.run(test())


def test_a_folder_has_no_place_for_a_built_in_authority_and_lint_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "resources"
    folder.mkdir()
    (folder / "mesh.yaml").write_text(yaml.safe_dump(dict(mesh().data)))

    with ControlPlane(tmp_path, f"dir:{folder}", "127.0.0.1") as control_plane:

        def hint() -> str | None:
            findings = control_plane.get("/_lint")["findings"]
            return next((finding["hint"] for finding in findings if finding["code"] == "no-authority"), None)

        assert "KOGUMA_REGISTRATIONS" in str(eventually(hint))


def test_a_certificate_is_renewed_while_the_stream_is_open(tmp_path: Path) -> None:
    control_plane = ControlPlane(tmp_path, host="127.0.0.1")

    async def test() -> None:
        async with Proxy(control_plane.ads.port, "default.web-1") as proxy:
            sds = Sds(proxy)
            await sds.ask()
            first, _ = await sds.certificate()
            second, _ = await sds.certificate()
            assert issuer(first) == issuer(second)
            assert first.not_valid_after_utc < second.not_valid_after_utc
            assert first.public_key() != second.public_key()

    with control_plane:
        control_plane.apply(mesh(dpCert={"rotation": {"expiration": "5s"}}).data, WEB)
        asyncio.run(test())
        assert control_plane.metrics()["koguma_certificates_issued_total"] >= 2


def _shown_nowhere(control_plane: ControlPlane, key: bytes) -> None:
    """Neither in an answer nor in a file: not in the log, nor in the database, its history or the work folder."""
    places = ("/meshes/default/dataplanes/web-1/_config", "/meshes/default/dataplanes/web-1/_delivery", "/secrets")
    asked = (*places, "/dataplanes/_overview", "/meshes", "/_history", "/_changes", "/_fleet", "/_lint", "/_export")
    texts = [control_plane.request("GET", place).content for place in asked]
    texts.append(repr(control_plane.metrics()).encode())
    files = [path for path in control_plane.log.parent.rglob("*") if path.is_file()]
    assert control_plane.log in files
    texts += [path.read_bytes() for path in files]
    for line in key.splitlines()[1:-1]:
        assert not [text for text in texts for spelling in spellings(line) if spelling in text]
