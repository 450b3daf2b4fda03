"""The words of the code: each public class has a name of its own, and no name is a pronoun."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
GLOSSARY: Final = ROOT / "docs/glossary.md"

BANNED: Final = frozenset(
    {
        *("one", "ones", "found", "some", "said", "it", "its", "rest", "ours", "theirs", "what", "who", "told"),
        *("each", "every", "those", "these", "others", "thing", "things", "there"),
        *("doubt", "again", "apart", "even", "take_back"),
    }
)
"""They name nothing: the noun of the domain stands in their place."""

OF_EACH_POLICY: Final = frozenset({"Conf", "EffectiveConf", "Spec"})
"""What a policy's module has: its own conf, what that can come to, and its own spec."""


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse((ROOT / path).read_text()) for path in paths("cp", "generators")}


def paths(*rooms: str) -> list[Path]:
    return [path.relative_to(ROOT) for room in rooms for path in sorted((ROOT / room).rglob("*.py"))]


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every name that a module gives to something, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name


def test_no_name_is_a_pronoun() -> None:
    support = {path: ast.parse((ROOT / path).read_text()) for path in paths("tests/support")}
    pronouns = [
        f"{path}:{line}: rename '{name}' to a noun of docs/glossary.md"
        for path, tree in {**trees(), **support}.items()
        for line, name in names(tree)
        if name.strip("_") in BANNED
    ]

    assert not pronouns, "\n".join(["", *pronouns])


def test_no_two_public_classes_share_a_name() -> None:
    places = defaultdict(list)
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path))

    shared = {name: paths for name, paths in places.items() if len(paths) > 1 and name not in OF_EACH_POLICY}
    assert not shared


def test_only_policies_share_the_names_that_each_policy_has() -> None:
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name in OF_EACH_POLICY:
                assert path.is_relative_to("cp/policies"), f"{path}:{node.lineno} {node.name}"


def test_every_class_in_the_glossary_is_there() -> None:
    named = set(re.findall(r"`([A-Z]\w+)`", GLOSSARY.read_text()))
    classes = {node.name for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}

    assert not {name for name in named if not name.isupper()} - classes
