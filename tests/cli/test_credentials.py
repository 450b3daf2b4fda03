"""A client of the HTTP API shows its token, and knows whom it trusts."""

from __future__ import annotations

import http.server
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from cp.client.client import Client
from cp.client.credentials import Credentials, authority_in
from cp.client.failures import Unreachable, Untrusted
from cp.client.problem import Problem
from cp.serving.server_certificate import ServerCertificate
from tests.test_server_certificate import given

PATIENCE = 20.0


@contextmanager
def answering(
    folder: Path | None, *names: str, header: str = "authorization", clients: trustme.CA | None = None
) -> Iterator[tuple[str, list[str]]]:
    """A server, with TLS if there is a folder for its certificate; and the tokens that it was shown.

    It may want a certificate of its clients.
    """
    shown = list[str]()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown.append(self.headers.get(header, ""))
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
            if clients is not None:
                clients.configure_trust(context)
                context.verify_mode = ssl.CERT_REQUIRED
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
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
            Client(address, credentials=credentials).get("/")
        Client(address, credentials=trusting(tmp_path)).get("/")

    assert shown == ["Bearer one", "Bearer two", ""]


def test_an_authority_that_did_not_sign_is_told_with_where_to_find_the_right_one(tmp_path: Path) -> None:
    other = Credentials(authority=trustme.CA().cert_pem.bytes().decode())
    with answering(tmp_path, "127.0.0.1") as (address, shown):
        for credentials in (other, Credentials()):
            with pytest.raises(Untrusted, match="is not trusted") as raised:
                Client(address, credentials=credentials).get("/")
            assert "koguma-cp-ca.crt" in raised.value.hint
            assert not isinstance(raised.value, Unreachable), "waiting does not help"

    assert shown == []


def test_a_certificate_for_another_name_is_told(tmp_path: Path) -> None:
    with (
        answering(tmp_path, "cp.example") as (address, _),
        pytest.raises(Untrusted, match="is for another name"),
    ):
        Client(address, credentials=trusting(tmp_path)).get("/")


def test_tls_to_a_port_without_it_is_told(tmp_path: Path) -> None:
    with (
        answering(None) as (address, _),
        pytest.raises(Untrusted, match="does not speak TLS"),
    ):
        Client(address.replace("http://", "https://")).get("/")


def test_whoever_says_so_verifies_nothing(tmp_path: Path) -> None:
    with answering(tmp_path, "cp.example") as (address, _):
        assert Client(address, credentials=Credentials(verifies=False)).get("/") == {}


def test_a_file_without_a_certificate_is_told(tmp_path: Path) -> None:
    (file := tmp_path / "ca.crt").write_text("nothing")

    with pytest.raises(Problem, match="has no certificate in PEM in it"):
        authority_in(file)


def test_the_certificate_of_a_client_is_shown_to_who_wants_it(tmp_path: Path) -> None:
    clients = trustme.CA()
    (pem := tmp_path / "client.pem").write_bytes(clients.issue_cert("ann").private_key_and_cert_chain_pem.bytes())
    with answering(tmp_path, "127.0.0.1", clients=clients) as (address, shown):
        with pytest.raises(Unreachable):
            Client(address, credentials=trusting(tmp_path)).get("/")
        credentials = replace(trusting(tmp_path), client_certificate=str(pem), client_key=str(pem))
        Client(address, credentials=credentials).get("/")

    assert shown == [""]


@pytest.mark.parametrize(("content", "told"), [(None, "cannot be read"), ("nothing", "cannot be used")])
def test_the_certificate_of_a_client_that_is_none_is_told(tmp_path: Path, content: str | None, told: str) -> None:
    pem = tmp_path / "client.pem"
    if content is not None:
        pem.write_text(content)

    with pytest.raises(Problem, match=told):
        Credentials(client_certificate=str(pem), client_key=str(pem)).context()


def test_nobody_is_asked_for_the_password_of_a_key(tmp_path: Path) -> None:
    leaf = trustme.CA().issue_cert("ann")
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    (pem := tmp_path / "client.pem").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
        + leaf.cert_chain_pems[0].bytes()
    )

    with pytest.raises(Problem, match="cannot be used"):
        Credentials(client_certificate=str(pem), client_key=str(pem)).context()


def test_further_headers_are_sent_and_a_token_goes_before_one_of_its_name() -> None:
    with answering(None, header="x-tenant") as (address, shown):
        further = (("X-Tenant", "shop"), ("Authorization", "Basic of-another"))
        Client(address, credentials=Credentials(further_headers=further)).get("/")

    assert shown == ["shop"]
    assert Credentials(further_headers=further).headers()["authorization"] == "Basic of-another"
    assert Credentials(token="mine", further_headers=further).headers()["authorization"] == "Bearer mine"


def test_a_token_is_in_no_representation() -> None:
    assert "secret" not in repr(Credentials(token="secret", further_headers=(("x-key", "secret"),)))


@pytest.mark.parametrize(
    ("address", "hint"),
    [
        ("http://localhost:5681", "Start one with `koguma run`, or say where it is with --address or KOGUMA_ADDRESS."),
        ("http://192.0.2.1:5681", "is it at https://192.0.2.1:5682?"),
        ("http://[2001:db8::1]:5681", "is it at https://[2001:db8::1]:5682?"),
        ("https://192.0.2.1:5682", "Start one"),
    ],
)
def test_who_reaches_nobody_is_told_where_a_control_plane_is(
    monkeypatch: pytest.MonkeyPatch, address: str, hint: str
) -> None:
    with pytest.raises(Unreachable) as raised:
        reaching_nobody(monkeypatch, address, Credentials())

    assert hint in raised.value.hint


def test_options_are_called_as_the_command_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("http://localhost:5681", "http://192.0.2.1:5681"):
        with pytest.raises(Unreachable) as raised:
            reaching_nobody(monkeypatch, address, Credentials(address_option="--cp-address"))
        assert "--cp-address or KOGUMA_ADDRESS" in raised.value.hint
        with pytest.raises(Unreachable) as raised:
            reaching_nobody(monkeypatch, address, Credentials(address_option=""))
        assert raised.value.hint == "Is the address right, and does it run?"


def reaching_nobody(monkeypatch: pytest.MonkeyPatch, address: str, credentials: Credentials) -> None:
    def refused(*_: object, **__: object) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr("socket.create_connection", refused)
    Client(address, credentials=credentials).get("/")


@pytest.mark.parametrize("command", ["koguma generate user-token", "koguma generate dataplane-token"])
def test_who_has_an_empty_file_is_told_what_makes_such_a_token(tmp_path: Path, command: str) -> None:
    (file := tmp_path / "token").touch()

    with pytest.raises(Problem) as raised:
        Credentials(token_file=str(file), issuing_command=command).current_token()

    assert raised.value.hint == f"{command} makes one."


def test_what_a_port_of_something_else_says_is_not_printed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(b"\0\0\x1e\4\0\0\0\0\0\x1b[2J\r\n")

        with ThreadPoolExecutor(1) as threads:
            answered = threads.submit(answer)
            address = f"http://127.0.0.1:{server.getsockname()[1]}"
            with pytest.raises(Unreachable) as raised:
                Client(address).get("/")
            answered.result(PATIENCE)

    assert raised.value.message == f"{address} does not speak HTTP"
    assert "Proxies have another one (5678)" in raised.value.hint
