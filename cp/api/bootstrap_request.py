"""`BootstrapRequest`: what a proxy asks for and says of itself, as it is read from the body of a request."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from cp.api.body import decoded
from cp.api.errors import BAD_REQUEST, UNPROCESSABLE, ApiError, RequestFault
from cp.api.writes import must_be_run
from cp.model.hosts import hosts_with_ports
from cp.model.names import Key, ProxyId, proxy_id

ENVOY: Final = "dataplane"
GRPC_CLIENT: Final = "grpc"
"""What asks: an Envoy, or a gRPC client without a proxy. The names are Kuma's."""

_DATAPLANE: Final = "Dataplane"
_LARGEST_METADATA: Final = 32 * 1024
_MOST_CONTROL_PLANES: Final = 32
_LONGEST_HOST: Final = 253


class ClientFiles(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Where a gRPC client has its certificate, its key and the authorities that it trusts."""

    certificate: str
    key: str
    authorities: str


class BootstrapRequest(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The part of Kuma's bootstrap request that makes a difference here. Other fields are let pass."""

    mesh: str
    name: str
    proxy_type: str = ENVOY
    dataplane_token: str = ""
    dataplane_token_secret_path: str = ""
    """Ours: a file with the token, as Envoy reads a secret, so that it is in no configuration and can be replaced."""

    dataplane_token_path: str = ""
    """The file with the token itself, which the library of a gRPC client reads."""

    ca_cert_path: str = ""
    """Ours: where a gRPC client has what `ca_cert` says, or what is to be there."""

    certificate_files: ClientFiles | None = None
    """Ours: what a gRPC client speaks mTLS with, which `koguma dp certificates` keeps. None: it speaks plain text."""

    ca_cert: str = ""
    """PEM of the authority that the proxy trusts, if it was told one."""

    dataplane_resource: str = ""
    owner: str = ""
    """The id of the run of the proxy. A proxy that sends none is given one."""

    listener_drain_seconds: float | None = None
    """Ours: for how long the Envoy drains a listener that has changed. None: the proxy does not say."""

    workdir: str = ""
    system_ca_path: str = ""
    features: list[str] = []
    version: dict[str, Any] = {}
    dynamic_metadata: dict[str, str] = {}
    control_planes: list[str] = []
    """Ours: the hosts at which the proxy finds control planes on this store, this one among them."""

    def __repr__(self) -> str:
        """Without the token."""
        return f"{type(self).__name__}({self.proxy_type} {self.proxy})"

    @property
    def key(self) -> Key:
        return Key(_DATAPLANE, self.mesh, self.name)

    @property
    def proxy(self) -> ProxyId:
        return proxy_id(self.key)


def bootstrap_request(text: str) -> BootstrapRequest:
    """The request in a body. Raises `ApiError` for what is none, or asks for too much."""
    try:
        wanted = decoded(text, BootstrapRequest)
    except ValueError as error:
        raise ApiError(BAD_REQUEST, "Bad Request", f"not a bootstrap request: {error}") from None
    if len(msgspec.json.encode([wanted.version, wanted.dynamic_metadata, wanted.features])) > _LARGEST_METADATA:
        limit = f"{_LARGEST_METADATA} bytes are the most"
        raise unprocessable(f"version, dynamicMetadata and features are too large to be repeated to proxies: {limit}")
    must_be_run(wanted.owner, "owner")
    if len(wanted.control_planes) > _MOST_CONTROL_PLANES or not all(map(_is_host, wanted.control_planes)):
        raise unprocessable(f"controlPlanes are hosts without ports, {_MOST_CONTROL_PLANES} at most")
    if wanted.proxy_type not in {ENVOY, GRPC_CLIENT}:
        raise unprocessable(f"proxyType `{wanted.proxy_type}` is not served: `{ENVOY}` and `{GRPC_CLIENT}` are")
    return wanted


def with_run(wanted: BootstrapRequest) -> BootstrapRequest:
    """The request with an id of a run, if the proxy brings its Dataplane along and sends none."""
    if wanted.dataplane_resource and not wanted.owner:
        return msgspec.structs.replace(wanted, owner=uuid.uuid4().hex)
    return wanted


def _is_host(text: str) -> bool:
    try:
        return len(text) <= _LONGEST_HOST and hosts_with_ports(text, 0) == ((text.lower(), 0),)
    except ValueError:
        return False


def unprocessable(
    detail: str, faults: tuple[RequestFault, ...] = (), headers: Mapping[str, str] = MappingProxyType({})
) -> ApiError:
    return ApiError(UNPROCESSABLE, "Could not make a bootstrap configuration", detail, faults, headers)
