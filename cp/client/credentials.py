"""What a client of the HTTP API shows, and whom it trusts."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cp.client.problem import Problem

LARGEST: Final = 64 * 1024
"""Bytes of a file with a token. A control plane takes 16 KiB of them."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A token or the file that it is in, what else shows who calls, and the authority that the control plane's
    certificate has to be of."""

    token: str = field(default="", repr=False)
    token_file: str = ""
    """Read again for each client, so that a token can be replaced."""

    authority: str = ""
    """PEM; empty: what the machine trusts."""

    verifies: bool = True
    authority_option: str = "--ca-cert-file"
    """How a command line names the authority."""

    address_option: str = "--address"
    """How it names the control plane. Empty: without an option."""

    issuing_command: str = "koguma generate user-token"
    """What makes a token of this sort."""

    client_certificate: str = ""
    """The file of a certificate that is shown over TLS, and below that of its key."""

    client_key: str = ""
    further_headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Names and values, such as what is in front of a control plane wants. There may be secrets in them."""

    @property
    def is_empty(self) -> bool:
        """Whether there is no token."""
        return not self.token and not self.token_file

    def current_token(self) -> str:
        """The token as it is now; empty if there is none. Raises `Problem`."""
        if not self.token_file:
            return self.token.strip()
        token = _text(Path(self.token_file), "token").strip()
        if not token:
            raise Problem(f"{self.token_file} has no token in it", f"{self.issuing_command} makes one.")
        if not token.isascii() or not token.isprintable() or " " in token:
            raise Problem(f"{self.token_file} has something else in it than a token")
        return token

    def headers(self) -> Mapping[str, str]:
        """Their names in lower case. A token goes before another header of its name. Raises `Problem`."""
        token = self.current_token()
        further = {name.lower(): value for name, value in self.further_headers}
        return further | ({"authorization": f"Bearer {token}"} if token else {})

    def context(self) -> ssl.SSLContext:
        """Raises `Problem` if the authority or the client's certificate is none."""
        try:
            context = ssl.create_default_context(cadata=self.authority or None)
        except ssl.SSLError:
            raise Problem(
                "what the control plane's certificate is to be verified with is no certificate in PEM"
            ) from None
        if not self.verifies:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.client_certificate:
            self._show_certificate(context)
        return context

    def _show_certificate(self, context: ssl.SSLContext) -> None:
        files = f"the certificate of the client in {self.client_certificate} with the key in {self.client_key}"
        try:
            context.load_cert_chain(self.client_certificate, self.client_key, password="")  # or OpenSSL asks for it
        except ssl.SSLError:
            hint = "Both are in PEM, the key is that of the certificate, and no password protects it."
            raise Problem(f"{files} cannot be used", hint) from None
        except OSError as error:
            raise Problem(f"{files} cannot be read: {(error.strerror or str(error)).lower()}") from None


NO_CREDENTIALS: Final = Credentials()


def authority_in(file: Path) -> str:
    """The certificates in a file. Raises `Problem`."""
    text = _text(file, "certificate")
    if "-----BEGIN CERTIFICATE-----" not in text:
        raise Problem(f"{file} has no certificate in PEM in it", "Copy koguma-cp-ca.crt from the control plane.")
    return text


def _text(file: Path, content: str) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            return opened.read(LARGEST)
    except UnicodeDecodeError:
        raise Problem(f"{file} has no {content} in it, but something else than text") from None
    except OSError as error:
        raise Problem(f"{file} cannot be read: {(error.strerror or str(error)).lower()}") from None
