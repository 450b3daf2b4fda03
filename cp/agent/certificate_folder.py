"""The folder from which the library of a gRPC client reads its certificate, its key and the roots that it trusts.

All three are written as one generation, in a folder of its own, and a link is moved to it: whoever reads finds the key
of the certificate beside it. See record 0063.
"""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cp.client.problem import Problem

CURRENT: Final = "current"
"""The link to the newest generation."""

CERTIFICATE: Final = "certificate.pem"
KEY: Final = "key.pem"
AUTHORITIES: Final = "authorities.pem"
_GENERATION: Final = ".generation-"
_FEW: Final = 8


@dataclass(frozen=True, slots=True)
class ClientSecrets:
    """What a gRPC client speaks mTLS with, in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)
    authorities: bytes

    @property
    def files(self) -> dict[str, bytes]:
        return {CERTIFICATE: self.certificate, KEY: self.key, AUTHORITIES: self.authorities}


@dataclass(frozen=True, slots=True)
class CertificateFolder:
    path: Path

    @property
    def file_paths(self) -> dict[str, str]:
        """Where the library finds what it reads, by the names that the control plane has for it."""
        current = self.path.absolute() / CURRENT
        files = {"certificate": CERTIFICATE, "key": KEY, "authorities": AUTHORITIES}
        return {name: str(current / file) for name, file in files.items()}

    def write(self, client_secrets: ClientSecrets) -> None:
        """Put new files in the place of the old ones, all at once. Only their owner can read them. Raises `Problem`."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            previous = self._current()
            generation = self._generation(client_secrets)
            self._link(generation)
        except OSError as error:
            raise Problem(f"certificates cannot be written to {self.path}: {error.strerror or error}") from None
        self._remove_all_but(generation.name, previous)  # who reads the files of before may go on

    def _generation(self, client_secrets: ClientSecrets) -> Path:
        folder = self.path / f"{_GENERATION}{secrets.token_hex(_FEW)}"
        folder.mkdir(mode=0o700)
        for name, content in client_secrets.files.items():
            descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as out:
                out.write(content)
        return folder

    def _link(self, generation: Path) -> None:
        new = self.path / f".{CURRENT}-{secrets.token_hex(_FEW)}"
        new.symlink_to(generation.name)
        new.replace(self.path / CURRENT)

    def _current(self) -> str:
        """The name of the newest generation; empty if there is none."""
        try:
            return (self.path / CURRENT).readlink().name
        except OSError:
            return ""

    def _remove_all_but(self, *names: str) -> None:
        with suppress(OSError):
            for folder in list(self.path.glob(f"{_GENERATION}*")):
                if folder.name not in names:
                    shutil.rmtree(folder, ignore_errors=True)
