"""The rooms of the code as the import graph has them, drawn for the documentation."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import grimp

ROOT: Final = Path(__file__).resolve().parents[2]
GENERATORS: Final = "generators"

Imports: TypeAlias = Mapping[str, frozenset[str]]
"""The rooms that each room imports."""


def picture() -> str:
    """A graph in which data flows along the arrows: from a room to those that import it.

    An arrow that follows from others is left out.
    """
    direct = _direct(imports())
    edges = [f"  {imported} --> {room}" for imported in rooms() for room in rooms() if imported in direct[room]]
    return "\n".join(("flowchart LR", *edges))


def table() -> str:
    """Each room with what it is for, from the first that data passes to the last."""
    width = max(map(len, rooms()))
    return "\n".join(f"{room:{width}}  {purpose(room)}" for room in rooms())


def rooms() -> list[str]:
    """All rooms that are folders, the lowest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["id"] == "rooms")
    names = [name.strip() for layer in reversed(layers) for name in layer.split("|")]
    return [GENERATORS, *(name for name in names if (ROOT / "cp" / name).is_dir())]


def purpose(room: str) -> str:
    """The first sentence of the room's docstring."""
    docstring = ast.get_docstring(ast.parse((_folder(room) / "__init__.py").read_text()))
    return "" if docstring is None else docstring.splitlines()[0]


def imports() -> Imports:
    graph = grimp.build_graph("cp", GENERATORS)
    known = rooms()
    by_room: dict[str, set[str]] = {room: set() for room in known}
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            importer, room = _room(module), _room(imported)
            if importer in by_room and room in by_room and importer != room:
                by_room[importer].add(room)
    return {room: frozenset(imported) for room, imported in by_room.items()}


def _direct(all_imports: Imports) -> Imports:
    """Without what a room also imports by way of another."""
    return {
        room: frozenset(imported).difference(*(_reachable(all_imports, other) for other in imported))
        for room, imported in all_imports.items()
    }


def _reachable(all_imports: Imports, room: str) -> frozenset[str]:
    return frozenset(_below(all_imports, room))


def _below(all_imports: Imports, room: str) -> Iterator[str]:
    for imported in all_imports[room]:
        yield imported
        yield from _below(all_imports, imported)


def _room(module: str) -> str:
    package, _, inner = module.partition(".")
    return GENERATORS if package == GENERATORS else inner.partition(".")[0]


def _folder(room: str) -> Path:
    return ROOT / GENERATORS if room == GENERATORS else ROOT / "cp" / room
