"""Generates the Python modules and type stubs of our own messages into protos/generated, as `koguma.v1`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
TARGET = SOURCES / "generated"


def plugin() -> str:
    """mypy-protobuf, from beside this Python or, where a build front end put it elsewhere, from PATH."""
    name = "protoc-gen-mypy"
    path = shutil.which(name, path=Path(sys.executable).parent) or shutil.which(name)
    return path or sys.exit(f"{name} is not installed: install mypy-protobuf")


def run_protoc(out: Path) -> None:
    sources = sorted((SOURCES / "koguma").rglob("*.proto"))
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={SOURCES}"),
            *(f"--plugin=protoc-gen-mypy={plugin()}", f"--python_out={out}", f"--mypy_out=quiet:{out}"),
            *sources,
        ],
        check=True,
    )
    for folder in {out / source.relative_to(SOURCES).parent for source in sources}:
        (folder / "__init__.py").touch()
    (out / "koguma" / "__init__.py").touch()
    (out / "koguma" / "py.typed").touch()


def generate(target: Path = TARGET) -> None:
    """Replace everything under `target` by what the .proto files say now."""
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    fresh.mkdir()
    try:
        run_protoc(fresh)
        shutil.rmtree(target, ignore_errors=True)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


if __name__ == "__main__":
    generate()
