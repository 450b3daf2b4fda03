"""Writes type stubs for xds-protos into .stubs, so that a misspelt Envoy field fails the type check.

xds-protos ships no .proto files and no stubs, but each of its modules carries its own description.
Those descriptions, with all they import, are handed to protoc, which runs mypy-protobuf on them.

See record 0010.
"""

import importlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet

TARGET = Path(__file__).resolve().parent.parent / ".stubs"
MADE_FROM = ("xds-protos", "mypy-protobuf", "grpcio-tools")


def made_from() -> str:
    """What the stubs depend on: the versions of what they are made from and with, and this script."""
    versions = (f"{name} {importlib.metadata.version(name)}" for name in MADE_FROM)
    return "\n".join([*versions, Path(__file__).read_text()])


def described() -> Iterator[FileDescriptor]:
    """Every module under envoy/ that xds-protos ships."""
    for path in sorted(map(str, importlib.metadata.files("xds-protos") or ())):
        if path.startswith("envoy/") and path.endswith("_pb2.py"):
            module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
            yield module.DESCRIPTOR


def with_imports(files: Iterator[FileDescriptor]) -> dict[str, FileDescriptor]:
    """The files and all they import, each after its own imports, as protoc wants them."""
    closed: dict[str, FileDescriptor] = {}

    def close(file: FileDescriptor) -> None:
        if file.name not in closed:
            for imported in file.dependencies:
                close(imported)
            closed[file.name] = file

    for file in files:
        close(file)
    return closed


def write(files: dict[str, FileDescriptor], target: Path) -> None:
    """Run mypy-protobuf on the files; Google's well-known types have stubs in types-protobuf already."""
    descriptors = FileDescriptorSet()
    for file in files.values():
        descriptors.file.add().ParseFromString(file.serialized_pb)
    names = [name for name in files if not name.startswith("google/protobuf/")]
    with tempfile.TemporaryDirectory() as scratch:
        (described_in := Path(scratch, "descriptors")).write_bytes(descriptors.SerializeToString())
        (named_in := Path(scratch, "names")).write_text("\n".join(names))
        subprocess.run(
            [
                *(sys.executable, "-m", "grpc_tools.protoc", f"--descriptor_set_in={described_in}"),
                f"--plugin=protoc-gen-mypy={Path(sys.executable).with_name('protoc-gen-mypy')}",
                *(f"--mypy_out=quiet:{target}", f"@{named_in}"),
            ],
            check=True,
        )


def refresh(target: Path = TARGET) -> None:
    """Replace the stubs unless they are of the installed versions."""
    stamp, versions = target / "made-from", made_from()
    if stamp.is_file() and stamp.read_text() == versions:
        stamp.touch()
        return
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    fresh.mkdir()
    try:
        write(with_imports(described()), fresh)
        (fresh / stamp.name).write_text(versions)
        shutil.rmtree(target, ignore_errors=True)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


if __name__ == "__main__":
    refresh()
