"""The bootstrap configuration of a proxy: of an Envoy, or of a gRPC client without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cp.api.bootstrap_request import ENVOY, GRPC_CLIENT, BootstrapRequest, unprocessable
from cp.api.collaborators import BootstrapDefaults
from cp.model.document import Document
from cp.model.registration import CERTIFICATES, DRAIN_TIME, OWNER, RESOURCE
from cp.resources.client import CLIENT_LABEL, GRPC
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.labels import WORKLOAD_LABEL
from generators.bootstrap import USUAL_SYSTEM_CA, ControlPlane, EnvoyIdentity, ListenAddress, bootstrap
from generators.grpc.bootstrap import GrpcChannel, GrpcNode, ProviderFiles, grpc_bootstrap
from generators.grpc.tls import PROVIDER

_ZONE: Final = "kuma.io/zone"
_DELTA: Final = "feature-delta-grpc"
_SOCKET: Final = "envoy-admin.sock"
_LARGEST_PORT: Final = 65535
_KUMA_DP: Final = "kumaDp"
_DRAIN_TIME_OF_KUMA_DP: Final = 30.0
"""Seconds: the default of its `--drain-time`. It does not say whether it was given another."""


def bootstrap_config(
    wanted: BootstrapRequest, document: Document, defaults: BootstrapDefaults, control_plane: ControlPlane
) -> dict[str, Any]:
    """For an Envoy or for a gRPC client, whichever of them the Dataplane is."""
    is_grpc = _labels(document.data).get(CLIENT_LABEL) == GRPC
    if wanted.proxy_type == GRPC_CLIENT and not is_grpc:
        raise unprocessable(f"{document.key} is no gRPC client: give it the label `{CLIENT_LABEL}: {GRPC}`")
    if wanted.proxy_type == ENVOY and is_grpc:
        command = f"koguma dp grpc-bootstrap {wanted.name} --mesh {wanted.mesh}"
        raise unprocessable(f"{document.key} is a gRPC client without an Envoy: ask `{command}`")
    if not is_grpc:
        return _bootstrap(wanted, document, defaults, control_plane)
    return _grpc_bootstrap(wanted, document, control_plane)


def _grpc_bootstrap(wanted: BootstrapRequest, document: Document, control_plane: ControlPlane) -> dict[str, Any]:
    node = GrpcNode(
        id=wanted.proxy,
        service=_service(document.data) or wanted.name,
        zone=str(_labels(document.data).get(_ZONE, "")),
        metadata={CERTIFICATES: PROVIDER} if wanted.certificate_files is not None else {},
    )
    channels = [
        GrpcChannel(
            host=address.host,
            port=address.port,
            over_tls=control_plane.over_tls,
            authority_file=wanted.ca_cert_path,
            token_file=wanted.dataplane_token_path,
        )
        for address in control_plane.addresses
    ]
    files = wanted.certificate_files
    certificates = None if files is None else ProviderFiles(files.certificate, files.key, files.authorities)
    return grpc_bootstrap(node, channels, certificates)


def _bootstrap(
    wanted: BootstrapRequest, document: Document, defaults: BootstrapDefaults, control_plane: ControlPlane
) -> dict[str, Any]:
    try:
        admin = _admin(wanted, document.data, defaults)
    except ValueError as error:
        raise unprocessable(f"{error}; give the proxy a shorter work folder") from None
    proxy = EnvoyIdentity(
        mesh=wanted.mesh,
        name=wanted.name,
        service=_service(document.data) or wanted.name,
        zone=str(_labels(document.data).get(_ZONE, "")),
        admin=admin,
        token=wanted.dataplane_token,
        token_file=wanted.dataplane_token_secret_path,
        delta=_DELTA in wanted.features,
        system_ca=wanted.system_ca_path or USUAL_SYSTEM_CA,
        has_limits=_is_builtin_gateway(document.data),
        metadata=_metadata(wanted, admin),
    )
    return bootstrap(proxy, control_plane)


def _metadata(wanted: BootstrapRequest, admin: ListenAddress) -> dict[str, Any]:
    """What Envoy tells the control plane about itself, under Kuma's names."""
    metadata: dict[str, Any] = {
        "dataplane.proxyType": wanted.proxy_type,
        RESOURCE: wanted.dataplane_resource,
        "dataplane.admin.address": admin.host,
        "dataplane.admin.port": str(admin.port or ""),
        "dataplane.admin.socketPath": admin.socket,
        OWNER: wanted.owner,
        "workdir": wanted.workdir,
        "systemCaPath": wanted.system_ca_path,
        "features": list(wanted.features),
        "version": wanted.version,
        "dynamicMetadata": wanted.dynamic_metadata,
    }
    drain_time = _drain_time(wanted)
    given = {name: value for name, value in metadata.items() if value}
    return given if drain_time is None else {**given, DRAIN_TIME: drain_time}


def _drain_time(wanted: BootstrapRequest) -> float | None:
    """For how many seconds the Envoy drains a listener that has changed; None if that is not known."""
    if wanted.listener_drain_seconds is None and _KUMA_DP in wanted.version:
        return _DRAIN_TIME_OF_KUMA_DP
    return wanted.listener_drain_seconds


def _admin(wanted: BootstrapRequest, data: Mapping[str, Any], defaults: BootstrapDefaults) -> ListenAddress:
    """A port where the Dataplane asks for one; else a socket, which no other proxy of the machine wants too."""
    port = _mapping(networking_of(data).get("admin")).get("port")
    if isinstance(port, int) and 0 < port <= _LARGEST_PORT:
        return ListenAddress(defaults.admin_address, port)
    if defaults.admin_unix_socket and wanted.workdir:
        return ListenAddress(socket=f"{wanted.workdir.rstrip('/')}/{_SOCKET}")
    return ListenAddress(defaults.admin_address, defaults.admin_port)


def _is_builtin_gateway(data: Mapping[str, Any]) -> bool:
    return _mapping(networking_of(data).get("gateway")).get("type") == "BUILTIN"


def _service(data: Mapping[str, Any]) -> str:
    """The service that a proxy counts as in Envoy's logs and statistics."""
    networking = networking_of(data)
    inbounds = networking.get("inbound")
    for tagged in (*(inbounds if isinstance(inbounds, list) else ()), networking.get("gateway")):
        if name := _mapping(_mapping(tagged).get("tags")).get(SERVICE_TAG):
            return str(name)
    labels = _labels(data)
    return str(labels.get(WORKLOAD_LABEL) or labels.get(SERVICE_TAG) or "")


def networking_of(data: Mapping[str, Any]) -> Mapping[str, Any]:
    return _mapping(data.get("networking"))


def _labels(data: Mapping[str, Any]) -> Mapping[str, Any]:
    return _mapping(data.get("labels"))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
