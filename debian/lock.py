"""Writes `constraints.txt`, the exact version of everything that Koguma needs, as it is installed here: `make lock`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from debian.installation import ROOT, needed

FILE: Final = ROOT / "constraints.txt"
_HEAD: Final = """\
# The versions with which this revision was tested: pip install -c constraints.txt 'PATH[cp]'
# `make lock` writes them. Versions alone: where packages come from is the business of who installs them.
"""


def locked() -> str:
    return _HEAD + "".join(f"{line}\n" for line in _lines())


def _lines() -> Iterator[str]:
    return (f"{name}=={found.version}" for name, found in needed(["cp"]).items())


def main() -> None:
    Path(FILE).write_text(locked())


if __name__ == "__main__":
    main()
