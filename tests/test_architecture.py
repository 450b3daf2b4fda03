"""The import contracts in pyproject.toml know every module there is.

See record 0002.
"""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("cp", "generators")

# What touches the outside, or holds it together. Every other module is pure.
EDGE = {
    *("cp.__main__", "cp.cli", "cp.app", "cp.api", "cp.agent", "cp.client", "cp.serving", "cp.store"),
    *("cp.ads.server", "cp.ads.stream", "cp.ads.loop", "cp.ads.rounds", "cp.ads.large_messages", "cp.ads.hub"),
    *("cp.ads.admission", "cp.ads.refusal_log"),
    *(
        "cp.settings",
        "cp.settings_file",
        "cp.calling",
        "cp.files",
        "cp.listening",
        "cp.log",
        "cp.metrics",
        "cp.precedence",
        "cp.tracing",
        "cp.version",
    ),
}


def contract(name: str) -> dict[str, Any]:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    contracts: list[dict[str, Any]] = tool["importlinter"]["contracts"]
    return next(found for found in contracts if found["id"] == name)


def containers(name: str) -> list[str]:
    return list(contract(name)["containers"])


def modules() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def within(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def is_package(path: Path) -> bool:
    return path.name == "__init__.py"


PURE = contract("pure")["source_modules"]
ROOMS = {
    room
    for kept in ("rooms", "identity", "translate", "access", "ads", "serving", "insight", "generators")
    for room in containers(kept)
}
NAMESPACES = ROOMS | {"cp.store", "cp.api", "cp.cli", "cp.agent", "cp.client", "cp.model", "cp.resources"}


@pytest.mark.parametrize(
    "name", ["rooms", "identity", "translate", "access", "ads", "serving", "insight", "generators"]
)
def test_a_contract_of_a_room_knows_everything_in_it(name: str) -> None:
    assert contract(name)["exhaustive"] is True


@pytest.mark.parametrize(("module", "path"), [pytest.param(*found, id=found[0]) for found in modules()])
def test_every_module_is_pure_or_at_the_edge(module: str, path: Path) -> None:
    if module in NAMESPACES and is_package(path):
        statements = ast.parse(path.read_text()).body
        assert len(statements) <= 1, f"{module} holds modules of several layers: its __init__ has a docstring at most"
        return
    assert any(within(module, known) for known in (*PURE, *EDGE)), (
        f"{module} is neither in the contract `pure` in pyproject.toml nor in EDGE: add it to one of them"
    )


def test_what_is_at_the_edge_is_there() -> None:
    there = {module for module, _ in modules()}

    assert not {*EDGE, *PURE} - there
