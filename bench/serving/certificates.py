"""Certificates of proxies, as they arrive in secrets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryResponse, DiscoveryResponse

from bench.serving.reading import Heard, Run
from cp.translate.packing import SECRET


def certificates_in(heard: Heard, *, delta: bool) -> Iterator[dict[str, Any]]:
    """What may be told of each certificate in a response: never its key."""
    if heard.type_url == SECRET:
        for secret in (secret for run in heard.runs for secret in _secrets(run, delta=delta)):
            if secret.HasField("tls_certificate"):
                yield _shown(secret)


def _secrets(run: Run, *, delta: bool) -> Iterator[Secret]:
    if delta:
        for resource in DeltaDiscoveryResponse.FromString(run.data).resources:
            yield Secret.FromString(resource.resource.value)
    else:
        for content in DiscoveryResponse.FromString(run.data).resources:
            yield Secret.FromString(content.value)


def _shown(secret: Secret) -> dict[str, Any]:
    certificate = x509.load_pem_x509_certificate(secret.tls_certificate.certificate_chain.inline_string.encode())
    key = load_pem_private_key(secret.tls_certificate.private_key.inline_bytes, None)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    public = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return {
        "secret": secret.name,
        "uris": names.get_values_for_type(x509.UniformResourceIdentifier),
        "key": hashlib.sha256(public).hexdigest(),
        "fits": key.public_key() == certificate.public_key(),
    }
