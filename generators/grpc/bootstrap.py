"""What a gRPC client without a proxy is started with, in `GRPC_XDS_BOOTSTRAP`: who it is, and where to ask."""

from __future__ import annotations

from typing import Any


def grpc_bootstrap(node_id: str, service: str, zone: str, control_plane: tuple[str, int]) -> dict[str, Any]:
    """As JSON data. The channel to the control plane is in the clear, as an Envoy's is."""
    host, port = control_plane
    locality = {"zone": zone} if zone else {}  # the library for Node wants it to be there, be it empty
    node = {"id": node_id, "cluster": service, "locality": locality}
    server = {
        "server_uri": f"{f'[{host}]' if ':' in host else host}:{port}",
        "channel_creds": [{"type": "insecure"}],
        "server_features": ["xds_v3"],
    }
    return {"xds_servers": [server], "node": node}
