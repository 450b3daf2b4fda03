"""What a gRPC client without a proxy is started with, in `GRPC_XDS_BOOTSTRAP`: who it is, and where to ask."""

from __future__ import annotations

from typing import Any


def grpc_bootstrap(node_id: str, service: str, zone: str, control_plane: tuple[str, int]) -> dict[str, Any]:
    """As JSON data. The channel to the control plane is in the clear, as an Envoy's is."""
    host, port = control_plane
    node: dict[str, Any] = {"id": node_id, "cluster": service}
    if zone:
        node["locality"] = {"zone": zone}
    server = {
        "server_uri": f"{f'[{host}]' if ':' in host else host}:{port}",
        "channel_creds": [{"type": "insecure"}],
        "server_features": ["xds_v3"],
    }
    return {"xds_servers": [server], "node": node}
