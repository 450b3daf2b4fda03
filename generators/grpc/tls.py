"""TLS of a gRPC client with others of its mesh, with certificates from a provider in its bootstrap (gRFC A29)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from envoy.config.core.v3.base_pb2 import TransportSocket
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import UpstreamTlsContext

from generators.envoy import names
from generators.envoy.edit import pack
from generators.envoy.mesh_tls import ALPN

if TYPE_CHECKING:
    from envoy.extensions.transport_sockets.tls.v3.common_pb2 import CertificateValidationContext

PROVIDER: Final = "koguma"
"""The name of the provider in the bootstrap: of the client's own certificate and key, and of the roots to trust."""


def mesh_socket(socket: TransportSocket) -> TransportSocket | None:
    """The socket reduced to what gRPC knows; None if it is not for calls within the mesh.

    Versions of TLS are left out, for which every library refuses the cluster, and the server name, which none reads by
    itself.
    """
    context = UpstreamTlsContext()
    if not socket.typed_config.Unpack(context) or ALPN not in context.common_tls_context.alpn_protocols:
        return None
    reduced = UpstreamTlsContext()
    reduced.common_tls_context.tls_certificate_provider_instance.instance_name = PROVIDER
    combined = context.common_tls_context.combined_validation_context
    _verify(
        reduced.common_tls_context.combined_validation_context.default_validation_context,
        combined.default_validation_context,
    )
    return TransportSocket(name=names.TLS_SOCKET, typed_config=pack(reduced))


def _verify(reduced: CertificateValidationContext, context: CertificateValidationContext) -> None:
    """Whom to believe. Libraries ignore the newer field for names, and so would believe everybody."""
    reduced.ca_certificate_provider_instance.instance_name = PROVIDER
    reduced.match_subject_alt_names.extend(name.matcher for name in context.match_typed_subject_alt_names)
