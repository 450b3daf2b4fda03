"""How a store in PostgreSQL finds its server, trusts it, and shows who it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from cp.store.port import Unusable
from cp.store.postgres.address import DatabaseAddress
from cp.store.postgres.store import PostgresStore
from tests.store.harness import put, run
from tests.support.loopback import new_host
from tests.support.postgres import FAST, PostgresServer, needs_postgres, postgres_server
from tests.support.waiting import eventually_on_loop

PARSED = {
    "postgresql://me@db/mesh": ((("db", 5432),), "verify-full"),
    "postgres://me@db:6000/mesh": ((("db", 6000),), "verify-full"),
    "postgresql://me@localhost/mesh": ((("localhost", 5432),), "disable"),
    "postgresql://me@127.0.0.9:1/mesh?sslmode=require": ((("127.0.0.9", 1),), "require"),
    "postgresql://me@[::1]:6000/mesh": ((("::1", 6000),), "disable"),
    "postgresql://me@/mesh": ((("/run/postgresql", 5432),), "disable"),
    "postgresql://me@/mesh?host=/tmp/here": ((("/tmp/here", 5432),), "disable"),  # noqa: S108  # nothing is there
    "postgresql://me@a,b:6000,localhost/mesh": ((("a", 5432), ("b", 6000), ("localhost", 5432)), "verify-full"),
    "postgresql://me@db/mesh?sslmode=disable": ((("db", 5432),), "disable"),
}

REFUSED = {
    "postgresql://db/mesh": "needs a user and a database",
    "postgresql://me@db": "needs a user and a database",
    "postgresql://me@db/mesh/more": "needs a user and a database",
    "postgresql://me:secret@db/mesh": "no place for a password: write it to a file",
    "postgresql://me@db/mesh?sslMode=require": "has no parameter 'sslMode': did you mean `sslmode`?",
    "postgresql://me@db/mesh?password=x": "has no parameter 'password': did you mean `password_file`?",
    "postgresql://me@db/mesh?bears=1": "has no parameter 'bears': there are host, password_file",
    "postgresql://me@db/mesh?sslmode=prefer": "there is no sslmode 'prefer': there are disable, require",
    "postgresql://me@db/mesh?sslcert=/a": "belong together",
    "postgresql://me@db/mesh?timeout=soon": "`timeout` is a number of seconds above 0, not 'soon'",
    "postgresql://me@db/mesh?timeout=nan": "`timeout` is a number of seconds above 0, not 'nan'",
    "postgresql://me@db/mesh?connections=0": "`connections` is a number above 0, not '0'",
    "postgresql://me@db:port/mesh": "'db:port' is no host of a database",
    "postgresql://me@,/mesh": "'' is no host of a database",
}


@pytest.mark.parametrize(("url", "parsed"), PARSED.items())
def test_a_url_names_servers_and_how_they_are_verified(url: str, parsed: tuple[object, str]) -> None:
    address = DatabaseAddress.parse(url)

    assert (address.hosts, address.tls) == parsed


@pytest.mark.parametrize(("url", "reason"), REFUSED.items())
def test_a_url_that_says_something_else_is_refused(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)) as refusal:
        DatabaseAddress.parse(url)
    assert "secret" not in str(refusal.value)


@dataclass(frozen=True)
class Locked:
    """A server that lets in who has a certificate and a password, and what is needed for that."""

    server: PostgresServer
    folder: Path

    def url(self, **options: object) -> str:
        given = {
            "sslmode": "verify-full",
            "sslrootcert": self.folder / "ca.pem",
            "sslcert": self.folder / "client.pem",
            "sslkey": self.folder / "client.key",
            "password_file": self.folder / "password",
        } | options
        query = "&".join(f"{name}={value}" for name, value in given.items() if value != "")
        return f"postgresql://locked@{self.server.address}/{self.server.last_database}?{query}"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    needs_postgres(with_tls=True)
    folder, authority = tmp_path_factory.mktemp("locked"), trustme.CA()

    def prepare(server: PostgresServer) -> None:
        certificate = authority.issue_cert(server.address.host)
        server.keep("server.crt", b"".join(blob.bytes() for blob in certificate.cert_chain_pems).decode())
        server.keep("server.key", certificate.private_key_pem.bytes().decode())
        server.keep("ca.crt", authority.cert_pem.bytes().decode())
        everywhere = "127.0.0.0/8"
        server.keep(
            "pg_hba.conf",
            f"host all koguma {everywhere} trust\nhostssl all locked {everywhere} scram-sha-256 clientcert=verify-ca\n",
        )

    tls = {"ssl": "on", "ssl_cert_file": "server.crt", "ssl_key_file": "server.key", "ssl_ca_file": "ca.crt"}
    with postgres_server({**FAST, **tls}, prepare) as server:
        client = authority.issue_cert("client")
        authority.cert_pem.write_to_path(folder / "ca.pem")
        trustme.CA().cert_pem.write_to_path(folder / "other-ca.pem")
        client.cert_chain_pems[0].write_to_path(folder / "client.pem")
        client.private_key_pem.write_to_path(folder / "client.key")
        (folder / "password").write_text("an open sesame\n")
        server.execute("CREATE ROLE locked LOGIN PASSWORD 'an open sesame'", "postgres")
        server.execute(f"ALTER DATABASE {server.new_database()} OWNER TO locked", "postgres")
        yield Locked(server, folder)


def test_who_verifies_the_server_and_shows_a_certificate_and_a_password_is_let_in(locked: Locked) -> None:
    async def scenario() -> None:
        store = await PostgresStore.open(locked.url())
        assert await store.write(put("a", 1)) > 0
        await store.close()

    run(scenario())


WRONG = {
    "another authority": ({"sslrootcert": "other-ca.pem"}, "certificate verify failed"),
    "the machine's authorities": ({"sslrootcert": ""}, "certificate verify failed"),
    "no certificate": ({"sslcert": "", "sslkey": ""}, "certificate"),
    "no password": ({"password_file": ""}, "password"),
    "a password that is not there": ({"password_file": "none"}, "the file of the password cannot be read"),
    "no encryption": ({"sslmode": "disable"}, "may this user connect from here"),
    "a certificate that is not there": ({"sslcert": "none"}, "cannot be used for TLS with the database"),
}


@pytest.mark.parametrize(("given", "reason"), WRONG.values(), ids=WRONG)
def test_who_has_something_else_is_told_what(locked: Locked, given: dict[str, str], reason: str) -> None:
    options = {
        name: locked.folder / value if "." in value or value == "none" else value for name, value in given.items()
    }

    with pytest.raises(Unusable, match=reason) as refusal:
        run(PostgresStore.open(locked.url(**options)))
    assert "sesame" not in str(refusal.value)


def test_a_server_under_another_name_is_only_trusted_where_names_are_not_asked_for(locked: Locked) -> None:
    host, port = locked.server.address

    async def open_and_close(url: str) -> None:
        await (await PostgresStore.open(url)).close()

    other = locked.url().replace(f"@{host}:{port}", f"@localhost:{port}")
    with pytest.raises(Unusable):
        run(open_and_close(other))
    run(open_and_close(locked.url(sslmode="verify-ca")))


def test_a_password_that_is_changed_is_used_for_the_next_connection(locked: Locked) -> None:
    async def scenario() -> None:
        store = await PostgresStore.open(locked.url(), backstop=0.1)
        await store.write(put("a", 1))
        (locked.folder / "password").write_text("another sesame")
        for statement in (
            "ALTER ROLE locked PASSWORD 'another sesame'",
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'locked'",
        ):
            locked.server.execute(statement, "postgres")
        await eventually_on_loop(lambda: store._listener.is_listening and store.outage == "")
        assert await store.write(put("a", 2)) > 0
        await store.close()

    try:
        run(scenario())
    finally:
        (locked.folder / "password").write_text("an open sesame")
        locked.server.execute("ALTER ROLE locked PASSWORD 'an open sesame'", "postgres")


def test_a_port_where_nobody_listens_is_named() -> None:
    host = new_host()
    with pytest.raises(Unusable, match=f"postgresql://me@{host}:1/mesh: nothing listens there"):
        run(PostgresStore.open(f"postgresql://me@{host}:1/mesh"))
