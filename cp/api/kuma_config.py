"""The settings in the shape in which Kuma's `GET /config` answers with its own."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from cp.settings import Settings


def kuma_config(settings: Settings) -> dict[str, Any]:
    """Nothing of a key is in it."""
    return {
        "environment": "universal",
        "mode": "zone",
        "store": {"type": urlsplit(settings.store).scheme, "url": settings.store},
        "apiServer": {
            "readOnly": settings.read_only,
            "http": {"enabled": True, "interface": settings.http_bind, "port": settings.http_port},
            "https": {
                "enabled": settings.serves_https,
                "interface": settings.https_bind,
                "port": settings.https_port,
            },
            "authn": {"type": settings.authentication, "localhostIsAdmin": settings.localhost_is_admin},
        },
        "dpServer": {
            "port": settings.ads_port,
            "authn": {"dpProxy": {"type": "dpToken" if settings.asks_proxies_for_tokens else "none"}},
        },
        "diagnostics": {"serverPort": settings.diagnostics_port},
        "defaults": {
            "skipMeshCreation": settings.skip_mesh_creation,
            "policyEngine": settings.policy_engine,
        },
        "experimental": {"autoReachableServices": settings.auto_reachable_services},
        "bootstrapServer": {"params": _bootstrap_params(settings)},
        "general": {"workDir": str(settings.work_dir)},
    }


def _bootstrap_params(settings: Settings) -> dict[str, Any]:
    return {
        "xdsHost": settings.xds_host,
        "xdsPort": settings.xds_port,
        "adminAddress": settings.admin_address,
        "adminPort": settings.admin_port,
        "envoyAdminUnixSocket": settings.admin_unix_socket,
    }
