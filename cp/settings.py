"""`Settings`: one frozen value, read once from the environment and the command line, and passed down.

A setting that Kuma has too has Kuma's name (`KUMA_*`), the others begin with `KOGUMA_`. Defaults are defined here only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from cp.access.rights import ADMIN, AUTHENTICATED, UNAUTHENTICATED
from cp.model.duration import Duration
from cp.model.hosts import LOOPBACK, is_loopback
from cp.model.wording import plain
from cp.resources.initial_policies import Engine
from cp.store.port import KEPT_BYTES

_NUMBER: Final = re.compile(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?")

Port = Annotated[int, Field(ge=0, le=65535)]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "console", "json"]
StoreType = Literal["sqlite", "memory"]


def _seconds(value: Any) -> Any:
    """A number of seconds, or a duration in Kuma's notation."""
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        return value
    return Duration.parse(value).seconds


Seconds = Annotated[float, BeforeValidator(_seconds)]


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


class BadSettings(Exception):
    """The environment or the command line has an invalid setting."""

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
        description="Where resources are kept: `sqlite:///PATH`, `dir:PATH` or `memory:`. Takes precedence over "
        "`KUMA_STORE_TYPE`, which decides the default.",
    )
    registrations: str = Field(
        default="",
        validation_alias="KOGUMA_REGISTRATIONS",
        description="Where the Dataplanes that proxies register and the certificate authorities of meshes are kept if "
        "the store is a folder of files: `sqlite:///PATH` or `memory:`. If it is not set, every Dataplane has to be in "
        "the files, and no authority can be built in.",
    )
    history_bytes: int = Field(
        default=KEPT_BYTES,
        ge=0,
        validation_alias="KOGUMA_HISTORY_BYTES",
        description="How many bytes of changes the store remembers. It remembers at most 10000 changes, and always the "
        "last one.",
    )
    secrets_key_file: str = Field(
        default="",
        validation_alias="KOGUMA_SECRETS_KEY_FILE",
        description="A file with the keys with which a store in SQLite encrypts documents that hold secrets. "
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
        description="The port on which proxies get their configuration (gRPC). 0 means any free port.",
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
        default=0,
        ge=0,
        validation_alias="KOGUMA_MOST_STREAMS",
        description="How many streams of proxies a process serves at once. Further proxies are asked to try again "
        "later. 0 means no limit.",
    )
    request_limit: int = Field(
        default=4 * 1024 * 1024,
        ge=64 * 1024,
        validation_alias="KOGUMA_REQUEST_LIMIT",
        description="The largest request that a proxy may send, in bytes.",
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
    read_only: bool = Field(
        default=False,
        validation_alias="KUMA_API_SERVER_READ_ONLY",
        description="Whether the HTTP API refuses all writes, also those of proxies: their Dataplanes and their "
        "readiness.",
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
        default="TargetRef",
        validation_alias="KUMA_DEFAULTS_POLICY_ENGINE",
        description="The policy engine of a Mesh that names none. With `TargetRef` a new Mesh gets default policies. "
        "With `Legacy` it gets none: Koguma has no legacy policies.",
    )
    xds_host: str = Field(
        default="",
        validation_alias="KUMA_BOOTSTRAP_SERVER_PARAMS_XDS_HOST",
        description="The host at which proxies reach the control plane. Default: the host that the proxy called for "
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
    log_level: LogLevel = Field(
        default="info", validation_alias="KOGUMA_LOG_LEVEL", description="The lowest level of messages that are logged."
    )
    log_format: LogFormat = Field(
        default="auto",
        validation_alias="KOGUMA_LOG_FORMAT",
        description="`console`, `json`, or `auto`: console on a terminal, JSON elsewhere.",
    )

    @property
    def serves_proxies_over_tls(self) -> bool:
        return self.ads_tls == "on" or (self.ads_tls == "auto" and not is_loopback(self.bind))

    @property
    def asks_proxies_for_tokens(self) -> bool:
        if not self.proxy_authentication:
            return not is_loopback(self.bind)
        return self.proxy_authentication == "dpToken"

    @property
    def stores_admin_token(self) -> bool:
        """Whether a token of an administrator is made here: its key is a Secret, so Secrets have to count."""
        return self.makes_admin_token and self.issues_user_tokens and self.takes_user_token_secrets

    @property
    def serves_https(self) -> bool:
        return not is_loopback(self.https_bind) if self.https_enabled is None else self.https_enabled

    @field_validator("registrations")
    @classmethod
    def _beside_files(cls, registrations: str, validated: ValidationInfo) -> str:
        if registrations and not str(validated.data.get("store", "")).startswith("dir:"):
            raise ValueError("only a store of files (dir:PATH) needs another one beside it")
        return registrations

    @field_validator("tls_key")
    @classmethod
    def _belongs_to_a_certificate(cls, key: Path | None, validated: ValidationInfo) -> Path | None:
        if (key is None) != (validated.data.get("tls_certificate") is None):
            raise ValueError("a certificate and its key are given together (KUMA_GENERAL_TLS_CERT_FILE)")
        return key

    @field_validator("tls_authority")
    @classmethod
    def _signed_a_certificate(cls, authority: Path | None, validated: ValidationInfo) -> Path | None:
        if authority is not None and validated.data.get("tls_certificate") is None:
            raise ValueError("an authority is given together with a certificate (KUMA_GENERAL_TLS_CERT_FILE)")
        return authority

    @field_validator("admin_users", "admin_groups")
    @classmethod
    def _name_somebody(cls, names: str) -> str:
        if UNAUTHENTICATED in map(str.strip, names.split(",")):
            raise ValueError("everybody would be an administrator; if that is meant, KUMA_API_SERVER_AUTHN_TYPE=none")
        return names

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
    """The settings: the options of a command line unless they are `None`, and otherwise the environment."""
    set_options = {name: value for name, value in options.items() if value is not None}
    try:
        return Settings(**set_options)
    except ValidationError as error:
        raise BadSettings(tuple(_sentence(fault) for fault in error.errors())) from None


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return str(Settings.model_fields[name].validation_alias)


def described(name: str) -> str:
    """The help text of a setting's option on the command line."""
    text = (Settings.model_fields[name].description or "").replace("`", "")
    return f"{text} [{variable(name)}]"


def rows() -> Iterator[tuple[str, str, str]]:
    """A row of documentation for every setting: the variable, the default, the description."""
    for field in Settings.model_fields.values():
        default = "" if field.default_factory is not None or field.default is None else str(field.default)
        yield str(field.validation_alias), default, field.description or ""


def shown(settings: Settings) -> dict[str, Any]:
    """The answer of `GET /config`, in Kuma's shape. Nothing of a key is in it."""
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


def _sentence(fault: ErrorDetails) -> str:
    name = str(fault["loc"][0]) if fault["loc"] else ""
    shown_name = variable(name) if name in Settings.model_fields else name
    input_ = "" if _is_secret(name) else f"={fault['input']}"
    return f"{shown_name}{input_}: {plain(fault['msg'])}"


def _is_secret(name: str) -> bool:
    field = Settings.model_fields.get(name)
    return field is not None and field.annotation is SecretStr
