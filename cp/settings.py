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

from cp.model.duration import Duration
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
        description="Where the Dataplanes that proxies register are kept if the store is a folder of files: "
        "`sqlite:///PATH` or `memory:`. If it is not set, every Dataplane has to be in the files.",
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
        default_factory=_bound,
        validation_alias="KUMA_API_SERVER_HTTP_INTERFACE",
        description="The address of the HTTP API. Default: `KOGUMA_BIND`.",
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
    diagnostics_port: Port = Field(
        default=5680,
        validation_alias="KUMA_DIAGNOSTICS_SERVER_PORT",
        description="The port of `/ready`, `/healthy` and `/metrics`. 0 means any free port.",
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

    @field_validator("registrations")
    @classmethod
    def _beside_files(cls, registrations: str, validated: ValidationInfo) -> str:
        if registrations and not str(validated.data.get("store", "")).startswith("dir:"):
            raise ValueError("only a store of files (dir:PATH) needs another one beside it")
        return registrations

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
        default = "" if field.default_factory is not None else str(field.default)
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
        },
        "dpServer": {"port": settings.ads_port},
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
