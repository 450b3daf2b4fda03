"""What can come next on a command line: `koguma completion` teaches shells to ask for it.

A shell asks when somebody presses a key. So an answer comes soon or not at all, and never with an error.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cp.cli.commands import COMMANDS, GROUPS, Words
from cp.cli.type_names import TYPES
from cp.model.names import DEFAULT_MESH

_SAFE: Final = re.compile(r"[A-Za-z0-9-][A-Za-z0-9._@:/-]*")
"""What every shell takes as it is, whoever chose the name."""

_TYPE, _NAME, _SUBJECT, _DATAPLANE, _MESH = "type", "name", "subject", "dataplane", "mesh"

_ARGUMENTS: Final[Mapping[Words, Sequence[str]]] = {
    ("get",): (_TYPE, _NAME),
    ("delete",): (_TYPE, _NAME),
    ("history",): (_TYPE, _NAME),
    ("inspect",): (_SUBJECT, _NAME),
    ("explain",): (_DATAPLANE,),
    ("render",): (_DATAPLANE,),
    ("log-level",): (_DATAPLANE,),
    ("migrate",): (_MESH,),
}
"""What the arguments of commands are, where that can be completed."""

_SUBJECTS: Final = ("dataplanes", "dataplane", "rules", "policies", "instances")
_OF_PROXIES: Final = frozenset({"rules", "policies"})
_PATHS: Final = frozenset({(), *COMMANDS, *GROUPS})
_LINE: Final = "--line"
"""Before a whole line as it is typed: bash splits words at colons, and so in the middle of a URL."""


def complete(words: Sequence[str]) -> None:
    """Print what can stand in the place of the last word, a line for each."""
    with suppress(Exception):  # nobody asked for a message while typing
        typed = _words_of(words[1]) if words[:1] == [_LINE] else words
        sys.stdout.write("".join(f"{text}\n" for text in completions(typed)))


def _words_of(line: str) -> Sequence[str]:
    """The words of a line behind the name of the program. Raises `ValueError` within quotes."""
    words = shlex.split(line)[1:]
    return [*words, ""] if line.endswith(" ") else words


def completions(words: Sequence[str]) -> Iterator[str]:
    *before, incomplete = words or ("",)
    candidates = dict.fromkeys(_candidates(before, incomplete))
    yield from (
        candidate for candidate in candidates if candidate.startswith(incomplete) and _SAFE.fullmatch(candidate)
    )


def _candidates(before: Sequence[str], incomplete: str) -> Iterable[str]:
    depth = next(depth for depth in range(min(len(before), 3), -1, -1) if tuple(before[:depth]) in _PATHS)
    path = tuple(before[:depth])
    if path not in COMMANDS:
        return [words[depth] for words in COMMANDS if words[:depth] == path] if depth == len(before) else ()
    return _typed(path, before[depth:]).candidates(incomplete)


@dataclass(frozen=True, slots=True)
class _Typed:
    """A command with what was typed behind it."""

    path: Words
    parameters: Sequence[Any]
    arguments: Sequence[str]
    options: Mapping[str, str]
    pending: Any = None
    """The option whose value comes next, if that is so."""

    def candidates(self, incomplete: str) -> Iterable[str]:
        if self.pending is not None:
            return self._values(self.pending)
        if incomplete.startswith("-"):
            visible = (parameter for parameter in self.parameters if not getattr(parameter, "hidden", False))
            return [
                name
                for parameter in visible
                for name in (*parameter.opts, *parameter.secondary_opts)
                if name.startswith("--")
            ]
        places = _ARGUMENTS.get(self.path, ())
        return self._of_place(places[len(self.arguments)]) if len(self.arguments) < len(places) else ()

    def _values(self, option: Any) -> Iterable[str]:
        from cp.cli.contexts import read_config  # noqa: PLC0415  # few values are in the file

        name = option.opts[0]
        if name == "--mesh":
            return self._stored("/meshes")
        if name == "--context" or (name == "--name" and self.path[0] == "config"):
            return read_config().control_planes
        return _choices(option)

    def _of_place(self, place: str) -> Iterable[str]:
        if place in {_TYPE, _SUBJECT}:
            return (*(_SUBJECTS if place == _SUBJECT else ()), *(names.plural for names in TYPES))
        if place == _MESH:
            return self._stored("/meshes")
        from cp.cli.types import folder_of, type_of  # noqa: PLC0415  # only for names

        kind = "dataplane" if place == _DATAPLANE or self.arguments[0] in _OF_PROXIES else self.arguments[0]
        return self._stored(folder_of(type_of(kind), self.options.get("--mesh", DEFAULT_MESH)))

    def _stored(self, path: str) -> Iterable[str]:
        """The names of resources at a path of the control plane that the command line means."""
        from cp.cli.connection import ConnectionOptions  # noqa: PLC0415  # only for names
        from cp.cli.known_names import known_names  # noqa: PLC0415  # the same

        fields = {"--address": "address", "--context": "context", "--token": "token"}
        files = {"--token-file": "token_file", "--ca-cert-file": "ca_cert_file"}
        typed: dict[str, Any] = {field: self.options[name] for name, field in fields.items() if name in self.options}
        typed |= {field: Path(self.options[name]) for name, field in files.items() if name in self.options}
        of_environment = {field: text for field in fields.values() if (text := _variable(field))}
        of_environment |= {field: Path(text) for field in files.values() if (text := _variable(field))}  # type: ignore[misc]  # of other fields
        access = ConnectionOptions(**{**of_environment, **typed}, typed=frozenset(typed)).access()
        return [name for name in known_names(access, path) if not name.startswith("-")]


def _variable(field: str) -> str:
    return os.environ.get(f"KOGUMA_{field.upper()}", "")  # noqa: TID251  # as the options read it


def _choices(option: Any) -> Iterable[str]:
    return [str(item.value) for item in option.shell_complete(None, "") if item.type == "plain"]


def _typed(path: Words, words: Sequence[str]) -> _Typed:
    from cp.cli.main import command  # noqa: PLC0415  # the names of commands come without it

    parameters = command(path).params
    by_name = {name: parameter for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)}
    arguments, options, pending = list[str](), dict[str, str](), None
    for word in words:
        name, equals, value = word.partition("=")
        if pending is not None:
            options[pending.opts[0]], pending = word, None
        elif word.startswith("-") and name in by_name:
            option = by_name[name]
            pending = None if equals or getattr(option, "is_flag", False) else option
            options |= {option.opts[0]: value} if equals else {}
        else:
            arguments.append(word)
    return _Typed(path, parameters, arguments, options, pending)
