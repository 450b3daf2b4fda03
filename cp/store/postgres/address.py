"""`DatabaseAddress`: what a URL says of a database, and what is wrong with it.

The names of the parameters are libpq's where libpq has them. A password never stands in the URL, which is shown in
lists of processes, in logs and by the API.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

from cp.model.hosts import is_loopback
from cp.store.port import Unusable

FORM: Final = "postgresql://USER@HOST:PORT/DATABASE"
SCHEMES: Final = frozenset({"postgresql", "postgres"})
PORT: Final = 5432
CONNECT_TIMEOUT: Final = 5.0
TIMEOUT: Final = 10.0
CONNECTIONS: Final = 5

TlsMode: TypeAlias = Literal["disable", "require", "verify-ca", "verify-full"]

_PARAMETERS: Final = (
    "host",
    "password_file",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "connect_timeout",
    "timeout",
    "connections",
)


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """Where a database is, as whom we speak with it, and for how long we wait."""

    hosts: tuple[tuple[str, int], ...]
    """Several for a database that moves between them: the one that can be written is taken."""

    user: str
    database: str
    password_file: Path | None = None
    """Read again for each connection, so that a password can be changed."""

    tls: TlsMode = "verify-full"
    authorities: Path | None = None
    """Whose certificates the server may show. None: those that the machine trusts."""

    certificate: Path | None = None
    key: Path | None = None
    connect_timeout: float = CONNECT_TIMEOUT
    timeout: float = TIMEOUT
    """Seconds for an answer. The database gives up at the same time."""

    connections: int = CONNECTIONS
    """How many a process opens at the most, beside the one that listens for changes."""

    def __str__(self) -> str:
        hosts = ",".join(_host_and_port(*place) for place in self.hosts)
        return f"postgresql://{self.user}@{hosts}/{self.database}"

    @classmethod
    def parse(cls, url: str) -> DatabaseAddress:
        """Raises `ValueError` with what is wrong and what would be right."""
        parts = urlsplit(url)
        account, _, places = parts.netloc.rpartition("@")
        user, has_password, _ = account.partition(":")
        if has_password:
            raise ValueError(
                "a URL of a database is no place for a password: write it to a file, and name that with "
                "`?password_file=PATH`"
            )
        database = unquote(parts.path.removeprefix("/"))
        if not user or not database or "/" in database:
            raise ValueError(f"a store in PostgreSQL needs a user and a database: {FORM}")
        return cls._with(_hosts(places), unquote(user), database, _parameters(parts.query))

    @classmethod
    def _with(
        cls, hosts: tuple[tuple[str, int], ...], user: str, database: str, given: dict[str, str]
    ) -> DatabaseAddress:
        socket = given.get("host", "")
        hosts = ((socket, hosts[0][1]),) if socket else hosts
        paths = {name: Path(given[name]) for name in _PATHS if name in given}
        if ("sslcert" in paths) != ("sslkey" in paths):
            raise ValueError("`sslcert` and `sslkey` belong together: give both or none")
        return cls(
            hosts=hosts,
            user=user,
            database=database,
            password_file=paths.get("password_file"),
            tls=_tls(given.get("sslmode", ""), hosts),
            authorities=paths.get("sslrootcert"),
            certificate=paths.get("sslcert"),
            key=paths.get("sslkey"),
            connect_timeout=_seconds(given, "connect_timeout", CONNECT_TIMEOUT),
            timeout=_seconds(given, "timeout", TIMEOUT),
            connections=_count(given, "connections", CONNECTIONS),
        )

    def password(self) -> str | None:
        """Raises `Unusable` if the file cannot be read."""
        if self.password_file is None:
            return None
        try:
            return self.password_file.read_text("utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise Unusable(f"{self.password_file}: the file of the password cannot be read: {_reason(error)}") from None

    def tls_context(self) -> ssl.SSLContext | Literal[False]:
        """How the server is verified. Raises `Unusable` if a file cannot be read."""
        if self.tls == "disable":
            return False
        try:
            context = ssl.create_default_context(cafile=self.authorities)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except OSError as error:  # an SSLError is one
            files = ", ".join(str(path) for path in (self.authorities, self.certificate, self.key) if path is not None)
            raise Unusable(f"{files}: cannot be used for TLS with the database: {_reason(error)}") from None
        context.check_hostname = self.tls == "verify-full"
        if self.tls == "require":
            context.verify_mode = ssl.CERT_NONE
        return context


_PATHS: Final = ("password_file", "sslrootcert", "sslcert", "sslkey")


def _hosts(places: str) -> tuple[tuple[str, int], ...]:
    return tuple(_place(place) for place in places.split(",")) if places else (("/run/postgresql", PORT),)


def _place(place: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{place}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None:
        raise ValueError(f"{place!r} is no host of a database: write HOST or HOST:PORT, several with commas between")
    return host, PORT if port is None else port


def _parameters(query: str) -> dict[str, str]:
    given = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(given.keys() - set(_PARAMETERS))
    if unknown:
        likely = get_close_matches(unknown[0].lower(), _PARAMETERS, n=1)
        hint = f"did you mean `{likely[0]}`?" if likely else f"there are {', '.join(_PARAMETERS)}"
        raise ValueError(f"a store in PostgreSQL has no parameter {unknown[0]!r}: {hint}")
    return given


def _tls(mode: str, hosts: tuple[tuple[str, int], ...]) -> TlsMode:
    """Beyond this machine the server is verified, unless somebody says otherwise."""
    for known in get_args(TlsMode):
        if mode == known:
            return known  # type: ignore[no-any-return]
    if mode:
        raise ValueError(f"there is no sslmode {mode!r}: there are {', '.join(get_args(TlsMode))}")
    return "disable" if all(_is_here(host) for host, _ in hosts) else "verify-full"


def _is_here(host: str) -> bool:
    return host.startswith("/") or is_loopback(host)


def _seconds(given: dict[str, str], name: str, default: float) -> float:
    try:
        seconds = float(given.get(name, default))
    except ValueError:
        seconds = 0
    if not 0 < seconds < float("inf"):
        raise ValueError(f"`{name}` is a number of seconds above 0, not {given[name]!r}")
    return seconds


def _count(given: dict[str, str], name: str, default: int) -> int:
    text = given.get(name, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"`{name}` is a number above 0, not {text!r}")
    return int(text)


def _host_and_port(host: str, port: int) -> str:
    return host if host.startswith("/") else f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()
