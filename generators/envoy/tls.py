"""TLS of a client: the context of a cluster, and the secrets to which it refers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from envoy.extensions.transport_sockets.tls.v3.common_pb2 import SubjectAltNameMatcher, TlsParameters
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import UpstreamTlsContext

from generators.envoy import names
from generators.envoy.addresses import is_ip
from generators.envoy.edit import over_ads

if TYPE_CHECKING:
    from envoy.config.core.v3.base_pb2 import DataSource
    from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import CommonTlsContext

    from generators.proxy import CertificateName, Material, Tls

SOCKET = "envoy.transport_sockets.tls"


def client_context(tls: Tls, cluster: str) -> UpstreamTlsContext:
    """The TLS context of a cluster. Certificates and keys are served apart, as secrets."""
    context = UpstreamTlsContext(sni=tls.sni, auto_host_sni=tls.sni_of_endpoint, allow_renegotiation=tls.renegotiation)
    common = context.common_tls_context
    if tls.oldest:
        common.tls_params.tls_minimum_protocol_version = TlsParameters.TlsProtocol.Value(tls.oldest)
    if tls.newest:
        common.tls_params.tls_maximum_protocol_version = TlsParameters.TlsProtocol.Value(tls.newest)
    if tls.certificate is not None:
        over_ads(common.tls_certificate_sds_secret_configs.add(name=names.identity_secret(cluster)).sds_config)
    if tls.verified:
        _verify(common, tls, cluster)
    return context


def client_secrets(tls: Tls, cluster: str) -> Iterator[Secret]:
    """The secrets to which the context of a cluster refers."""
    if tls.verified and tls.ca is not None:
        secret = Secret(name=names.authority_secret(cluster))
        write_material(secret.validation_context.trusted_ca, tls.ca)
        yield secret
    if tls.certificate is not None and tls.key is not None:
        secret = Secret(name=names.identity_secret(cluster))
        write_material(secret.tls_certificate.certificate_chain, tls.certificate)
        write_material(secret.tls_certificate.private_key, tls.key)
        yield secret


def _verify(common: CommonTlsContext, tls: Tls, cluster: str) -> None:
    combined = common.combined_validation_context
    combined.default_validation_context.match_typed_subject_alt_names.extend(
        matcher for name in tls.names for matcher in _matchers(name)
    )
    combined.default_validation_context.SetInParent()
    trusted = combined.validation_context_sds_secret_config
    if tls.ca is None:
        trusted.name = names.SYSTEM_CA  # it stands in the bootstrap configuration, so it needs no config source
    else:
        trusted.name = names.authority_secret(cluster)
        over_ads(trusted.sds_config)


def _matchers(name: CertificateName) -> Iterator[SubjectAltNameMatcher]:
    """Matchers for a name. The kind of a whole name is evident; a prefix may be of any kind."""
    kinds = SubjectAltNameMatcher
    for kind in (kinds.DNS, kinds.URI, kinds.IP_ADDRESS) if name.is_prefix else (_kind(name.value),):
        matcher = SubjectAltNameMatcher(san_type=kind)
        if name.is_prefix:
            matcher.matcher.prefix = name.value
        else:
            matcher.matcher.exact = name.value
        yield matcher


def _kind(value: str) -> SubjectAltNameMatcher.SanType.ValueType:
    if "://" in value:
        return SubjectAltNameMatcher.URI
    if "@" in value:
        return SubjectAltNameMatcher.EMAIL
    return SubjectAltNameMatcher.IP_ADDRESS if is_ip(value) else SubjectAltNameMatcher.DNS


def write_material(source: DataSource, material: Material) -> None:
    """Write a certificate or a key into the message that has it, or the name of its file."""
    if material.file:
        source.filename = material.file
    else:
        source.inline_string = material.text
