"""A client of the HTTP API shows its token, and knows whom it trusts."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from cp.client.client import Unreachable, Untrusted, connect
from cp.client.credentials import Credentials, authority_in
from cp.client.problem import Problem
from cp.serving.server_certificate import ServerCertificate
from tests.test_server_certificate import given

PATIENCE = 20.0


@contextmanager
def answering(folder: Path | None, *names: str) -> Iterator[tuple[str, list[str]]]:
    """A server, with TLS if there is a folder for its certificate; and the tokens that it was shown."""
    shown = list[str]()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown.append(self.headers.get("authorization", ""))
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Nobody reads it."""

    class Server(http.server.HTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """A handshake that fails is what is tested."""

    with Server(("127.0.0.1", 0), Handler) as server:
        if folder is not None:
            context = ServerCertificate.begun(given(folder, *names)).context
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"{'http' if folder is None else 'https'}://127.0.0.1:{server.server_port}", shown
        finally:
            server.shutdown()
            thread.join(PATIENCE)


def trusting(folder: Path, token_file: str = "") -> Credentials:
    return Credentials(authority=authority_in(folder / "ca.crt"), token_file=token_file)


def test_a_token_is_read_anew_for_each_client(tmp_path: Path) -> None:
    (token := tmp_path / "token").write_text("one\n")
    with answering(tmp_path, "127.0.0.1") as (address, shown):
        credentials = trusting(tmp_path, token_file=str(token))
        for text in ("one", "two"):
            token.write_text(text)
            with connect(address, credentials=credentials) as client:
                client.get("/")
        with connect(address, credentials=trusting(tmp_path)) as client:
            client.get("/")

    assert shown == ["Bearer one", "Bearer two", ""]


def test_an_authority_that_did_not_sign_is_told_with_where_to_find_the_right_one(tmp_path: Path) -> None:
    other = Credentials(authority=trustme.CA().cert_pem.bytes().decode())
    with answering(tmp_path, "127.0.0.1") as (address, shown):
        for credentials in (other, Credentials()):
            with (
                pytest.raises(Untrusted, match="is not trusted") as raised,
                connect(address, credentials=credentials) as client,
            ):
                client.get("/")
            assert "koguma-cp-ca.crt" in raised.value.hint
            assert not isinstance(raised.value, Unreachable), "waiting does not help"

    assert shown == []


def test_a_certificate_for_another_name_is_told(tmp_path: Path) -> None:
    with (
        answering(tmp_path, "cp.example") as (address, _),
        pytest.raises(Untrusted, match="is for another name"),
        connect(address, credentials=trusting(tmp_path)) as client,
    ):
        client.get("/")


def test_tls_to_a_port_without_it_is_told(tmp_path: Path) -> None:
    with (
        answering(None) as (address, _),
        pytest.raises(Untrusted, match="does not speak TLS"),
        connect(address.replace("http://", "https://")) as client,
    ):
        client.get("/")


def test_whoever_says_so_verifies_nothing(tmp_path: Path) -> None:
    with (
        answering(tmp_path, "cp.example") as (address, _),
        connect(address, credentials=Credentials(verifies=False)) as client,
    ):
        assert client.get("/") == {}


def test_a_file_without_a_certificate_is_told(tmp_path: Path) -> None:
    (file := tmp_path / "ca.crt").write_text("nothing")

    with pytest.raises(Problem, match="has no certificate in PEM in it"):
        authority_in(file)


def test_a_token_is_in_no_representation() -> None:
    assert "secret" not in repr(Credentials(token="secret"))
