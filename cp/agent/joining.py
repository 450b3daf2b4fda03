"""Joining: stores a proxy's Dataplane and fetches its bootstrap configuration, and retries as long as it may help."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from cp.agent.retrying import RetryTime, persistently
from cp.agent.say import Say
from cp.client.client import Client
from cp.client.problem import Problem
from cp.version import VERSION

_NOT_SEEN: Final = frozenset({"Offline", "Unknown"})
"""What is said of a proxy that no control plane has which answers: it is probably ours, from before."""


@dataclass(frozen=True, slots=True)
class MeshJoin:
    """A proxy that joins a mesh."""

    mesh: str
    name: str
    work_dir: str
    system_ca: str = ""
    """The file with the CA certificates that this machine trusts; empty: none was found."""

    owner: str = ""
    """The id of this run of the proxy: it owns the Dataplane that it registers."""

    resource: str = ""
    """The text of the Dataplane that the proxy registers; empty if it uses a stored one."""

    token_secret: str = ""
    """The file with the token, as Envoy reads it; empty if the proxy has none."""

    listener_drain_seconds: int | None = None
    """For how long Envoy drains a listener that has changed."""

    @property
    def path(self) -> str:
        return f"/meshes/{self.mesh}/dataplanes/{self.name}"


@dataclass(frozen=True, slots=True)
class ProxyDataplane:
    """The Dataplane of a proxy: what a file has, or the name of one that is stored."""

    mesh: str
    name: str
    text: str = ""
    """Empty: it is stored already."""

    location: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


def register(client: Client, joining: MeshJoin, dataplane: ProxyDataplane, patience: RetryTime) -> None:
    """Store the Dataplane of a file. An equal one that is stored already is not written again."""
    put = persistently(lambda: client.put(joining.path, dataplane.text, dataplane.location, joining.owner), patience)
    patience.say(f"{'registered' if put.is_new else 'stored'} Dataplane {joining.mesh}/{joining.name}")
    for warning in put.warnings:
        patience.say(f"Warning: {warning}")


def warn_of_another_run(client: Client, joining: MeshJoin, say: Say) -> None:
    """Warn if a proxy of this name is connected before this run has started its own."""
    with suppress(Problem, LookupError):
        if client.get(f"{joining.path}/_overview")["status"] not in _NOT_SEEN:
            say(
                f"Warning: another proxy {joining.mesh}/{joining.name} is connected. If it is not about to end, end it "
                "or give this one another name: both have one Dataplane, which is removed when the later one ends"
            )


def bootstrap(client: Client, joining: MeshJoin, patience: RetryTime, authority: str = "") -> str:
    """The bootstrap configuration of a stored Dataplane. The authority is what Envoy is to trust, if we were told."""
    request: dict[str, Any] = {
        "mesh": joining.mesh,
        "name": joining.name,
        "workdir": joining.work_dir,
        "systemCaPath": joining.system_ca,
        "dataplaneTokenSecretPath": joining.token_secret,
        "caCert": authority,
        "owner": joining.owner,
        "dataplaneResource": joining.resource,
        "listenerDrainSeconds": joining.listener_drain_seconds,
        "version": {"kumaDp": {"version": VERSION}},
        "features": ["feature-delta-grpc"],
        **_places(client),
    }
    return persistently(lambda: client.post("/bootstrap", request, accept="text/x-yaml"), patience)


@dataclass(frozen=True, slots=True)
class GrpcClient:
    """A gRPC client without a proxy. The files are named to its library, which reads them itself."""

    mesh: str
    name: str
    token_file: str = ""
    authority_file: str = ""
    certificate_files: Mapping[str, str] | None = None
    """Where it has what it speaks mTLS with; None: nowhere."""


def grpc_bootstrap(client: Client, grpc_client: GrpcClient, patience: RetryTime, authority: str = "") -> str:
    """The bootstrap configuration of a stored Dataplane that is a gRPC client without a proxy."""
    request = {
        "mesh": grpc_client.mesh,
        "name": grpc_client.name,
        "proxyType": "grpc",
        "dataplaneTokenPath": grpc_client.token_file,
        "caCertPath": grpc_client.authority_file,
        "caCert": authority,
        "certificateFiles": grpc_client.certificate_files,
        **_places(client),
    }
    return persistently(lambda: client.post("/bootstrap", request, accept="application/json"), patience)


def _places(client: Client) -> Mapping[str, Any]:
    """Where Envoy, or the library of a gRPC client, finds further control planes."""
    return {"controlPlanes": client.hosts} if len(client.hosts) > 1 else {}
