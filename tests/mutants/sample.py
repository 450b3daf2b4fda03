"""Draws mutants: the same ones for a seed and a tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from random import Random

from tests.mutants.operators import Mutant, mutants


def sample(root: Path, rooms: Sequence[str], seed: int) -> Iterator[Mutant]:
    """Yield a mutant of each room in turn: of any module of the room, of any kind, at any place."""
    by_room: dict[str, list[Path]] = {}
    for path in sorted(path for world in ("cp", "generators") for path in (root / world).rglob("*.py")):
        by_room.setdefault(room_of(path.relative_to(root)), []).append(path)
    if unknown := sorted({*rooms} - {*by_room}):
        raise SystemExit(f"there is no room {', '.join(unknown)}: choose of {', '.join(sorted(by_room))}")
    chosen = [by_room[room] for room in sorted(rooms or by_room)]
    chance = Random(seed)
    chance.shuffle(chosen)
    for turn in zip_longest(*(_of_room(root, modules, chance.randrange(2**32)) for modules in chosen)):
        yield from (mutant for mutant in turn if mutant is not None)


def room_of(path: Path) -> str:
    """Name the room of a module: `store` for `cp/store/rows.py`, `cp` for `cp/files.py`."""
    return path.parts[1] if path.parts[0] == "cp" and len(path.parts) > len(("cp", "files.py")) else path.parts[0]


def _of_room(root: Path, modules: Sequence[Path], seed: int) -> Iterator[Mutant]:
    chance, left = Random(seed), dict[Path, list[Mutant]]()
    modules = list(modules)
    while modules:
        module = chance.choice(modules)
        if module not in left:
            left[module] = mutants(str(module.relative_to(root)), module.read_text())
        if not left[module]:
            modules.remove(module)
            continue
        operator = chance.choice(sorted({mutant.operator for mutant in left[module]}))
        mutant = chance.choice([mutant for mutant in left[module] if mutant.operator == operator])
        left[module].remove(mutant)
        if mutant.is_change:
            yield mutant
