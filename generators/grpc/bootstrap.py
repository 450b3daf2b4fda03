"""The bootstrap configuration of a gRPC client without a proxy, for the file that `GRPC_XDS_BOOTSTRAP` names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from generators.grpc.tls import PROVIDER

_REFRESHED: Final = "2s"
"""How often the library looks at its files: more often than an authority that is trusted begins to sign."""


@dataclass(frozen=True, slots=True)
class GrpcChannel:
    """How a gRPC client reaches the control plane. The files are on its own machine."""

    host: str
    port: int
    over_tls: bool = False
    authority_file: str = ""
    """What it trusts; empty: what its machine does."""

    token_file: str = ""


@dataclass(frozen=True, slots=True)
class GrpcNode:
    """Who a gRPC client says that it is."""

    id: str
    service: str
    zone: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProviderFiles:
    """Where a gRPC client has what it speaks mTLS with."""

    certificate: str
    key: str
    authorities: str


def grpc_bootstrap(
    identity: GrpcNode, channels: Iterable[GrpcChannel], certificates: ProviderFiles | None = None
) -> dict[str, Any]:
    """The bootstrap as JSON data.

    TLS is that of gRFC A65. The token is that of A97: a library that does not know it yet shows none. Certificates are
    those of A29. Of several control planes a library takes the first, and the next when that cannot be reached, if it
    knows A71.
    """
    locality = {"zone": identity.zone} if identity.zone else {}  # the library for Node.js needs it, even if it is empty
    node: dict[str, Any] = {"id": identity.id, "cluster": identity.service, "locality": locality}
    if identity.metadata:
        node["metadata"] = dict(identity.metadata)
    bootstrap = {"xds_servers": list(map(_server, channels)), "node": node}
    if certificates is not None:
        bootstrap["certificate_providers"] = {PROVIDER: _file_watcher(certificates)}
    return bootstrap


def _server(channel: GrpcChannel) -> dict[str, Any]:
    host = f"[{channel.host}]" if ":" in channel.host else channel.host
    server: dict[str, Any] = {
        "server_uri": f"{host}:{channel.port}",
        "channel_creds": [_channel_credentials(channel)],
        "server_features": ["xds_v3"],
    }
    if channel.token_file:
        server["call_creds"] = [{"type": "jwt_token_file", "config": {"jwt_token_file": channel.token_file}}]
    return server


def _file_watcher(files: ProviderFiles) -> dict[str, Any]:
    config = {
        "certificate_file": files.certificate,
        "private_key_file": files.key,
        "ca_certificate_file": files.authorities,
        "refresh_interval": _REFRESHED,
    }
    return {"plugin_name": "file_watcher", "config": config}


def _channel_credentials(channel: GrpcChannel) -> dict[str, Any]:
    if not channel.over_tls:
        return {"type": "insecure"}
    files = {"ca_certificate_file": channel.authority_file} if channel.authority_file else {}
    return {"type": "tls", "config": files}
