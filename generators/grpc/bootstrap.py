"""The bootstrap configuration of a gRPC client without a proxy, for the file that `GRPC_XDS_BOOTSTRAP` names."""

from __future__ import annotations

from typing import Any


def grpc_bootstrap(node_id: str, service: str, zone: str, control_plane: tuple[str, int]) -> dict[str, Any]:
    """The bootstrap as JSON data. The channel to the control plane is not encrypted, as with an Envoy."""
    host, port = control_plane
    locality = {"zone": zone} if zone else {}  # the library for Node.js needs the field, even if it is empty
    node = {"id": node_id, "cluster": service, "locality": locality}
    server = {
        "server_uri": f"{f'[{host}]' if ':' in host else host}:{port}",
        "channel_creds": [{"type": "insecure"}],
        "server_features": ["xds_v3"],
    }
    return {"xds_servers": [server], "node": node}
