"""The names of what a control plane has, asked quickly and remembered for some seconds: for completion in shells."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from cp.cli.connection import ApiAccess
from cp.cli.private_files import replace_file
from cp.client.client import Client

_PATIENCE: Final = 1.0
_FRESH: Final = 10.0
_MOST: Final = "1000"


def known_names(access: ApiAccess, path: str) -> Sequence[str]:
    """The first thousand names of a list. Raises whatever goes wrong."""
    file = _file(access, path)
    with suppress(OSError, ValueError):
        if time.time() - file.stat().st_mtime < _FRESH:
            return [str(name) for name in json.loads(file.read_text(encoding="utf-8"))]
    client = Client(access.address, _PATIENCE, access.credentials)
    names = [str(item["name"]) for item in client.answer(path, ["items"], size=_MOST)["items"]]
    with suppress(OSError):
        _remember(file, names)
    return names


def _file(access: ApiAccess, path: str) -> Path:
    """A file for each control plane and caller: what one may see is not for another."""
    shown = access.credentials
    key = f"{access.address}\n{sorted(shown.headers().items())}\n{shown.client_certificate}\n{path}"
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")  # noqa: TID251  # where caches are
    return Path(home) / "koguma" / f"names-{sha256(key.encode()).hexdigest()[:32]}.json"


def _remember(file: Path, names: Sequence[str]) -> None:
    for old in file.parent.glob("names-*.json"):
        if time.time() - old.stat().st_mtime >= _FRESH:
            old.unlink(missing_ok=True)
    replace_file(file, json.dumps(names))
