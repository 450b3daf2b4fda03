"""The corpus: small inputs, written by hand, that once stopped or slowed the control plane, or nearly did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "corpus"


def inputs(target: str) -> Iterator[Path]:
    folder = FOLDER / target
    return iter(sorted(folder.iterdir())) if folder.is_dir() else iter(())
