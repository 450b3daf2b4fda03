"""`Settings`: one frozen value, read once from a file, the environment and the command line, and passed down.

A setting that Kuma has too has Kuma's name (`KUMA_*`), one that OpenTelemetry has OpenTelemetry's (`OTEL_*`), and the
others begin with `KOGUMA_`. Defaults are defined here only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from cp.access.rights import ADMIN, AUTHENTICATED, UNAUTHENTICATED
from cp.model.duration import Duration
from cp.model.hosts import LOOPBACK, hosts_with_ports, is_ip, is_loopback
from cp.model.wording import plain, without_password, without_user
from cp.resources.engine import DEFAULT_ENGINE, Engine
from cp.resources.limits import BYTES_OF_MESH, BYTES_OF_PROXY, DESTINATION_BYTES, Budget
from cp.settings_file import FileSettings, settings_in
from cp.store.port import KEPT, KEPT_BYTES, KEPT_REGISTRATION_BYTES, KEPT_REGISTRATIONS
from cp.tracing.collector import OtlpProtocol, TraceCollector, headers_of, is_endpoint

FILE: Final = "KOGUMA_CONFIG"
"""The environment variable that names the file of settings."""

_NUMBER: Final = re.compile(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?")

_LONGEST_AGE: Final = 100 * 365 * 24 * 3600
"""Seconds. A moment that is longer ago may be one that no calendar has."""

_LARGEST: Final = 10**15
"""Revisions or bytes, which with any of a store are a number that a database can have."""

_NO_DEFAULT: Final = "default_factory_not_called"
"""The type of what pydantic reports about a setting that nobody has written, if another one is wrong."""

_NEEDED_BY: Final = {"tls_key": "tls_certificate"}
"""A setting that has to be there if another one is."""

Port = Annotated[int, Field(ge=0, le=65535)]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "console", "json"]
StoreType = Literal["sqlite", "memory"]


def _seconds(value: Any) -> Any:
    """A number of seconds, or a duration in Kuma's notation."""
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        return value
    return Duration.parse(value).seconds


def _standard_bool(value: Any) -> Any:
    """What counts as true in OpenTelemetry's specification: `true`, and nothing else."""
    return value.strip().lower() == "true" if isinstance(value, str) else value


Seconds = Annotated[float, BeforeValidator(_seconds)]
StandardBool = Annotated[bool, BeforeValidator(_standard_bool)]


def _store_url(validated: dict[str, Any]) -> str:
    if validated.get("store_type") == "memory":
        return "memory:"
    return f"sqlite:///{validated['work_dir'] / 'koguma.db'}" if "work_dir" in validated else ""


def _bound(validated: dict[str, Any]) -> str:
    return str(validated.get("bind", ""))


def _bound_on_loopback(validated: dict[str, Any]) -> str:
    bind = _bound(validated)
    return bind if is_loopback(bind) else LOOPBACK


def _access_list(name: str, meaning: str, default: str) -> Any:
    """One of Kuma's access lists."""
    description = f"{meaning}, separated by commas."
    return Field(default=default, validation_alias=f"KUMA_ACCESS_STATIC_{name}", description=description)


@dataclass(frozen=True, slots=True)
class SettingsOrigin:
    """Where settings were written. Those that say the same are the same, wherever they come from."""

    file: Path | None = field(default=None, compare=False)
    places: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Where the file has each setting that was taken from it, such as `koguma.yaml:7 httpPort`."""


class BadSettings(Exception):
    """The file of settings, the environment or the command line has an invalid setting."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        self.faults = faults
        super().__init__("\n".join(faults))


class Settings(BaseSettings):
    """All settings. `docs/reference/settings.md` is generated from this class."""

    model_config = SettingsConfigDict(
        frozen=True, populate_by_name=True, case_sensitive=True, extra="forbid", env_ignore_empty=True
    )

    work_dir: Path = Field(
        default_factory=lambda: Path.home() / ".koguma",
        validation_alias="KUMA_GENERAL_WORK_DIR",
        description="The folder for the files of the control plane. Default: `~/.koguma`.",
    )
    store_type: StoreType = Field(
        default="sqlite",
        validation_alias="KUMA_STORE_TYPE",
        description="`sqlite` keeps resources in a file in the work folder. `memory` loses them when the control plane "
        "ends.",
    )
    store: str = Field(
        default_factory=_store_url,
        validation_alias="KOGUMA_STORE",
        description="Where resources are kept: `sqlite:///PATH`, `postgresql://USER@HOST:PORT/DATABASE`, `dir:PATH` or "
        "`memory:`. Takes precedence over `KUMA_STORE_TYPE`, which decides the default. A guide says what else the URL "
        "of a database may name (docs/guides/several-machines.md).",
    )
    registrations: str = Field(
        default="",
        validation_alias="KOGUMA_REGISTRATIONS",
        description="Where the Dataplanes that proxies register and the certificate authorities of meshes are kept if "
        "the store is a folder of files: `sqlite:///PATH`, `postgresql://USER@HOST:PORT/DATABASE` or "
        "`memory:`. If it is not set, every Dataplane has to be in "
        "the files, and no authority can be built in.",
    )
    history_bytes: int = Field(
        default=KEPT_BYTES,
        ge=0,
        le=_LARGEST,
        validation_alias="KOGUMA_HISTORY_BYTES",
        description="How many bytes of changes the store remembers. The last write it always remembers. Registrations "
        "of proxies have a budget of their own.",
    )
    history_revisions: int = Field(
        default=KEPT,
        ge=1,
        le=_LARGEST,
        validation_alias="KOGUMA_HISTORY_REVISIONS",
        description="How many writes the store remembers. So many can be shown, and undone.",
    )
    history_registrations: int = Field(
        default=KEPT_REGISTRATIONS,
        ge=1,
        le=_LARGEST,
        validation_alias="KOGUMA_HISTORY_REGISTRATIONS",
        description="How many registrations of proxies the store remembers. They take no place of other writes. Of one "
        "Dataplane the last 16 in a row are kept, and older ones are merged. Beyond the budget, meshes with many "
        "registrations lose their oldest first.",
    )
    history_registration_bytes: int = Field(
        default=KEPT_REGISTRATION_BYTES,
        ge=0,
        le=_LARGEST,
        validation_alias="KOGUMA_HISTORY_REGISTRATION_BYTES",
        description="How many bytes of registrations the store remembers, about.",
    )
    history_age: Seconds = Field(
        default=0,
        ge=0,
        le=_LONGEST_AGE,
        validation_alias="KOGUMA_HISTORY_AGE",
        description="How long the store remembers a write, such as `720h`. What is older is forgotten with the next "
        "write, or within a minute. 0 means no limit.",
    )
    secrets_key_file: str = Field(
        default="",
        validation_alias="KOGUMA_SECRETS_KEY_FILE",
        description="A file with the keys with which a store in SQLite or PostgreSQL encrypts documents that hold "
        "secrets. "
        "`koguma generate secrets-key` makes one. The first key encrypts, all of them decrypt. Without keys, secrets "
        "are stored in plain text.",
    )
    secrets_key: SecretStr = Field(
        default=SecretStr(""),
        validation_alias="KOGUMA_SECRETS_KEY",
        description="The same keys themselves, as they would stand in the file: one on each line.",
    )
    bind: str = Field(
        default="127.0.0.1",
        validation_alias="KOGUMA_BIND",
        description="The address on which all servers listen. `0.0.0.0` lets other machines connect.",
    )
    http_bind: str = Field(
        default_factory=_bound_on_loopback,
        validation_alias="KUMA_API_SERVER_HTTP_INTERFACE",
        description="The address of the HTTP API without TLS. Default: `KOGUMA_BIND` if that is on loopback, and else "
        "`127.0.0.1`. Beyond loopback, whoever is on the way can read tokens and Secrets.",
    )
    https_bind: str = Field(
        default_factory=_bound,
        validation_alias="KUMA_API_SERVER_HTTPS_INTERFACE",
        description="The address of the HTTP API with TLS. Default: `KOGUMA_BIND`.",
    )
    ads_port: Port = Field(
        default=5678,
        validation_alias="KUMA_DP_SERVER_PORT",
        description="The port on which proxies get their configuration (gRPC, and nothing else: bootstrap "
        "configurations are on the ports of the HTTP API). 0 means any free port.",
    )
    http_port: Port = Field(
        default=5681,
        validation_alias="KUMA_API_SERVER_HTTP_PORT",
        description="The port of the HTTP API, which serves bootstrap configurations too. 0 means any free port.",
    )
    https_enabled: bool | None = Field(
        default=None,
        validation_alias="KUMA_API_SERVER_HTTPS_ENABLED",
        description="Whether the HTTP API is served with TLS. Default: if its address is beyond loopback.",
    )
    https_port: Port = Field(
        default=5682,
        validation_alias="KUMA_API_SERVER_HTTPS_PORT",
        description="The port of the HTTP API with TLS. 0 means any free port.",
    )
    diagnostics_port: Port = Field(
        default=5680,
        validation_alias="KUMA_DIAGNOSTICS_SERVER_PORT",
        description="The port of `/ready`, `/healthy` and `/metrics`. 0 means any free port.",
    )
    tls_certificate: Path | None = Field(
        default=None,
        validation_alias="KUMA_GENERAL_TLS_CERT_FILE",
        description="The certificate of the control plane's servers, a chain in PEM. It is read again when it changes. "
        "Default: one that is made on the first start, in the work folder (`koguma-cp.crt`), signed by an authority of "
        "its own (`koguma-cp-ca.crt`).",
    )
    tls_key: Path | None = Field(
        default=None,
        validate_default=True,
        validation_alias="KUMA_GENERAL_TLS_KEY_FILE",
        description="The key of that certificate, in PEM without a password.",
    )
    tls_authority: Path | None = Field(
        default=None,
        validation_alias="KUMA_GENERAL_TLS_CA_FILE",
        description="The authority that signed that certificate, which bootstrap configurations tell proxies to trust. "
        "Default: the root at the end of the chain, or, if there is none, what the machines of proxies trust.",
    )
    ads_tls: Literal["auto", "on", "off"] = Field(
        default="auto",
        validation_alias="KOGUMA_DP_SERVER_TLS",
        description="Whether proxies are served over TLS. `auto`: if `KOGUMA_BIND` is beyond loopback.",
    )
    proxy_authentication: Literal["", "none", "dpToken"] = Field(
        default="",
        validation_alias="KUMA_DP_SERVER_AUTHN_DP_PROXY_TYPE",
        description="Whether a proxy has to show a token before it is served (`dpToken`) or not (`none`). Default: "
        "`dpToken` if `KOGUMA_BIND` is beyond loopback, and `none` otherwise.",
    )
    workers: int = Field(
        default=1,
        ge=1,
        le=64,
        validation_alias="KOGUMA_WORKERS",
        description="How many processes serve proxies, each with a copy of all configuration. If there are more than "
        "1, they share the port, and a separate process serves the HTTP API. 1 is enough for some thousand proxies.",
    )
    most_streams: int = Field(
        default=20_000,
        ge=0,
        validation_alias="KOGUMA_MOST_STREAMS",
        description="How many streams of proxies a process serves at once. Further proxies are asked to try again "
        "later. Where proxies show tokens, streams without a good one do not count. 0 means no limit.",
    )
    most_streams_of_address: int = Field(
        default=5_000,
        ge=0,
        validation_alias="KOGUMA_MOST_STREAMS_OF_ADDRESS",
        description="The same for streams from one address, so that one machine cannot take the place of all others. "
        "Proxies behind a load balancer, or behind NAT, have one address in common. 0 means no limit.",
    )
    most_streams_of_proxy: int = Field(
        default=4,
        ge=0,
        validation_alias="KOGUMA_MOST_STREAMS_OF_PROXY",
        description="The same for streams of one Dataplane. A further one ends the oldest. An Envoy has one, and two "
        "for a moment when it reconnects; a gRPC client has one for each of its processes. 0 means no limit.",
    )
    most_bytes_of_proxy: int = Field(
        default=16 * 1024 * 1024,
        ge=64 * 1024,
        validation_alias="KOGUMA_MOST_BYTES_OF_PROXY",
        description="How much memory, in bytes, the names of resources and their versions may take that one Dataplane "
        "sends on all its streams, without those of resources that it is sent. A name takes about 120 bytes and its "
        "length.",
    )
    request_limit: int = Field(
        default=5 * 1024 * 1024,
        ge=64 * 1024,
        validation_alias="KOGUMA_REQUEST_LIMIT",
        description="The largest request that a proxy may send, in bytes. Beyond 2 MiB a request may only be as large "
        "as the names of what the proxy is sent require. A delta client that reconnects names each resource twice, "
        "with a version: with names of 60 characters 5 MiB are some 30,000 resources of one type, and 8 MiB some "
        "50,000, which are the most. gRPC may hold so many bytes for each stream (`KOGUMA_MOST_STREAMS_OF_PROXY`).",
    )
    most_unknown: int = Field(
        default=1000,
        ge=1,
        validation_alias="KOGUMA_MOST_UNKNOWN",
        description="How many streams a process keeps open for proxies that have no Dataplane (yet). Further ones are "
        "asked to try again later.",
    )
    stream_age: float = Field(
        default=0,
        ge=0,
        validation_alias="KOGUMA_STREAM_AGE",
        description="The longest life of a stream in seconds, so that proxies spread over new instances. Each stream "
        "is closed at a random time in the second half of it. 0 closes none.",
    )
    drain: float = Field(
        default=0,
        ge=0,
        validation_alias="KOGUMA_DRAIN",
        description="Seconds over which a control plane that ends closes its streams, so that its proxies do not all "
        "connect to other instances at the same moment. Meanwhile `/ready` answers 503.",
    )
    notify_socket: str = Field(
        default="",
        validation_alias="NOTIFY_SOCKET",
        description="The socket for reports that the control plane is ready, alive or stopping (sd_notify). systemd "
        "sets it for a unit with `Type=notify`.",
    )
    watchdog_usec: int = Field(
        default=0,
        ge=0,
        validation_alias="WATCHDOG_USEC",
        description="Microseconds after which a silent control plane is restarted; 0 for never. systemd sets it for a "
        "unit with `WatchdogSec`.",
    )
    listener_drain_time: Seconds = Field(
        default=600,
        ge=0,
        le=3600,
        validation_alias="KOGUMA_LISTENER_DRAIN_TIME",
        description="Seconds for which an Envoy drains a changed listener (`--drain-time-s`), if its bootstrap "
        "configuration does not say. A proxy keeps the clusters that a change took from it for so long. `koguma dp "
        "run` says how long it is; for kuma-dp it is 30 s. The default is Envoy's. 0 keeps nothing.",
    )
    deregistration_delay: Seconds = Field(
        default=10,
        gt=0,
        validation_alias="KUMA_XDS_SERVER_DATAPLANE_DEREGISTRATION_DELAY",
        description="Seconds after a proxy has disconnected until the Dataplane that it registered is removed, unless "
        "it connects again. A duration such as `10s` is accepted too.",
    )
    return_grace: Seconds = Field(
        default=60,
        ge=0,
        validation_alias="KOGUMA_RETURN_GRACE",
        description="Seconds in which no proxy counts as gone, after the start and after all proxies have disconnected "
        "at once: they need time to connect again.",
    )
    trust_propagation: Seconds = Field(
        default=10,
        ge=0,
        validation_alias="KOGUMA_TRUST_PROPAGATION",
        description="Seconds for which proxies trust a new certificate authority before it signs, and, with mTLS in "
        "the mode PERMISSIVE, have certificates before callers speak TLS. Every connected proxy has to have ACKed it "
        "in addition.",
    )
    trust_patience: Seconds = Field(
        default=60,
        ge=0,
        validation_alias="KOGUMA_TRUST_PATIENCE",
        description="Seconds after which a new certificate authority signs even if a connected proxy has not ACKed it.",
    )
    quiet: float = Field(
        default=0.005,
        ge=0,
        le=10,
        validation_alias="KOGUMA_QUIET",
        description="Changes are served together once no further change has come for this many seconds.",
    )
    at_most: float = Field(
        default=0.1,
        ge=0,
        le=60,
        validation_alias="KOGUMA_AT_MOST",
        description="The longest time in seconds that a change waits to be served together with later ones.",
    )
    checks_itself: bool = Field(
        default=False,
        validation_alias="KOGUMA_CHECKS_ITSELF",
        description="Whether every incremental result is compared with a full computation. If they differ, the full "
        "one is served. It costs a full computation for every change.",
    )
    preflight_envoy: Path | None = Field(
        default=None,
        validation_alias="KOGUMA_PREFLIGHT_ENVOY",
        description="An Envoy on this machine, by its file, that can be shown what a write comes to before any proxy "
        "is (`koguma apply --preflight`). It runs in a sandbox, and not at all where there is none. Default: there is "
        "none.",
    )
    preflights_writes: bool = Field(
        default=False,
        validation_alias="KOGUMA_PREFLIGHT_WRITES",
        description="Whether every write over the HTTP API is shown to that Envoy first, and rejected if Envoy NACKs "
        "something because of it; except for Dataplanes that proxies register, and writes with `--no-preflight`.",
    )
    preflight_timeout: float = Field(
        default=10.0,
        gt=0,
        le=50,
        validation_alias="KOGUMA_PREFLIGHT_TIMEOUT",
        description="How many seconds that Envoy may take for one write.",
    )
    read_only: bool = Field(
        default=False,
        validation_alias="KUMA_API_SERVER_READ_ONLY",
        description="Whether the HTTP API refuses all writes, also those of proxies: their Dataplanes and their "
        "readiness.",
    )
    serves_page: bool = Field(
        default=True,
        validation_alias="KUMA_API_SERVER_GUI_ENABLED",
        description="Whether the HTTP API serves the page for browsers at `/gui`.",
    )
    body_limit: int = Field(
        default=16 * 1024 * 1024,
        ge=1024,
        validation_alias="KOGUMA_BODY_LIMIT",
        description="The largest request body that the HTTP API reads, in bytes. Independently of it, a resource may "
        "have 4 MiB, a request to `/_delivery` 1 MiB and a bootstrap request 256 KiB.",
    )
    api_hosts: str = Field(
        default="",
        validation_alias="KOGUMA_API_HOSTS",
        description="Host names by which clients may call the HTTP API and the diagnostics, separated by commas. IP "
        "addresses, `localhost` and the name of the machine are always allowed. Requests for other names are rejected, "
        "so that no website reaches the API by a name of its own (DNS rebinding). `*` allows any name.",
    )
    instance_address: str = Field(
        default="",
        validation_alias="KOGUMA_INSTANCE_ADDRESS",
        description="The URL at which other control planes on the same store reach the HTTP API of this one, to ask "
        "what its proxies have. Default: its port with TLS or, without one, its port without, at the address on which "
        "it listens; where that is any address, at the name of the machine.",
    )
    makes_admin_token: bool = Field(
        default=True,
        validation_alias="KUMA_API_SERVER_AUTHN_TOKENS_BOOTSTRAP_ADMIN_TOKEN",
        description="Whether a token of an administrator is made at the start, as the GlobalSecret `admin-user-token`, "
        "if there is none, and if tokens for people are issued and verified with GlobalSecrets.",
    )
    issues_user_tokens: bool = Field(
        default=True,
        validation_alias="KUMA_API_SERVER_AUTHN_TOKENS_ENABLE_ISSUER",
        description="Whether the control plane issues tokens for people and programs. If not, they are signed "
        "elsewhere, and verified with `KOGUMA_TOKEN_PUBLIC_KEYS`.",
    )
    takes_user_token_secrets: bool = Field(
        default=True,
        validation_alias="KUMA_API_SERVER_AUTHN_TOKENS_VALIDATOR_USE_SECRETS",
        description="Whether tokens of people are verified with the GlobalSecrets `user-token-signing-key-N`.",
    )
    issues_dataplane_tokens: bool = Field(
        default=True,
        validation_alias="KUMA_DP_SERVER_AUTHN_DP_PROXY_DP_TOKEN_ENABLE_ISSUER",
        description="Whether the control plane issues tokens for proxies.",
    )
    takes_dataplane_token_secrets: bool = Field(
        default=True,
        validation_alias="KUMA_DP_SERVER_AUTHN_DP_PROXY_DP_TOKEN_VALIDATOR_USE_SECRETS",
        description="Whether tokens of proxies are verified with the Secrets `dataplane-token-signing-key-MESH-N`.",
    )
    issues_zone_tokens: bool = Field(
        default=True,
        validation_alias="KUMA_DP_SERVER_AUTHN_ZONE_PROXY_ZONE_TOKEN_ENABLE_ISSUER",
        description="Whether the control plane issues tokens for zones.",
    )
    token_public_keys: Path | None = Field(
        default=None,
        validation_alias="KOGUMA_TOKEN_PUBLIC_KEYS",
        description="A file in YAML with the public keys of tokens that are signed elsewhere. It has the lists "
        "`dataplane` and `user`; an entry has `kid`, `key` (PEM) or `keyFile`, and for proxies `mesh`.",
    )
    authentication: Literal["tokens", "none"] = Field(
        default="tokens",
        validation_alias="KUMA_API_SERVER_AUTHN_TYPE",
        description="How callers of the HTTP API are known. `tokens` are user tokens in `Authorization: Bearer TOKEN`. "
        "With `none` everybody who reaches the API is an administrator.",
    )
    localhost_is_admin: bool = Field(
        default=True,
        validation_alias="KUMA_API_SERVER_AUTHN_LOCALHOST_IS_ADMIN",
        description="Whether callers from this machine without a token are administrators. Turn it off if a reverse "
        "proxy or other users are on this machine.",
    )
    access_file: Path | None = Field(
        default=None,
        validation_alias="KOGUMA_ACCESS_FILE",
        description="A file with rights: who may read and write which kinds in which meshes. It is read again when it "
        "changes and on SIGHUP. It takes the place of the lists below, but for the administrators if it names none.",
    )
    access_unnamed: Literal["deny", "warn"] = Field(
        default="deny",
        validation_alias="KOGUMA_ACCESS_UNNAMED",
        description="Whether a right that names no `kinds` covers writes that have to be named since record 0096, for "
        "an upgrade: `deny`, or `warn`, which allows and logs them as `access.tolerated`. With `warn`, proxies also "
        "receive keys of MeshGateways by tokens that name no service.",
    )
    admin_users: str = _access_list("ADMIN_RESOURCES_USERS", "Users that may do everything", ADMIN)
    admin_groups: str = _access_list("ADMIN_RESOURCES_GROUPS", "Groups that may do everything", ADMIN)
    dataplane_token_users: str = _access_list("GENERATE_DP_TOKEN_USERS", "Users that may make tokens of proxies", ADMIN)
    dataplane_token_groups: str = _access_list(
        "GENERATE_DP_TOKEN_GROUPS", "Groups that may make tokens of proxies", ADMIN
    )
    user_token_users: str = _access_list("GENERATE_USER_TOKEN_USERS", "Users that may make tokens of users", ADMIN)
    user_token_groups: str = _access_list("GENERATE_USER_TOKEN_GROUPS", "Groups that may make tokens of users", ADMIN)
    zone_token_users: str = _access_list("GENERATE_ZONE_TOKEN_USERS", "Users that may make tokens of zones", ADMIN)
    zone_token_groups: str = _access_list("GENERATE_ZONE_TOKEN_GROUPS", "Groups that may make tokens of zones", ADMIN)
    inspection_users: str = _access_list(
        "GET_CONFIG_DUMP_USERS", "Users that may see rules, findings, delivery and configurations of Envoy", ""
    )
    inspection_groups: str = _access_list(
        "GET_CONFIG_DUMP_GROUPS",
        "Groups that may see rules, findings, delivery and configurations of Envoy",
        AUTHENTICATED,
    )
    control_plane_users: str = _access_list(
        "CONTROL_PLANE_METADATA_USERS", "Users that may see the settings and metrics of the control plane", ""
    )
    control_plane_groups: str = _access_list(
        "CONTROL_PLANE_METADATA_GROUPS",
        "Groups that may see the settings and metrics of the control plane",
        AUTHENTICATED,
    )
    skip_mesh_creation: bool = Field(
        default=False,
        validation_alias="KUMA_DEFAULTS_SKIP_MESH_CREATION",
        description="Whether to start without creating the Mesh `default` if there is none.",
    )
    policy_engine: Engine = Field(
        default=DEFAULT_ENGINE,
        validation_alias="KUMA_DEFAULTS_POLICY_ENGINE",
        description="The policy engine of a Mesh that names none. A new Mesh is stored with it, and with its default "
        "policies: those with a `targetRef`, or with `Legacy` those of Kuma's first versions.",
    )
    auto_reachable_services: bool = Field(
        default=False,
        validation_alias="KUMA_EXPERIMENTAL_AUTO_REACHABLE_SERVICES",
        description="Whether a proxy with redirected traffic is told only of what MeshTrafficPermissions let it call, "
        "unless its Dataplane lists what it reaches.",
    )
    proxy_bytes: int = Field(
        default=BYTES_OF_PROXY.most,
        ge=DESTINATION_BYTES,
        le=_LARGEST,
        validation_alias="KOGUMA_PROXY_BYTES",
        description="How many bytes of the control plane the destinations of one proxy may take, about 12,000 for each "
        "port of a service. Proxies that call the same services alike share them.",
    )
    mesh_bytes: int = Field(
        default=BYTES_OF_MESH.most,
        ge=DESTINATION_BYTES,
        le=_LARGEST,
        validation_alias="KOGUMA_MESH_BYTES",
        description="The same for all proxies of a mesh together.",
    )
    xds_host: str = Field(
        default="",
        validation_alias="KUMA_BOOTSTRAP_SERVER_PARAMS_XDS_HOST",
        description="The host at which proxies reach the control plane, or several on one store, separated by commas "
        "and each with a port of its own where it has one (`cp-1.example,cp-2.example:5679`): a proxy goes to the next "
        "when one is gone. Default: the hosts of `koguma dp run --cp-address`, or the host that the proxy called for "
        "its bootstrap configuration.",
    )
    xds_port: Port = Field(
        default=0,
        validation_alias="KUMA_BOOTSTRAP_SERVER_PARAMS_XDS_PORT",
        description="The port at which proxies reach the control plane. 0 means the port on which it listens.",
    )
    admin_unix_socket: bool = Field(
        default=True,
        validation_alias="KUMA_BOOTSTRAP_SERVER_PARAMS_ENVOY_ADMIN_UNIX_SOCKET",
        description="Whether Envoy's admin interface is a Unix socket in the proxy's work folder, so that two proxies "
        "on one machine never need the same port. A Dataplane with `networking.admin.port` gets that port instead.",
    )
    admin_address: str = Field(
        default="127.0.0.1",
        validation_alias="KUMA_BOOTSTRAP_SERVER_PARAMS_ADMIN_ADDRESS",
        description="The address of Envoy's admin interface if it listens on a port.",
    )
    admin_port: Port = Field(
        default=9901,
        validation_alias="KUMA_BOOTSTRAP_SERVER_PARAMS_ADMIN_PORT",
        description="The port of Envoy's admin interface, for a Dataplane that names none.",
    )
    findings_every: Seconds = Field(
        default=60,
        ge=0,
        validation_alias="KOGUMA_FINDINGS_EVERY",
        description="Seconds after which findings are looked for again, to be counted as a metric. In a large mesh it "
        "is looked less often, so that it costs a twentieth of a processor at the most. 0 means never.",
    )
    otlp_endpoint: str = Field(
        default="",
        validation_alias="KOGUMA_OTLP_ENDPOINT",
        description="The collector of OpenTelemetry that is sent a trace of each change: `grpc://HOST:4317`, "
        "`http://HOST:4318` or `https://HOST:4318`. Where it is not set, the standard variables of OpenTelemetry that "
        "follow say where traces go; without an endpoint there are none.",
    )
    otel_endpoint: str = Field(
        default="",
        validation_alias="OTEL_EXPORTER_OTLP_ENDPOINT",
        description="The collector's endpoint for everything, such as `https://HOST:4318`. Spans go to `/v1/traces` "
        "below it, with the protocol `grpc` to the host and port alone.",
    )
    otel_traces_endpoint: str = Field(
        default="",
        validation_alias="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        description="The endpoint for traces alone, in place of the other one: a whole URL to which nothing is added.",
    )
    otel_protocol: OtlpProtocol = Field(
        default="http/protobuf",
        validation_alias="OTEL_EXPORTER_OTLP_PROTOCOL",
        description="How the collector at that endpoint is spoken to: `http/protobuf`, or `grpc`, with TLS where the "
        "endpoint begins with `https`. With `http/json` it is sent protobuf, which whoever takes OTLP over HTTP reads.",
    )
    otel_traces_protocol: OtlpProtocol | None = Field(
        default=None,
        validation_alias="OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
        description="The same for traces alone. Default: `OTEL_EXPORTER_OTLP_PROTOCOL`.",
    )
    otel_headers: SecretStr = Field(
        default=SecretStr(""),
        validation_alias="OTEL_EXPORTER_OTLP_HEADERS",
        description="Headers that each request to the collector has, `NAME=VALUE,NAME=VALUE` with the values "
        "percent-encoded, such as `authorization=Bearer%20TOKEN`. They are sent to `KOGUMA_OTLP_ENDPOINT` too, unless "
        "one of the standard endpoints is set as well: then they are for that one, and are not sent.",
    )
    otel_traces_headers: SecretStr = Field(
        default=SecretStr(""),
        validation_alias="OTEL_EXPORTER_OTLP_TRACES_HEADERS",
        description="Those for traces alone, in place of the others.",
    )
    otel_service_name: str = Field(
        default="koguma",
        validation_alias="OTEL_SERVICE_NAME",
        description="What the control plane is called in traces (`service.name`).",
    )
    otel_sdk_disabled: StandardBool = Field(
        default=False,
        validation_alias="OTEL_SDK_DISABLED",
        description="With `true`, nothing is sent to the standard endpoints. `KOGUMA_OTLP_ENDPOINT` is not concerned.",
    )
    log_level: LogLevel = Field(
        default="info", validation_alias="KOGUMA_LOG_LEVEL", description="The lowest level of messages that are logged."
    )
    log_format: LogFormat = Field(
        default="auto",
        validation_alias="KOGUMA_LOG_FORMAT",
        description="`console`, `json`, or `auto`: console on a terminal, JSON elsewhere.",
    )
    log_file: str = Field(
        default="",
        validation_alias="KOGUMA_LOG_FILE",
        description="A file for the log, in place of standard error. When it is moved away, as `logrotate` does, "
        "a new one is begun; the control plane need not be told.",
    )

    _origin: SettingsOrigin = PrivateAttr(default_factory=SettingsOrigin)

    @property
    def file(self) -> Path | None:
        """The file of settings."""
        return self._origin.file

    def is_from_file(self, name: str) -> bool:
        return name in self._origin.places

    def place(self, name: str) -> str:
        """Where a setting was written: its line in the file, or its variable."""
        return self._origin.places.get(name) or variable(name)

    @property
    def budget(self) -> Budget:
        """The bytes that the destinations of proxies may take."""
        return Budget.of(self.proxy_bytes, self.mesh_bytes)

    @property
    def serves_proxies_over_tls(self) -> bool:
        return self.ads_tls == "on" or (self.ads_tls == "auto" and not is_loopback(self.bind))

    @property
    def tolerates_unnamed_rights(self) -> bool:
        return self.access_unnamed == "warn"

    @property
    def asks_proxies_for_tokens(self) -> bool:
        if not self.proxy_authentication:
            return not is_loopback(self.bind)
        return self.proxy_authentication == "dpToken"

    @property
    def xds_hosts(self) -> tuple[tuple[str, int], ...]:
        """Where proxies reach the control planes on this store; a port of 0 is the usual one."""
        return hosts_with_ports(self.xds_host, 0)

    @property
    def stores_admin_token(self) -> bool:
        """Whether a token of an administrator is made here: its key is a Secret, so Secrets have to count."""
        return self.makes_admin_token and self.issues_user_tokens and self.takes_user_token_secrets

    @property
    def trace_collector(self) -> TraceCollector | None:
        """Where traces go; None: nowhere."""
        base, own = self.otel_endpoint, self.otel_traces_endpoint
        secret = self.otel_traces_headers.get_secret_value() or self.otel_headers.get_secret_value()
        if self.otlp_endpoint:
            return TraceCollector.of_base(self.otlp_endpoint, headers_of("" if base or own else secret))
        if self.otel_sdk_disabled or not (base or own):
            return None
        protocol = self.otel_traces_protocol or self.otel_protocol
        return TraceCollector.of_standard(base, own, protocol, headers_of(secret))

    @property
    def serves_https(self) -> bool:
        return not is_loopback(self.https_bind) if self.https_enabled is None else self.https_enabled

    @field_validator("registrations")
    @classmethod
    def _beside_files(cls, registrations: str, validated: ValidationInfo) -> str:
        if registrations and not str(validated.data.get("store", "dir:")).startswith("dir:"):
            raise ValueError("only a store of files (dir:PATH) needs another one beside it")
        return registrations

    @field_validator("otlp_endpoint")
    @classmethod
    def _is_a_collector(cls, endpoint: str) -> str:
        if endpoint and not is_endpoint(endpoint, "grpc", "http", "https"):
            raise ValueError("write it as grpc://HOST:PORT, http://HOST:PORT or https://HOST:PORT")
        return endpoint.rstrip("/")

    @field_validator("otel_endpoint", "otel_traces_endpoint")
    @classmethod
    def _is_a_standard_endpoint(cls, endpoint: str) -> str:
        if endpoint and not is_endpoint(endpoint, "http", "https"):
            raise ValueError("write it as http://HOST:PORT or https://HOST:PORT, with a path if there is one")
        return endpoint

    @field_validator("otel_headers", "otel_traces_headers")
    @classmethod
    def _are_headers(cls, headers: SecretStr) -> SecretStr:
        headers_of(headers.get_secret_value())
        return headers

    @field_validator("instance_address")
    @classmethod
    def _is_an_address(cls, address: str) -> str:
        scheme, _, host = address.rstrip("/").partition("://")
        is_bare = ":" in host and is_ip(host)  # in a URL it stands in brackets
        if address and (scheme not in {"http", "https"} or is_bare or len(hosts_with_ports(host, 0)) != 1):
            raise ValueError("write it as https://HOST:PORT or http://HOST:PORT")
        return address.rstrip("/")

    @field_validator("xds_host")
    @classmethod
    def _has_hosts_alone(cls, xds_host: str) -> str:
        hosts_with_ports(xds_host, 0)
        return xds_host

    @field_validator("tls_key")
    @classmethod
    def _belongs_to_a_certificate(cls, key: Path | None, validated: ValidationInfo) -> Path | None:
        if (key is None) != (validated.data.get("tls_certificate") is None):
            missing = "tls_key" if key is None else "tls_certificate"
            raise ValueError(f"a certificate and its key are given together; {_names(missing)} is missing")
        return key

    @field_validator("tls_authority")
    @classmethod
    def _signed_a_certificate(cls, authority: Path | None, validated: ValidationInfo) -> Path | None:
        if authority is not None and validated.data.get("tls_certificate") is None:
            raise ValueError(
                f"an authority is given together with a certificate; {_names('tls_certificate')} is missing"
            )
        return authority

    @field_validator("admin_users", "admin_groups")
    @classmethod
    def _name_somebody(cls, names: str) -> str:
        if UNAUTHENTICATED in map(str.strip, names.split(",")):
            raise ValueError("everybody would be an administrator; if that is meant, KUMA_API_SERVER_AUTHN_TYPE=none")
        return names

    @field_validator("preflights_writes")
    @classmethod
    def _has_an_envoy(cls, preflights: bool, validated: ValidationInfo) -> bool:  # noqa: FBT001  # pydantic calls it
        if preflights and validated.data.get("preflight_envoy") is None:
            raise ValueError(f"there is no Envoy to show writes to; {_names('preflight_envoy')} is missing")
        return preflights

    @field_validator("workers")
    @classmethod
    def _number_alike(cls, workers: int, validated: ValidationInfo) -> int:
        if workers > 1 and validated.data.get("registrations"):
            raise ValueError("workers would number what is registered beside files each in its own way: run one")
        return workers

    @field_validator("workers")
    @classmethod
    def _share_a_store(cls, workers: int, validated: ValidationInfo) -> int:
        if workers > 1 and validated.data.get("store") == "memory:":
            raise ValueError("workers have no memory in common: name a store on the disk, sqlite or dir")
        return workers


def load(**options: Any) -> Settings:
    """The settings: the options of a command line unless they are `None`, the environment, and a file, in this order.

    The file is the option `config`, or what the environment names.
    """
    environment = os.environ  # noqa: TID251  # this is where it is read
    in_file = _in_file(options.get("config") or environment.get(FILE))
    set_options = {name: value for name, value in options.items() if value is not None and name != "config"}
    from_file: dict[str, Any] = {
        name: in_file.values[key]
        for name in Settings.model_fields
        if (key := file_key(name)) in in_file.values and name not in set_options and not environment.get(variable(name))
    }
    places = {name: in_file.places[file_key(name)] for name in from_file}
    try:
        settings = Settings(**from_file, **set_options)
    except ValidationError as error:
        faults = [_sentence(fault, places) for fault in error.errors() if fault["type"] != _NO_DEFAULT]
        raise BadSettings((*in_file.faults, *faults)) from None
    if in_file.faults:
        raise BadSettings(in_file.faults)
    settings._origin = SettingsOrigin(Path(in_file.path) if in_file.path else None, places)  # noqa: SLF001  # it is ours
    return settings


def _in_file(path: Path | str | None) -> FileSettings:
    return settings_in(Path(path), [file_key(name) for name in Settings.model_fields]) if path else FileSettings()


def file_key(name: str) -> str:
    """The key of a setting in a file."""
    first, *later_words = name.split("_")
    return first + "".join(map(str.capitalize, later_words))


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return str(Settings.model_fields[name].validation_alias)


def described(name: str) -> str:
    """The help text of a setting's option on the command line."""
    text = (Settings.model_fields[name].description or "").replace("`", "")
    return f"{text} [{variable(name)}]"


def rows() -> Iterator[tuple[str, str, str]]:
    """A row of documentation for every setting: the variable, the default, the description."""
    for _, *row in table():
        yield row[0], row[1], row[2]


def table() -> Iterator[tuple[str, str, str, str]]:
    """The same rows, each behind the key of the setting in a file."""
    for name, setting in Settings.model_fields.items():
        default = "" if setting.default_factory is not None or setting.default is None else str(setting.default)
        yield file_key(name), str(setting.validation_alias), default, setting.description or ""


_WITH_TOKENS: Final = frozenset({"otlp_endpoint", "otel_endpoint", "otel_traces_endpoint"})
"""URLs in which some write a token in the place of a user."""


def _sentence(fault: ErrorDetails, places: Mapping[str, str]) -> str:
    name, message = _name(str(fault["loc"][0]) if fault["loc"] else ""), plain(fault["msg"])
    if fault["input"] is None and name in _NEEDED_BY:  # it is not written anywhere: what needs it is
        needed_by = _NEEDED_BY[name]
        return f"{places.get(needed_by) or variable(needed_by)}: {message}"
    shown_name = variable(name) if name in Settings.model_fields else name
    as_shown = without_user if name in _WITH_TOKENS else without_password
    input_ = "" if is_secret(name) else f"={as_shown(str(fault['input']))}"
    return f"{places.get(name) or shown_name}{input_}: {message}"


def _names(name: str) -> str:
    """What a setting is called in the environment and in a file."""
    return f"{variable(name)} (in a file `{file_key(name)}`)"


def _name(location: str) -> str:
    """The name of a setting that pydantic calls by its name or by its variable."""
    return next((name for name in Settings.model_fields if variable(name) == location), location)


def is_secret(name: str) -> bool:
    """Whether nobody may see the value of a setting."""
    setting = Settings.model_fields.get(name)
    return setting is not None and setting.annotation is SecretStr
