"""`Database`: connections to PostgreSQL, and what goes wrong with them in words for an operator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final, TypeAlias

import asyncpg
from asyncpg.connect_utils import SessionAttribute
from asyncpg.pool import PoolConnectionProxy

from cp.store.port import StoreUnreachable, Unusable, WritesRefused
from cp.store.postgres.address import DatabaseAddress

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]"

LOST: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a question that meets the server's farewell
    OSError,  # a TimeoutError is one
)
"""What is raised when a connection cannot be made, is cut, or does not answer in time."""

_READ_ONLY: Final = "this is a replica, or may only be read: name the one that can be written"

_REFUSALS: Final[dict[type[asyncpg.PostgresError], str]] = {
    asyncpg.InvalidAuthorizationSpecificationError: "is the password right, and may this user connect from here?",
    asyncpg.InvalidCatalogNameError: "make it first: CREATE DATABASE",
    asyncpg.InsufficientPrivilegeError: "make the user the owner of the database, or of a schema `koguma` in it",
    asyncpg.DiskFullError: "the disk of the database is full",
    asyncpg.TooManyConnectionsError: "raise max_connections there, or lower `connections` in the URL of the store",
    asyncpg.ReadOnlySQLTransactionError: _READ_ONLY,
    asyncpg.LockNotAvailableError: "somebody else has been writing for too long",
    asyncpg.QueryCanceledError: "it took too long",
    asyncpg.UndefinedTableError: "the tables were removed while the store was in use",
}
_IN_LIMITS: Final = (asyncpg.TooManyConnectionsError, asyncpg.ReadOnlySQLTransactionError)
"""What a server refuses that will take us soon: after a failover, or when others have gone."""

_KINDS: Final[dict[tuple[type[asyncpg.PostgresError], ...], type[Unusable]]] = {
    _IN_LIMITS: StoreUnreachable,
    (asyncpg.DiskFullError, asyncpg.InsufficientPrivilegeError): WritesRefused,
}

_WAITS_FOR_THE_DISK: Final = """
    SELECT set_config('synchronous_commit', CASE now_set WHEN 'off' THEN 'on' ELSE now_set END, false)
    FROM current_setting('synchronous_commit') AS now_set
"""
"""A commit must have reached the disk when it is answered, whatever the database is set to for others, now or later."""


class _Session(asyncpg.Connection):
    """A connection of which nothing is changed that would have to be undone for the next who uses it."""

    def __init__(self, protocol: Any, transport: asyncio.Transport, *arguments: Any) -> None:
        try:
            super().__init__(protocol, transport, *arguments)
        except Exception:  # a server that says nothing of itself, or nonsense; nobody else would hang up
            transport.abort()
            self._aborted = True
            raise

    async def reset(self, *, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109  # as it is called
        """What is not at the end of a transaction is of no use to anybody, and costs no round trip to find out."""
        if self.is_in_transaction():
            self.terminate()


class Database:
    """A database: a few connections for questions and writes, and others on demand."""

    def __init__(self, address: DatabaseAddress) -> None:
        self.address = address
        self._tls = address.tls_context()
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Keep connections until the block ends. Those that are in use then are given a moment."""
        pool = asyncpg.create_pool(
            min_size=0,
            max_size=self.address.connections,
            connect=self._connect,
            max_inactive_connection_lifetime=300,
        )
        self._pool = await pool
        try:
            yield
        finally:
            self._pool = None
            with suppress(TimeoutError, *LOST):
                await asyncio.wait_for(pool.close(), self.address.timeout)
            pool.terminate()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """One of the connections that are kept. Raises `StoreUnreachable` if there is none, or it is cut."""
        if self._pool is None:
            raise StoreUnreachable(f"{self.address}: the connections are closed")
        pool = self._pool
        with errors_of(self.address):
            connection = await self._acquired(pool)
            try:
                yield connection
            except TimeoutError:  # the answer may still come, and nobody would know to which question
                terminate(connection)
                raise
            finally:
                with suppress(*LOST):  # what the caller was told matters, and not how the connection ended
                    await pool.release(connection)

    async def _acquired(self, pool: asyncpg.Pool[asyncpg.Record]) -> PoolConnectionProxy[asyncpg.Record]:
        try:
            return await pool.acquire(timeout=self.address.connect_timeout)
        except TimeoutError as error:
            if pool.get_size() < pool.get_max_size():  # it is the database that keeps us waiting
                raise
            hint = "raise `connections` in the URL of the store"
            raise StoreUnreachable(f"{self.address}: all connections ({pool.get_size()}) are in use; {hint}") from error

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Connection]:
        """A connection of its own."""
        with errors_of(self.address):
            connection = await self._connect()
            try:
                yield connection
            finally:
                with suppress(*LOST):
                    await connection.close(timeout=1)

    async def _connect(self, *_: object, **__: object) -> asyncpg.Connection[asyncpg.Record]:
        address = self.address
        hosts, ports = [host for host, _ in address.hosts], [port for _, port in address.hosts]
        password = address.password()
        with _speaking_as_postgres(address):
            connection = await asyncpg.connect(
                host=hosts,
                port=ports,
                user=address.user,
                database=address.database,
                password=password,
                ssl=self._tls,
                timeout=address.connect_timeout,
                command_timeout=address.timeout,
                target_session_attrs=SessionAttribute.read_write,
                connection_class=_Session,
                server_settings=_session(address.timeout),
            )
        try:
            await connection.execute(_WAITS_FOR_THE_DISK)
        except BaseException:
            connection.terminate()
            raise
        return connection


@contextmanager
def _speaking_as_postgres(address: DatabaseAddress) -> Iterator[None]:
    """Whoever answers at the address: what he says wrong is an outage, and no fault of ours."""
    try:
        yield
    except (*LOST, asyncpg.PostgresError):
        raise
    except Exception as error:
        reason = f"what answers does not speak as PostgreSQL does ({type(error).__name__}: {error})"
        raise StoreUnreachable(f"{address}: {reason}") from error


def _session(timeout: float) -> dict[str, str]:
    """What holds for our connections there: whoever is gone without a word must not hold the lock of writers."""
    milliseconds = str(round(timeout * 1000))
    return {
        "application_name": "koguma",
        "statement_timeout": milliseconds,
        "lock_timeout": milliseconds,
        "idle_in_transaction_session_timeout": milliseconds,
        "tcp_user_timeout": milliseconds,
        "tcp_keepalives_idle": "5",
        "tcp_keepalives_interval": "2",
        "tcp_keepalives_count": "3",
        "client_encoding": "UTF8",
        "timezone": "UTC",
        "default_transaction_isolation": "read committed",
    }


def terminate(connection: Connection) -> None:
    """End a connection without a word, unless it has ended already."""
    with suppress(asyncpg.InterfaceError):
        connection.terminate()


@contextmanager
def errors_of(address: DatabaseAddress) -> Iterator[None]:
    """What is wrong with a database, in words for the operator."""
    try:
        yield
    except asyncpg.ClientConfigurationError as error:
        raise Unusable(f"{address}: {error}") from error
    except LOST as error:
        raise StoreUnreachable(f"{address}: {_reason(error)}") from error
    except asyncpg.PostgresError as error:
        hint = next((hint for kind, hint in _REFUSALS.items() if isinstance(error, kind)), "")
        kind = next((kind for kinds, kind in _KINDS.items() if isinstance(error, kinds)), Unusable)
        raise kind(f"{address}: {error}" + (f"; {hint}" if hint else "")) from error


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer"
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return _READ_ONLY
    if isinstance(error, asyncpg.InternalClientError):
        return f"the connection was cut ({error})"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, OSError):
        return (error.strerror or str(error) or type(error).__name__).lower()
    return str(error) or type(error).__name__
