"""The import contracts in pyproject.toml know every module there is."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("cp", "generators")

# Layers that touch the outside, or hold it together. Every other one is pure.
EDGE = {
    *(
        "cp.__main__",
        "cp.cli",
        "cp.app",
        "cp.api",
        "cp.http_server",
        "cp.process",
        "cp.settings",
        "cp.log",
        "cp.observe",
        "cp.reconcile",
        "cp.registrar",
        "cp.lag",
        "cp.listening",
        "cp.metrics",
        "cp.serve",
        "cp.version",
    ),
    *("cp.workers.crew", "cp.workers.front", "cp.workers.line", "cp.workers.observers", "cp.workers.worker"),
    *("cp.ads.hub", "cp.ads.loop", "cp.ads.rounds", "cp.ads.server", "cp.ads.stream", "cp.ads.turns"),
    *("cp.store.open", "cp.store.beside", "cp.store.files", "cp.store.memory", "cp.store.sqlite"),
    *("cp.store.clock", "cp.store.feed", "cp.store.folder", "cp.store.lane", "cp.store.rows", "cp.store.watch"),
    *("cp.store.database", "cp.store.settling", "cp.store.tree"),
}


def contract(name: str) -> dict[str, Any]:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    contracts: list[dict[str, Any]] = tool["importlinter"]["contracts"]
    return next(found for found in contracts if found["id"] == name)


def modules() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def within(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def imports(path: Path) -> list[str]:
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]


LAYERS = [module.strip(" ()") for siblings in contract("layers")["layers"] for module in siblings.split("|")]


@pytest.mark.parametrize(("module", "path"), [pytest.param(*found, id=found[0]) for found in modules()])
def test_every_module_has_a_layer(module: str, path: Path) -> None:
    if any(within(layer, module) and layer != module for layer in LAYERS):
        assert not imports(path), f"{module} holds several layers and belongs to none: leave its __init__ empty"
        return
    assert [layer for layer in LAYERS if within(module, layer)], (
        f"{module} is in no layer of the contract `layers` in pyproject.toml: add it where its imports put it"
    )


def test_every_layer_but_the_edge_is_held_to_be_pure() -> None:
    there = {module for module, _ in modules()}
    pure = contract("pure")["source_modules"]

    assert not EDGE - set(LAYERS)
    assert not [layer for layer in LAYERS if layer in there - EDGE and not any(within(layer, held) for held in pure)]
