"""Pictures of the terminal in the documentation: what commands really print, drawn as SVG. `make docs` writes them.

The commands read the files of the demo, so they print the same each time.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

ROOT: Final = Path(__file__).resolve().parents[1]
PICTURES: Final = ROOT / "docs" / "pictures"
_COLUMNS: Final = 110

COMMANDS: Final[Mapping[str, Sequence[str]]] = {
    "explain": ("explain", "frontend-2", "GET http://backend:80/slow-endpoint", "-f", "examples/demo/resources"),
    "inspect-policy": ("inspect", "meshtimeout", "timeout-on-backend-route", "-f", "examples/demo/resources"),
}
"""What each picture shows."""

_SVG: Final = """\
<svg viewBox="0 0 {width} {terminal_height}" xmlns="http://www.w3.org/2000/svg" role="img">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Consolas, monospace; \
font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs>{lines}</defs>
<rect width="{width}" height="{terminal_height}" rx="8" fill="#0c0c0c"/>
<g transform="translate(9, 9)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""Nothing in it comes from elsewhere, fonts included."""


def picture(name: str) -> str:
    """What a command prints on a terminal, as SVG."""
    words = COMMANDS[name]
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    typed = " ".join(f"'{word}'" if " " in word else word for word in words)
    console.print(Text(f"$ koguma {typed}", "bold"))
    console.print(Text.from_ansi(_printed(words).decode().replace("\r\n", "\n")))
    return console.export_svg(code_format=_SVG, unique_id=f"koguma-{name}")


def _printed(words: Sequence[str]) -> bytes:
    ours, child_end = os.openpty()
    termios.tcsetwinsize(child_end, (50, _COLUMNS))
    without = {"COLUMNS", "NO_COLOR", "KOGUMA_ADDRESS", "KOGUMA_CONTEXT"}
    inherited = {name: value for name, value in os.environ.items() if name not in without}  # noqa: TID251  # the command's
    environment = {**inherited, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    command = [sys.executable, "-m", "cp", *words]
    with subprocess.Popen(command, stdout=child_end, cwd=ROOT, env=environment) as running:
        os.close(child_end)
        text = _read(ours)
        if running.wait() != 0:
            raise RuntimeError(f"koguma {' '.join(words)} failed")
    return text


def _read(descriptor: int) -> bytes:
    """All that comes; a terminal that nobody writes to any more is an error on Linux."""
    chunks = []
    try:
        while chunk := os.read(descriptor, 1 << 16):
            chunks.append(chunk)
    except OSError:
        pass
    os.close(descriptor)
    return b"".join(chunks)


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    for name in COMMANDS:
        file, text = PICTURES / f"{name}.svg", picture(name)
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
            print(f"wrote {file}")


if __name__ == "__main__":
    main()
