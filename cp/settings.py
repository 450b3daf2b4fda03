"""Environment to one frozen `Settings`: read once, passed down.

A setting that Kuma has too goes by Kuma's name (`KUMA_*`), the others by ours (`KOGUMA_*`). A default stands here,
beside what it is the default of, and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, field_validator
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
    """A number of seconds, or a duration as Kuma writes it."""
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
    """The environment, or a command line, says something that no setting can be."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        self.faults = faults
        super().__init__("\n".join(faults))


class Settings(BaseSettings):
    """All there is to set. `docs/reference/settings.md` is made from this class."""

    model_config = SettingsConfigDict(
        frozen=True, populate_by_name=True, case_sensitive=True, extra="forbid", env_ignore_empty=True
    )

    work_dir: Path = Field(
        default_factory=lambda: Path.home() / ".koguma",
        validation_alias="KUMA_GENERAL_WORK_DIR",
        description="The folder for what the control plane keeps on disk. Default: `~/.koguma`.",
    )
    store_type: StoreType = Field(
        default="sqlite",
        validation_alias="KUMA_STORE_TYPE",
        description="`sqlite` keeps resources in a file in the work folder, `memory` loses them at the end.",
    )
    store: str = Field(
        default_factory=_store_url,
        validation_alias="KOGUMA_STORE",
        description="Where resources are kept: `sqlite:///PATH`, `dir:PATH` or `memory:`. Wins over "
        "`KUMA_STORE_TYPE`, which decides the default.",
    )
    registrations: str = Field(
        default="",
        validation_alias="KOGUMA_REGISTRATIONS",
        description="Where Dataplanes are kept that proxies register, beside a store of files: `sqlite:///PATH` or "
        "`memory:`. Without it a proxy has to stand in the files.",
    )
    history_bytes: int = Field(
        default=KEPT_BYTES,
        ge=0,
        validation_alias="KOGUMA_HISTORY_BYTES",
        description="How many bytes of changes the store remembers; at the most it is 10000 changes, at the least the "
        "last one.",
    )
    bind: str = Field(
        default="127.0.0.1",
        validation_alias="KOGUMA_BIND",
        description="The address on which all servers listen. Set `0.0.0.0` to be reached from other machines.",
    )
    http_bind: str = Field(
        default_factory=_bound,
        validation_alias="KUMA_API_SERVER_HTTP_INTERFACE",
        description="The address of the HTTP API, if it differs from `KOGUMA_BIND`.",
    )
    ads_port: Port = Field(
        default=5678,
        validation_alias="KUMA_DP_SERVER_PORT",
        description="The port on which proxies get their configuration (gRPC). 0 takes any free one.",
    )
    http_port: Port = Field(
        default=5681,
        validation_alias="KUMA_API_SERVER_HTTP_PORT",
        description="The port of the HTTP API, which serves bootstrap configurations too. 0 takes any free one.",
    )
    diagnostics_port: Port = Field(
        default=5680,
        validation_alias="KUMA_DIAGNOSTICS_SERVER_PORT",
        description="The port of `/ready`, `/healthy` and `/metrics`. 0 takes any free one.",
    )
    workers: int = Field(
        default=1,
        ge=1,
        le=64,
        validation_alias="KOGUMA_WORKERS",
        description="How many processes serve proxies, each with a copy of everything. With more than 1 they share the "
        "port, and a process of its own answers the HTTP API. One is enough for some thousand proxies.",
    )
    most_streams: int = Field(
        default=0,
        ge=0,
        validation_alias="KOGUMA_MOST_STREAMS",
        description="How many streams of proxies a process serves at once; who comes then is asked to come back later. "
        "0 is any number.",
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
        description="How many streams a process keeps open for proxies that have no Dataplane (yet); who comes then is "
        "asked to come back later.",
    )
    stream_age: float = Field(
        default=0,
        ge=0,
        validation_alias="KOGUMA_STREAM_AGE",
        description="Seconds after which a stream is closed at the latest (at the earliest after half of them), so "
        "that proxies spread over new instances. 0 closes none.",
    )
    drain: float = Field(
        default=0,
        ge=0,
        validation_alias="KOGUMA_DRAIN",
        description="Seconds over which streams are closed at the end, so that not all proxies come to other instances "
        "at the same moment. Meanwhile `/ready` says no.",
    )
    deregistration_delay: Seconds = Field(
        default=10,
        gt=0,
        validation_alias="KUMA_XDS_SERVER_DATAPLANE_DEREGISTRATION_DELAY",
        description="Seconds after which the Dataplane that a proxy registered is removed when the proxy has "
        "disconnected and did not come back. A duration such as `10s` does as well.",
    )
    return_grace: Seconds = Field(
        default=60,
        ge=0,
        validation_alias="KOGUMA_RETURN_GRACE",
        description="Seconds from the start, and after every proxy was gone at once, in which none counts as gone: "
        "they need time to come back.",
    )
    quiet: float = Field(
        default=0.005,
        ge=0,
        le=10,
        validation_alias="KOGUMA_QUIET",
        description="Seconds without a change after which changes are served.",
    )
    at_most: float = Field(
        default=0.1,
        ge=0,
        le=60,
        validation_alias="KOGUMA_AT_MOST",
        description="Seconds that changes wait at the most for others to be served together with.",
    )
    checks_itself: bool = Field(
        default=False,
        validation_alias="KOGUMA_CHECKS_ITSELF",
        description="Whether everything that is served is compared with a full computation, which is served where they "
        "differ. It costs what a full computation costs.",
    )
    read_only: bool = Field(
        default=False,
        validation_alias="KUMA_API_SERVER_READ_ONLY",
        description="Whether the HTTP API refuses writes, also of what proxies bring along or say of themselves.",
    )
    body_limit: int = Field(
        default=16 * 1024 * 1024,
        ge=1024,
        validation_alias="KOGUMA_BODY_LIMIT",
        description="The largest request body that the HTTP API reads, in bytes. Whatever it is, a resource has 4 MiB "
        "at the most, a question to `/_delivery` 1 MiB and a bootstrap request 256 KiB.",
    )
    api_hosts: str = Field(
        default="",
        validation_alias="KOGUMA_API_HOSTS",
        description="Names by which the HTTP API and the diagnostics may be called, separated by commas, beside "
        "addresses, `localhost` and the name of the machine. Others are refused, so that no website reaches them by a "
        "name of its own. `*` is any name.",
    )
    skip_mesh_creation: bool = Field(
        default=False,
        validation_alias="KUMA_DEFAULTS_SKIP_MESH_CREATION",
        description="Whether to start without a Mesh `default` where there is none.",
    )
    policy_engine: Engine = Field(
        default="TargetRef",
        validation_alias="KUMA_DEFAULTS_POLICY_ENGINE",
        description="The policy engine of a Mesh that names none. With `TargetRef` a new Mesh gets default policies, "
        "with `Legacy` none: the legacy policies do not exist here.",
    )
    xds_host: str = Field(
        default="",
        validation_alias="KUMA_BOOTSTRAP_SERVER_PARAMS_XDS_HOST",
        description="The host at which proxies find the control plane. "
        "Default: the one by which a proxy asked for its bootstrap configuration.",
    )
    xds_port: Port = Field(
        default=0,
        validation_alias="KUMA_BOOTSTRAP_SERVER_PARAMS_XDS_PORT",
        description="The port at which proxies find it. 0 is the one on which it listens.",
    )
    admin_unix_socket: bool = Field(
        default=True,
        validation_alias="KUMA_BOOTSTRAP_SERVER_PARAMS_ENVOY_ADMIN_UNIX_SOCKET",
        description="Whether Envoy's admin interface is a socket in the proxy's work folder, so that no two "
        "proxies of a machine want the same port. A Dataplane with `networking.admin.port` keeps its port.",
    )
    admin_address: str = Field(
        default="127.0.0.1",
        validation_alias="KUMA_BOOTSTRAP_SERVER_PARAMS_ADMIN_ADDRESS",
        description="The address of Envoy's admin interface where it is a port.",
    )
    admin_port: Port = Field(
        default=9901,
        validation_alias="KUMA_BOOTSTRAP_SERVER_PARAMS_ADMIN_PORT",
        description="That port, for a Dataplane that names none.",
    )
    log_level: LogLevel = Field(
        default="info", validation_alias="KOGUMA_LOG_LEVEL", description="The least that is logged."
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
    """What a setting is, for those who give it on a command line."""
    text = (Settings.model_fields[name].description or "").replace("`", "")
    return f"{text} [{variable(name)}]"


def rows() -> Iterator[tuple[str, str, str]]:
    """Every setting for its documentation: the variable, the default, what it is."""
    for field in Settings.model_fields.values():
        default = "" if field.default_factory is not None else str(field.default)
        yield str(field.validation_alias), default, field.description or ""


def shown(settings: Settings) -> dict[str, Any]:
    """What `GET /config` answers: Kuma's shape where Kuma has a place for it. No setting is a secret."""
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
    return f"{shown_name}={fault['input']}: {plain(fault['msg'])}"
