"""Copies of resources that an Envoy can take without harm.

It listens at no address that anybody knows, calls nobody but a port of loopback where nobody is, runs no code of
others, and opens no file but `/dev/null`. What Envoy checks of a resource stays as it is, as far as that is possible. A
resource that could not be taken without reading files of this machine or running code of its own has no such copy, and
neither has one with an extension of which nobody has made sure what it does when it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from envoy.config.core.v3.address_pb2 import SocketAddress
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message

from cp.identity.authority import KeyPair
from cp.translate.packing import LISTENER, SECRET, PackedResource
from generators.envoy.every_message import message_type

ANY: Final = "google.protobuf.Any"
_NOWHERE: Final = "127.0.0.1"
_NO_PORT: Final = 1
_NO_LOG: Final = "/dev/null"
_NO_CODE: Final = "function envoy_on_request(handle) end"
_RUNS_CODE: Final = ("wasm", "golang", "dynamic_modules")
"""Packages of extensions that bring code along."""

_WRAPPERS: Final = frozenset(f"google.protobuf.{name}Value" for name in ("String", "Bool", "UInt32", "UInt64"))
KNOWN_EXTENSIONS: Final = _WRAPPERS | {
    *(f"envoy.config.trace.v3.{name}" for name in ("DatadogConfig", "OpenTelemetryConfig", "ZipkinConfig")),
    "envoy.type.matcher.v3.HttpRequestHeaderMatchInput",
    *(
        f"envoy.extensions.{name}"
        for name in (
            "access_loggers.file.v3.FileAccessLog",
            "access_loggers.filters.cel.v3.ExpressionFilter",
            "access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig",
            "access_loggers.stream.v3.StderrAccessLog",
            "access_loggers.stream.v3.StdoutAccessLog",
            "clusters.dns.v3.DnsCluster",
            "common.matching.v3.ExtensionWithMatcher",
            "common.matching.v3.ExtensionWithMatcherPerRoute",
            "compression.brotli.compressor.v3.Brotli",
            "compression.gzip.compressor.v3.Gzip",
            "compression.zstd.compressor.v3.Zstd",
            "filters.common.matcher.action.v3.SkipFilter",
            "filters.http.adaptive_concurrency.v3.AdaptiveConcurrency",
            "filters.http.admission_control.v3.AdmissionControl",
            "filters.http.bandwidth_limit.v3.BandwidthLimit",
            "filters.http.buffer.v3.Buffer",
            "filters.http.buffer.v3.BufferPerRoute",
            "filters.http.composite.v3.Composite",
            "filters.http.composite.v3.ExecuteFilterAction",
            "filters.http.compressor.v3.Compressor",
            "filters.http.compressor.v3.CompressorPerRoute",
            "filters.http.cors.v3.Cors",
            "filters.http.cors.v3.CorsPolicy",
            "filters.http.csrf.v3.CsrfPolicy",
            "filters.http.ext_authz.v3.ExtAuthz",
            "filters.http.ext_authz.v3.ExtAuthzPerRoute",
            "filters.http.fault.v3.HTTPFault",
            "filters.http.grpc_stats.v3.FilterConfig",
            "filters.http.grpc_web.v3.GrpcWeb",
            "filters.http.header_mutation.v3.HeaderMutation",
            "filters.http.header_mutation.v3.HeaderMutationPerRoute",
            "filters.http.header_to_metadata.v3.Config",
            "filters.http.health_check.v3.HealthCheck",
            "filters.http.jwt_authn.v3.JwtAuthentication",
            "filters.http.jwt_authn.v3.PerRouteConfig",
            "filters.http.local_ratelimit.v3.LocalRateLimit",
            "filters.http.lua.v3.Lua",
            "filters.http.lua.v3.LuaPerRoute",
            "filters.http.ratelimit.v3.RateLimit",
            "filters.http.ratelimit.v3.RateLimitPerRoute",
            "filters.http.rbac.v3.RBAC",
            "filters.http.rbac.v3.RBACPerRoute",
            "filters.http.router.v3.Router",
            "filters.http.set_metadata.v3.Config",
            "filters.listener.http_inspector.v3.HttpInspector",
            "filters.listener.original_dst.v3.OriginalDst",
            "filters.listener.proxy_protocol.v3.ProxyProtocol",
            "filters.listener.tls_inspector.v3.TlsInspector",
            "filters.network.connection_limit.v3.ConnectionLimit",
            "filters.network.http_connection_manager.v3.HttpConnectionManager",
            "filters.network.local_ratelimit.v3.LocalRateLimit",
            "filters.network.rbac.v3.RBAC",
            "filters.network.tcp_proxy.v3.TcpProxy",
            "filters.udp.dns_filter.v3.DnsFilterConfig",
            "health_check.event_sinks.file.v3.HealthCheckEventFileSink",
            "http.early_header_mutation.header_mutation.v3.HeaderMutation",
            "load_balancing_policies.least_request.v3.LeastRequest",
            "load_balancing_policies.maglev.v3.Maglev",
            "load_balancing_policies.random.v3.Random",
            "load_balancing_policies.ring_hash.v3.RingHash",
            "load_balancing_policies.round_robin.v3.RoundRobin",
            "load_balancing_policies.wrr_locality.v3.WrrLocality",
            "matching.common_inputs.network.v3.ApplicationProtocolInput",
            "matching.common_inputs.network.v3.DestinationIPInput",
            "matching.common_inputs.network.v3.DestinationPortInput",
            "matching.common_inputs.network.v3.DirectSourceIPInput",
            "matching.common_inputs.network.v3.ServerNameInput",
            "matching.common_inputs.network.v3.SourceIPInput",
            "matching.common_inputs.network.v3.SourcePortInput",
            "matching.common_inputs.network.v3.SourceTypeInput",
            "matching.common_inputs.network.v3.TransportProtocolInput",
            "matching.common_inputs.ssl.v3.DnsSanInput",
            "matching.common_inputs.ssl.v3.SubjectInput",
            "matching.common_inputs.ssl.v3.UriSanInput",
            "matching.input_matchers.ip.v3.Ip",
            "retry.host.omit_host_metadata.v3.OmitHostMetadataConfig",
            "retry.host.previous_hosts.v3.PreviousHostsPredicate",
            "retry.priority.previous_priorities.v3.PreviousPrioritiesConfig",
            "transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport",
            "transport_sockets.raw_buffer.v3.RawBuffer",
            "transport_sockets.tls.v3.DownstreamTlsContext",
            "transport_sockets.tls.v3.SPIFFECertValidatorConfig",
            "transport_sockets.tls.v3.UpstreamTlsContext",
            "upstreams.http.v3.HttpProtocolOptions",
        )
    ),
}
"""Those that do nothing when they are loaded, or nothing any more once they are tamed.

Not among them: what has other extensions in it as plain data (`TypedStruct`, `Struct`), as Envoy reads these as
messages that nobody has looked at here, and other places for code (matchers and routes in Lua).
"""


class NotShown(Exception):
    """A resource has no harmless copy."""


def harmless(packed: PackedResource, leaf: KeyPair) -> PackedResource:
    """A copy of a resource that does nothing. Raises `NotShown`. The leaf stands for certificates from files."""
    message = parsed(packed.type_url, packed.body)
    if packed.type_url == SECRET:
        _with_leaf_for_files(message, leaf)
    try:
        _tame(message)
    except RecursionError:
        raise NotShown("its parts are too deep within each other") from None
    if packed.type_url == LISTENER:
        _hide(message)
    return PackedResource.of(packed.type_url, packed.name, message.SerializeToString(deterministic=True))


def unjudged_part(copy: PackedResource) -> str:
    """Say which part of a copy is not judged, as something else stands in its place; empty if there is none."""
    return "its Lua code is not judged, as other code stands in its place" if _NO_CODE.encode() in copy.body else ""


def _hide(listener: Any) -> None:
    """A listener for TCP does not listen. Envoy takes none for UDP that does not: it gets a free port of loopback."""
    socket = listener.address.socket_address
    if socket.protocol == SocketAddress.UDP:
        for address in (listener.address, *(further.address for further in listener.additional_addresses)):
            address.socket_address.address, address.socket_address.port_value = _NOWHERE, 0
    else:
        listener.bind_to_port.value = False


def addresses(packed: PackedResource) -> frozenset[str]:
    """Where a listener for TCP says to be: two at one address are refused, though neither listens."""
    if packed.type_url != LISTENER:
        return frozenset()
    listener = parsed(packed.type_url, packed.body)
    if not listener.HasField("bind_to_port") or listener.bind_to_port.value:
        return frozenset()
    everywhere = (listener.address, *(further.address for further in listener.additional_addresses))
    return frozenset(str(address) for address in everywhere)


def parsed(type_url: str, body: bytes) -> Any:
    """A message of any type that this version knows. Raises `NotShown`."""
    try:
        message = message_type(type_url.rpartition("/")[2])()
        message.ParseFromString(body)
    except (KeyError, DecodeError):
        raise NotShown("it has an extension that this version does not know") from None
    return message


def _with_leaf_for_files(secret: Any, leaf: KeyPair) -> None:
    """A certificate from a file is on the machines of proxies, and not here."""
    certificate = secret.tls_certificate
    if certificate.certificate_chain.filename or certificate.private_key.filename:
        certificate.certificate_chain.inline_bytes = leaf.certificate
        certificate.private_key.inline_bytes = leaf.key
    if secret.validation_context.trusted_ca.filename:
        secret.validation_context.trusted_ca.inline_bytes = leaf.certificate


def _tame(message: Message) -> None:
    """Take from a message, and from all in it, what would have Envoy do something."""
    name = message.DESCRIPTOR.full_name
    if any(f".{package}." in name for package in _RUNS_CODE):
        raise NotShown("it brings code along, which is not run here")
    if name == ANY:
        _tame_inner(message)
        return
    if name in _TAMED:
        _TAMED[name](message)
    for part in messages_in(message):
        _tame(part)


def _tame_inner(wrapper: Any) -> None:
    message = parsed(wrapper.type_url, wrapper.value)
    _tame(message)  # first: what it says of code is plainer
    name = message.DESCRIPTOR.full_name
    if name not in KNOWN_EXTENSIONS:
        raise NotShown(f"it has the extension {name}, of which nobody knows here what it does when it is loaded")
    wrapped = AnyMessage(type_url=wrapper.type_url, value=message.SerializeToString(deterministic=True))
    wrapper.CopyFrom(wrapped)


def messages_in(message: Message) -> Iterator[Message]:
    """The messages that are fields of a message."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            yield from (item for item in value.values() if isinstance(item, Message))
        elif isinstance(value, Message):
            yield value
        else:
            yield from value


def _endpoint(endpoint: Any) -> None:
    """Nobody is called: health checks begin as soon as a host is known."""
    for address in (endpoint.address, *(further.address for further in endpoint.additional_addresses)):
        _lead_nowhere(address)
    if endpoint.health_check_config.port_value:
        endpoint.health_check_config.port_value = _NO_PORT
    if endpoint.health_check_config.HasField("address"):
        _lead_nowhere(endpoint.health_check_config.address)


def _lead_nowhere(address: Any) -> None:
    """A socket in the file system is somebody's too."""
    if address.HasField("pipe"):
        address.ClearField("pipe")
        address.socket_address.port_value = _NO_PORT
    if address.HasField("socket_address"):
        address.socket_address.address, address.socket_address.port_value = _NOWHERE, _NO_PORT


def _config_source(source: Any) -> None:
    """Only from where the rest comes from too: others are called, or are files of the machine."""
    if source.WhichOneof("config_source_specifier") not in {None, "ads", "self"}:
        raise NotShown("it has a part that comes from elsewhere")


def _needs_its_machine(_tracer: Any) -> None:
    raise NotShown("it has the Datadog tracer, with which Envoy does not start without the files of its machine")


def _calls_by_itself(_service: Any) -> None:
    raise NotShown("it has a client that calls by itself")


def _file_log(log: Any) -> None:
    """Envoy opens the file as soon as it knows of it."""
    log.path = _NO_LOG


def _key_log(log: Any) -> None:
    log.path = _NO_LOG


def _event_log(sink: Any) -> None:
    sink.event_log_path = _NO_LOG


def _health_check(check: Any) -> None:
    if check.event_log_path:
        check.event_log_path = _NO_LOG


def _pipe(_address: Any) -> None:
    """Envoy removes the file at the path of a listener, and calls whatever listens at that of a host."""
    raise NotShown("it has a socket in the file system of the machine")


def _watched(_folder: Any) -> None:
    raise NotShown("it watches a folder of the machine, which is another one here")


def _unwatched(certificate: Any) -> None:
    """A folder that is watched is one of proxies' machines."""
    certificate.ClearField("watched_directory")


def _lua(filter_: Any) -> None:
    """Its text is run as soon as it is loaded, with all rights of the process."""
    for source in (filter_.default_source_code, *filter_.source_codes.values()):
        if source.WhichOneof("specifier"):
            source.inline_string = _NO_CODE
    if filter_.inline_code:
        filter_.inline_code = _NO_CODE


def _lua_of_route(filter_: Any) -> None:
    if filter_.HasField("source_code"):
        filter_.source_code.inline_string = _NO_CODE


def _data(source: Any) -> None:
    if source.filename or source.environment_variable:
        raise NotShown("it reads a file or a variable of the machine, which is another one here")


def _socket_address(address: Any) -> None:
    """Envoy opens the file and goes over to the network that it stands for, where somebody may be."""
    if address.network_namespace_filepath:
        raise NotShown("it has an address in another network namespace, which is a file of the machine")


_TAMED: Final[Mapping[str, Callable[[Any], None]]] = MappingProxyType(
    {
        "envoy.config.core.v3.ConfigSource": _config_source,
        "envoy.config.core.v3.GrpcService.GoogleGrpc": _calls_by_itself,
        "envoy.config.trace.v3.DatadogConfig": _needs_its_machine,
        "envoy.config.core.v3.HealthCheck": _health_check,
        "envoy.config.core.v3.Pipe": _pipe,
        "envoy.config.core.v3.SocketAddress": _socket_address,
        "envoy.config.core.v3.WatchedDirectory": _watched,
        "envoy.config.endpoint.v3.Endpoint": _endpoint,
        "envoy.extensions.health_check.event_sinks.file.v3.HealthCheckEventFileSink": _event_log,
        "envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext": _unwatched,
        "envoy.extensions.transport_sockets.tls.v3.TlsCertificate": _unwatched,
        "envoy.extensions.transport_sockets.tls.v3.TlsKeyLog": _key_log,
        "envoy.extensions.access_loggers.file.v3.FileAccessLog": _file_log,
        "envoy.extensions.filters.http.lua.v3.Lua": _lua,
        "envoy.extensions.filters.http.lua.v3.LuaPerRoute": _lua_of_route,
        "envoy.config.core.v3.DataSource": _data,
    }
)
