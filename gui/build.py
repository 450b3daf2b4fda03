"""Builds the page for browsers from `gui/` into `cp/gui`, unless what is there was built from the same sources.

Without node, or without what the page is built with, there is none.
The control plane runs all the same, and `/gui` says so.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
BUILT: Final = HERE.parent / "cp" / "gui"
_STAMP: Final = "made-from"


def sources() -> str:
    """A digest of all that the page is built from."""
    digest = hashlib.sha256()
    files = sorted(path for path in (HERE / "src").rglob("*") if path.is_file())
    for path in (HERE / "build.mjs", HERE / "package.json", *files):
        digest.update(f"{path.relative_to(HERE)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def is_current(built: Path = BUILT) -> bool:
    stamp = built / _STAMP
    return stamp.is_file() and stamp.read_text() == sources()


def fault() -> str:
    """Why the page cannot be built here; empty where it can."""
    if shutil.which("node") is None:
        return "there is no node here"
    if not (HERE / "node_modules" / "esbuild").is_dir():
        return "what it is built with is not installed (`make page` installs it, with npm)"
    return ""


def build(built: Path = BUILT) -> None:
    subprocess.run(["node", HERE / "build.mjs", built, sources()], check=True)


def main() -> None:
    if is_current():
        return
    if why := fault():
        state = "left as it was built before" if (BUILT / "index.html").is_file() else "not built"
        sys.stderr.write(f"The page for browsers is {state}: {why}.\n")
        return
    build()


if __name__ == "__main__":
    main()
