"""Manual pages of all commands, made from what their help is made from: `python -m docs.manual FOLDER`.

The Debian package has them. `koguma get` is `koguma-get(1)`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from cp.cli.commands import COMMANDS, Words
from cp.cli.examples import EXAMPLES
from cp.cli.main import command

_SECTION: Final = 1
_STATUSES: Final = "0 if it succeeded, 1 if it failed, 2 if the command line is wrong."
_SETTING: Final = re.compile(r" \[[A-Z_]+\]$")


def manual_pages(version: str) -> Mapping[str, str]:
    """The text of each page by the name of its file."""
    pages = {"koguma": _overview(version)} | {_title(words): _page(words, version) for words in COMMANDS}
    return {f"{name}.{_SECTION}": "".join(f"{line}\n" for line in lines) for name, lines in pages.items()}


def _overview(version: str) -> Iterator[str]:
    yield from _head("koguma", "a control plane for Envoy that explains itself", version)
    yield from (".SH SYNOPSIS", ".B koguma", ".I COMMAND", "[OPTIONS]", ".SH COMMANDS")
    for words, entry in COMMANDS.items():
        yield from (".TP", f".BR {_escaped(_title(words))} ({_SECTION})", _escaped(entry.summary))
    yield from (".SH EXIT STATUS", _escaped(_STATUSES))


def _page(words: Words, version: str) -> Iterator[str]:
    parameters = command(words).params
    yield from _head(_title(words), COMMANDS[words].summary.rstrip("."), version)
    yield from (".SH SYNOPSIS", f".B {_escaped(' '.join(('koguma', *words)))}", "[OPTIONS]")
    yield from (_escaped(each.metavar) for each in parameters if _is_argument(each))
    yield ".SH DESCRIPTION"
    for number, paragraph in enumerate((command(words).help or "").split("\n\n")):
        yield from (() if number == 0 else (".PP",))
        yield _escaped(" ".join(paragraph.split()))
    yield ".SH OPTIONS"
    for each in parameters:
        if not getattr(each, "hidden", False):
            yield from (".TP", f".B {_escaped(_names(each))}", _escaped(_text(each)))
    yield ".SH EXAMPLES"
    for example in EXAMPLES[words]:
        yield from (
            _escaped(example.purpose),
            ".PP",
            ".nf",
            ".RS",
            _escaped(f"koguma {example.line}"),
            ".RE",
            ".fi",
            ".PP",
        )
    yield from (".SH EXIT STATUS", _escaped(_STATUSES), ".SH SEE ALSO", f".BR koguma ({_SECTION})")


def _head(title: str, summary: str, version: str) -> Iterator[str]:
    yield f'.TH {title.upper()} {_SECTION} "" "koguma {version}" "Koguma"'
    yield from (".SH NAME", f"{_escaped(title)} \\- {_escaped(summary)}")


def _title(words: Words) -> str:
    return "-".join(("koguma", *words))


def _is_argument(parameter: Any) -> bool:
    return not parameter.opts[0].startswith("-")


def _names(parameter: Any) -> str:
    if _is_argument(parameter):
        return str(parameter.metavar)
    value = "" if getattr(parameter, "is_flag", False) else f" {parameter.metavar or 'VALUE'}"
    return f"{', '.join((*parameter.opts, *parameter.secondary_opts))}{value}"


def _text(parameter: Any) -> str:
    text = _SETTING.sub("", parameter.help or "")
    variables = f" Environment: {', '.join(parameter.envvar)}." if getattr(parameter, "envvar", None) else ""
    choices = ", ".join(item.value for item in parameter.shell_complete(None, "") if item.type == "plain")
    return f"{text}{f' One of: {choices}.' if choices else ''}{variables}"


def _escaped(text: str) -> str:
    """A text as roff reads it: no character of it begins a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def write(folder: Path, version: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in manual_pages(version).items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    from cp.version import VERSION

    write(Path(sys.argv[1]), VERSION)
