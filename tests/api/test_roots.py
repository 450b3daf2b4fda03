"""A write that brings an authority that Envoy takes for another one is answered with a warning."""

from __future__ import annotations

from typing import Any, Final

import httpx
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec

from cp.identity.authority import Authority, KeyPair, authority
from cp.model.document import Document
from tests.api.conftest import Api, FixedState, Unit
from tests.identity.meshes import CA, mesh, new_authority, pair_of, secret, trusting, world

SIGNER, _ = new_authority()
NAMED, _ = new_authority()
TOLD: Final = "no SubjectKeyIdentifier"


def nameless() -> KeyPair:
    return pair_of(ec.generate_private_key(ec.SECP256R1()), CA, subject=new_authority()[1].certificate.subject)


def secrets(pair: KeyPair) -> tuple[Document, Document]:
    return secret("ca-cert", pair.certificate), secret("ca-key", pair.key)


@pytest.fixture
def api(start: Unit) -> Api:
    """A mesh whose authority is in two Secrets."""
    conf = {"cert": {"secret": "ca-cert"}, "key": {"secret": "ca-key"}}
    signer = authority(SIGNER, None)
    assert isinstance(signer, Authority)
    documents = (mesh(type="provided", conf=conf), *secrets(SIGNER), trusting(signer))
    return start(state=FixedState(world(*documents))).with_mesh()


def applied(api: Api, *documents: Document) -> list[str]:
    texts = [{"text": yaml.safe_dump(dict(document.data))} for document in documents]
    outcomes = api.post("/_apply", json={"resources": texts}).raise_for_status().json()["resources"]
    return [warning for outcome in outcomes for warning in outcome.get("warnings", ())]


def test_another_root_in_the_secrets_of_an_authority(api: Api) -> None:
    [told] = applied(api, *secrets(nameless()))

    assert TOLD in told
    assert "Mesh default mtls.backends[0]" in told
    assert "put the one before back" in told
    assert applied(api, *secrets(NAMED)) == []


def trust(*pairs: KeyPair) -> dict[str, Any]:
    bundles = [{"type": "Pem", "pem": {"value": pair.certificate.decode()}} for pair in pairs]
    spec = {"trustDomain": "partner.example", "caBundles": bundles}
    return {"type": "MeshTrust", "mesh": "default", "name": "partner", "spec": spec}


def test_roots_that_are_trusted_beside_each_other(api: Api) -> None:
    def written(*pairs: KeyPair) -> httpx.Response:
        return api.put("/meshes/default/meshtrusts/partner", trust(*pairs)).raise_for_status()

    [told] = written(SIGNER, nameless()).json()["warnings"]
    assert "spec.caBundles" in told
    assert "not all a SubjectKeyIdentifier" in told
    assert "warnings" not in written(SIGNER, NAMED).json()
