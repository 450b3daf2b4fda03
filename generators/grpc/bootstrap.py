"""The bootstrap configuration of a gRPC client without a proxy, for the file that `GRPC_XDS_BOOTSTRAP` names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class GrpcChannel:
    """How a gRPC client reaches the control plane. The files are on its own machine."""

    host: str
    port: int
    over_tls: bool = False
    authority_file: str = ""
    """What it trusts; empty: what its machine does."""

    token_file: str = ""


def grpc_bootstrap(node_id: str, service: str, zone: str, channel: GrpcChannel) -> dict[str, Any]:
    """The bootstrap as JSON data.

    TLS is that of gRFC A65. The token is that of A97: a library that does not know it yet shows none.
    """
    locality = {"zone": zone} if zone else {}  # the library for Node.js needs the field, even if it is empty
    node = {"id": node_id, "cluster": service, "locality": locality}
    host = f"[{channel.host}]" if ":" in channel.host else channel.host
    server: dict[str, Any] = {
        "server_uri": f"{host}:{channel.port}",
        "channel_creds": [_channel_credentials(channel)],
        "server_features": ["xds_v3"],
    }
    if channel.token_file:
        server["call_creds"] = [{"type": "jwt_token_file", "config": {"jwt_token_file": channel.token_file}}]
    return {"xds_servers": [server], "node": node}


def _channel_credentials(channel: GrpcChannel) -> dict[str, Any]:
    if not channel.over_tls:
        return {"type": "insecure"}
    files = {"ca_certificate_file": channel.authority_file} if channel.authority_file else {}
    return {"type": "tls", "config": files}
