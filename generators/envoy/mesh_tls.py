"""TLS between the proxies of a mesh: the contexts of both sides, and the secret with the roots that they trust."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from envoy.config.core.v3.base_pb2 import TransportSocket
from envoy.config.core.v3.extension_pb2 import TypedExtensionConfig
from envoy.extensions.transport_sockets.tls.v3.common_pb2 import SubjectAltNameMatcher, TlsParameters
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import DownstreamTlsContext, UpstreamTlsContext
from envoy.extensions.transport_sockets.tls.v3.tls_spiffe_validator_config_pb2 import SPIFFECertValidatorConfig

from generators.envoy import names
from generators.envoy.edit import over_ads, pack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import CommonTlsContext

    from generators.proxy import MeshTls, Trust, TrustDomain

ALPN: Final = "kuma"
"""The protocol that callers of the mesh name, by which a permissive inbound tells their TLS from a workload's own."""

HTTP2: Final = "h2"
"""The protocol that gRPC's libraries name. They end a connection whose server chooses none."""

_SPIFFE_VALIDATOR: Final = "envoy.tls.cert_validator.spiffe"


@lru_cache(maxsize=64)
def server_socket(tls: MeshTls) -> TransportSocket:
    """The side that is called, one for all inbounds of a mesh: copy it. It lets in nobody without a certificate.

    The protocol of the mesh is not among those that it chooses: Envoy would take what it chose for the version of HTTP.
    """
    context = DownstreamTlsContext()
    context.require_client_certificate.value = True
    _write(context.common_tls_context, tls)
    context.common_tls_context.alpn_protocols.append(HTTP2)
    return TransportSocket(name=names.TLS_SOCKET, typed_config=pack(context))


def client_socket(tls: MeshTls) -> TransportSocket:
    """The side that calls."""
    context = UpstreamTlsContext(sni=tls.sni)
    _write(context.common_tls_context, tls)
    context.common_tls_context.alpn_protocols.append(ALPN)
    return TransportSocket(name=names.TLS_SOCKET, typed_config=pack(context))


def trust_secrets(trust: Trust) -> Iterator[Secret]:
    """The roots that the proxies of a mesh trust: all together and, where there are several domains, one by one.

    Of a certificate with names in several domains Envoy's validator for SPIFFE looks at the first name alone, while
    other conditions look at all of them. So callers name the domain of those they call, and inbounds refuse such
    certificates.
    """
    if len(trust.domains) == 1:
        yield _of_domain(names.mesh_authority(trust.mesh), trust.domains[0])
        return
    yield _of_all(trust)
    for domain in trust.domains:
        yield _of_domain(names.mesh_authority(trust.mesh, domain.name), domain)


def _of_domain(name: str, domain: TrustDomain) -> Secret:
    secret = Secret(name=name)
    secret.validation_context.trusted_ca.inline_string = domain.roots
    return secret


def _of_all(trust: Trust) -> Secret:
    secret = Secret(name=names.mesh_authority(trust.mesh))
    context = secret.validation_context
    validator = SPIFFECertValidatorConfig()
    for domain in trust.domains:
        validator.trust_domains.add(name=domain.name).trust_bundle.inline_string = domain.roots
    context.custom_validator_config.CopyFrom(TypedExtensionConfig(name=_SPIFFE_VALIDATOR, typed_config=pack(validator)))
    return secret


def _write(common: CommonTlsContext, tls: MeshTls) -> None:
    if tls.oldest:
        common.tls_params.tls_minimum_protocol_version = TlsParameters.TlsProtocol.Value(tls.oldest)
    if tls.newest:
        common.tls_params.tls_maximum_protocol_version = TlsParameters.TlsProtocol.Value(tls.newest)
    common.tls_params.cipher_suites.extend(tls.ciphers)
    own = common.tls_certificate_sds_secret_configs.add(name=names.mesh_identity(tls.mesh))
    over_ads(own.sds_config)
    combined = common.combined_validation_context
    combined.default_validation_context.SetInParent()
    for name in tls.names:
        matcher = combined.default_validation_context.match_typed_subject_alt_names.add(
            san_type=SubjectAltNameMatcher.URI
        ).matcher
        if name.is_prefix:
            matcher.prefix = name.value
        else:
            matcher.exact = name.value
    combined.validation_context_sds_secret_config.name = names.mesh_authority(tls.mesh, tls.domain)
    over_ads(combined.validation_context_sds_secret_config.sds_config)
