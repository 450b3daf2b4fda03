"""The pure part: matching, merging, rules and what is generated from them, from cold and after one edit.

Each size runs in a process of its own, so that its peak of memory is its own: N dataplanes in 20 classes, N services,
N / 2 policies. An edit must cost less than a twentieth of the cold computation, and doubling the size little more than
double the cost.
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.compiler import Compiler

CLASSES = 20
MESH = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})
EDIT_SHARE, LARGEST_EXPONENT = 0.05, 1.25
EDITS = 5


def document(type_: str, name: str, **fields: Any) -> Document:
    return Document(Key(type_, "default", name), {"type": type_, "mesh": "default", "name": name, **fields})


def documents(size: int) -> Iterator[Document]:
    """A mesh in which each class calls its share of the services, and policies are for classes, services and routes."""
    yield MESH
    for number in range(size):
        selector = {"dataplaneTags": {"kuma.io/service": f"s{number}"}}
        ports = [{"port": 80, "targetPort": 8080, "appProtocol": "http"}]
        yield document("MeshService", f"s{number}", spec={"selector": selector, "ports": ports})
        yield document("Dataplane", f"dp{number}", networking=_networking(number, size))
    for number in range(size // 2):
        yield policy(number, size, number + 1)


def _networking(number: int, size: int) -> dict[str, Any]:
    team = number % CLASSES
    share = max(size // CLASSES, 1)
    outbound = [
        {
            "port": 10000 + called,
            "backendRef": {"kind": "MeshService", "name": f"s{(team * share + called) % size}", "port": 80},
        }
        for called in range(share)
    ]
    tags = {"kuma.io/service": f"s{team}", "team": f"t{team}", "kuma.io/protocol": "http"}
    address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
    return {"address": address, "inbound": [{"port": 8080, "tags": tags}], "outbound": outbound}


def policy(number: int, size: int, seconds: int) -> Document:
    """A policy with timeouts or retries, for all proxies or one class, to one service or to all."""
    kind = "MeshTimeout" if number % 3 else "MeshRetry"
    default = {"http": {"requestTimeout": f"{seconds}s"}} if number % 3 else {"http": {"numRetries": seconds % 7}}
    target = {"kind": "Mesh"} if number % 50 == 0 else {"kind": "MeshService", "name": f"s{number % size}"}
    top = {} if number % 2 else {"targetRef": {"kind": "MeshSubset", "tags": {"team": f"t{number % CLASSES}"}}}
    return document(kind, f"p{number}", spec={**top, "to": [{"targetRef": target, "default": default}]})


def measure(size: int) -> dict[str, float]:
    """Measure one size, in this process."""
    policies = discover()
    began = time.perf_counter()
    world = World.of(documents(size), kinds(policies))
    read = time.perf_counter() - began
    compiler = Compiler(policies)
    cold = _compute(compiler, world)
    built = compiler.fragments.built
    edits = []
    for turn in range(EDITS):
        changed = policy(1, size, 100 + turn)
        began = time.perf_counter()
        world = world.next({changed.key: changed}, turn + 1)
        _compute(compiler, world)
        edits.append(time.perf_counter() - began)
    return {
        "size": size,
        "read": read,
        "cold": cold,
        "edit": sorted(edits)[EDITS // 2],
        "classes": compiler.class_count,
        "fragments": built,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _compute(compiler: Compiler, world: World) -> float:
    began = time.perf_counter()
    dataplanes: list[Resource] = list(world.table("Dataplane", "default"))
    for dataplane in dataplanes:
        compiler.snapshot(world, dataplane)
    return time.perf_counter() - began


def run(sizes: Sequence[int]) -> dict[str, Any]:
    """Measure every size in a process of its own, and print a table."""
    measurements = [_in_a_process(size) for size in track(sizes, description="rules: each size from cold, then edits")]
    largest = measurements[-1]
    share, exponent = largest["edit"] / largest["cold"], _exponent(measurements)
    _print(measurements, share, exponent)
    return {"rows": measurements, "edit_share": share, "exponent": exponent, "held": _held(share, exponent)}


def _held(share: float, exponent: float) -> bool:
    return share < EDIT_SHARE and exponent < LARGEST_EXPONENT


def _in_a_process(size: int) -> dict[str, float]:
    command = [
        sys.executable,
        "-c",
        f"import json; from bench.rules import measure; print(json.dumps(measure({size})))",
    ]
    answer: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return answer


def _exponent(measurements: Sequence[dict[str, float]]) -> float:
    """The exponent with which the cold computation grows with the size: 1 is linear."""
    if len(measurements) == 1:
        return 1.0
    first, last = measurements[0], measurements[-1]
    return math.log(last["cold"] / first["cold"]) / math.log(last["size"] / first["size"])


def _print(measurements: Sequence[dict[str, float]], share: float, exponent: float) -> None:
    table = Table(title="dataplanes x policies x services, in 20 classes")
    for name in ("size", "read", "cold", "edit", "edit / cold", "classes", "fragments", "peak"):
        table.add_column(name, justify="right")
    for row in measurements:
        size = int(row["size"])
        table.add_row(
            f"{size} x {size // 2} x {size}",
            f"{row['read'] * 1000:.0f} ms",
            f"{row['cold'] * 1000:.0f} ms",
            f"{row['edit'] * 1000:.1f} ms",
            f"{row['edit'] / row['cold']:.1%}",
            f"{row['classes']:.0f}",
            f"{row['fragments']:.0f}",
            f"{row['peak_mib']:.0f} MiB",
        )
    console = Console()
    console.print(table)
    console.print(f"An edit costs {share:.1%} of the cold computation (bound: {EDIT_SHARE:.0%}).")
    console.print(f"The cold computation grows with the power {exponent:.2f} of the size (bound: {LARGEST_EXPONENT}).")
