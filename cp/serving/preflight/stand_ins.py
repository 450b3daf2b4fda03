"""What stands in for secrets and endpoints that an Envoy would wait for: made for one preflight, and good for nothing.

An Envoy takes no clusters before it has what they refer to, for as long as 15 s. The certificate of a proxy is made
when it connects, and the roots of a mesh after it was switched to mTLS: a preflight comes before either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.config_source_pb2 import ConfigSource
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from google.protobuf.message import Message

from cp.identity.authority import KeyPair
from cp.serving.preflight.harmless import ANY, messages_in, parsed
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, SECRET, PackedResource

_REFERRING: Final = frozenset({CLUSTER, LISTENER})


def stand_ins(packed: PackedResource, leaf: KeyPair) -> Iterator[PackedResource]:
    """Something for each resource to which a copy refers, whether or not that is there."""
    if packed.type_url in _REFERRING:
        for message in _all_in(parsed(packed.type_url, packed.body)):
            yield from _STAND_INS.get(message.DESCRIPTOR.full_name, _nothing)(message, leaf)


def _all_in(message: Message) -> Iterator[Message]:
    """A message, and all that is in it, in packed form too."""
    yield message
    for part in messages_in(message):
        yield from _all_in(_unpacked(part))


def _unpacked(message: Any) -> Any:
    return parsed(message.type_url, message.value) if message.DESCRIPTOR.full_name == ANY else message


def _nothing(_message: Message, _leaf: KeyPair) -> Iterator[PackedResource]:
    return iter(())


def _of_context(context: Any, leaf: KeyPair) -> Iterator[PackedResource]:
    for reference in context.tls_certificate_sds_secret_configs:
        yield from _certificate(reference, leaf)
    if context.HasField("validation_context_sds_secret_config"):
        yield from _roots(context.validation_context_sds_secret_config, leaf)


def _of_combined_context(context: Any, leaf: KeyPair) -> Iterator[PackedResource]:
    yield from _roots(context.validation_context_sds_secret_config, leaf)


def _of_cluster(cluster: Any, _leaf: KeyPair) -> Iterator[PackedResource]:
    if cluster.type == Cluster.EDS and _is_awaited(cluster.eds_cluster_config.eds_config):
        name = cluster.eds_cluster_config.service_name or cluster.name
        yield _packed(ENDPOINTS, name, ClusterLoadAssignment(cluster_name=name))


def _certificate(reference: Any, leaf: KeyPair) -> Iterator[PackedResource]:
    if _is_awaited(reference.sds_config):
        secret = Secret(name=reference.name)
        secret.tls_certificate.certificate_chain.inline_bytes = leaf.certificate
        secret.tls_certificate.private_key.inline_bytes = leaf.key
        yield _packed(SECRET, reference.name, secret)


def _roots(reference: Any, leaf: KeyPair) -> Iterator[PackedResource]:
    if _is_awaited(reference.sds_config):
        secret = Secret(name=reference.name)
        secret.validation_context.trusted_ca.inline_bytes = leaf.certificate
        yield _packed(SECRET, reference.name, secret)


def _is_awaited(source: ConfigSource) -> bool:
    """Whether it comes from where the rest comes from. What names no source is in the bootstrap configuration."""
    return source.WhichOneof("config_source_specifier") in {"ads", "self"}


def _packed(type_url: str, name: str, message: Message) -> PackedResource:
    return PackedResource.of(type_url, name, message.SerializeToString(deterministic=True))


_TLS: Final = "envoy.extensions.transport_sockets.tls.v3"
_STAND_INS: Final[Mapping[str, Callable[[Any, KeyPair], Iterator[PackedResource]]]] = MappingProxyType(
    {
        f"{_TLS}.CommonTlsContext": _of_context,
        f"{_TLS}.CommonTlsContext.CombinedCertificateValidationContext": _of_combined_context,
        "envoy.config.cluster.v3.Cluster": _of_cluster,
    }
)
