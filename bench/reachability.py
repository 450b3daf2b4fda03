"""What an edit of a permission costs where proxies are told only of what permissions let them call.

Each size runs in a process of its own: N proxies, N services and N permissions, each of which lets ten callers in. An
edit that lets in one caller more reaches one proxy, and one that lets everybody in reaches all. The former must cost a
small part of the latter and of a cold start, and grow with the mesh to no power of much more than one. All times are
those of the processor: nothing is waited for, and what else the machine does says nothing about us.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.progress import track
from rich.table import Table

from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.snapshot import Snapshot

CALLERS: Final = 10
EDITS: Final = 5
EDITED: Final = 1
SHARE_OF_COLD, SHARE_OF_ALL, LARGEST_EXPONENT = 0.05, 0.5, 1.25
MESH: Final = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})
_WIDTH: Final = 120
EVERYBODY: Final = {"kind": "Mesh"}


def documents(size: int) -> Iterator[Document]:
    """A mesh in which each service has a proxy, and a permission for some callers."""
    yield MESH
    for number in range(size):
        selector = {"dataplaneTags": {"kuma.io/service": f"s{number}"}}
        ports = [{"port": 80, "targetPort": 8080, "appProtocol": "http"}]
        yield _document("MeshService", f"s{number}", spec={"selector": selector, "ports": ports})
        yield _document("Dataplane", f"p{number}", networking=_networking(number))
        yield permission(number, size)


def permission(number: int, size: int, *others: dict[str, str]) -> Document:
    """Who may call one service: some that lie far from each other, and others."""
    usual = (_service(number + 1 + caller * size // CALLERS, size) for caller in range(CALLERS))
    items = [{"targetRef": target, "default": {"action": "Allow"}} for target in (*usual, *others)]
    spec = {"targetRef": _service(number, size), "from": items}
    return _document("MeshTrafficPermission", f"to-s{number}", spec=spec)


def one_more(size: int) -> dict[str, str]:
    """A caller that the edited permission does not let in."""
    return _service(EDITED, size)


def _service(number: int, size: int) -> dict[str, str]:
    return {"kind": "MeshService", "name": f"s{number % size}"}


def _networking(number: int) -> dict[str, Any]:
    tags = {"kuma.io/service": f"s{number}", "kuma.io/protocol": "http"}
    address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
    inbound = [{"port": 8080, "tags": tags}]
    return {"address": address, "inbound": inbound, "transparentProxying": {"redirectPortOutbound": 15001}}


def _document(type_: str, name: str, **fields: Any) -> Document:
    return Document(Key(type_, "default", name), {"type": type_, "mesh": "default", "name": name, **fields})


@dataclass(frozen=True, slots=True)
class EditCost:
    seconds: float
    proxies: int
    """How many are served something else than before."""

    fragments: int


class Mesh:
    """A mesh whose proxies are all served, and that is edited."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._policies = discover()
        self._world = World.of(documents(size), kinds(self._policies, derives_reachability=True))
        self._compiler = Compiler(self._policies)
        began = time.process_time()
        self._served = self._all()
        self.cold = time.process_time() - began

    def edit(self, document: Document) -> EditCost:
        before, built = self._served, self._compiler.fragments.built
        began = time.process_time()
        self._world = self._world.next({document.key: document}, self._world.revision + 1)
        self._served = self._all()
        seconds = time.process_time() - began
        proxies = sum(before[name] != snapshot for name, snapshot in self._served.items())
        return EditCost(seconds, proxies, self._compiler.fragments.built - built)

    def toggled(self, other: dict[str, str]) -> list[EditCost]:
        """A caller is let in and kept out again, some times."""
        turns = (permission(EDITED, self.size, *([] if turn % 2 else [other])) for turn in range(2 * EDITS))
        return [self.edit(document) for document in turns]

    def _all(self) -> dict[str, Snapshot]:
        dataplanes = self._world.table("Dataplane", "default")
        return {dataplane.name: self._compiler.snapshot(self._world, dataplane) for dataplane in dataplanes}


def measure(size: int) -> dict[str, float]:
    """Measure one size, in this process."""
    mesh = Mesh(size)
    for_one, for_all = mesh.toggled(one_more(size)), mesh.toggled(EVERYBODY)
    return {
        "size": size,
        "cold": mesh.cold,
        "for_one": _middle(for_one),
        "for_all": _middle(for_all),
        "proxies_of_one": max(cost.proxies for cost in for_one),
        "proxies_of_all": max(cost.proxies for cost in for_all),
        "fragments_of_one": max(cost.fragments for cost in for_one),
    }


def _middle(costs: Sequence[EditCost]) -> float:
    return sorted(cost.seconds for cost in costs)[len(costs) // 2]


def run(sizes: Sequence[int]) -> dict[str, Any]:
    """Measure every size in a process of its own, and print a table."""
    rows = [_in_a_process(size) for size in track(sizes, description="reachability: each size from cold, then edits")]
    found = list(promises(rows))
    _print(rows, found)
    return {"rows": rows, "promises": found, "held": all(held for _, _, held in found)}


def promises(rows: Sequence[dict[str, float]]) -> Iterator[tuple[str, str, bool]]:
    """What is promised, what was found, and whether it held."""
    largest = rows[-1]
    reached = {row["proxies_of_one"] for row in rows}
    yield "an edit for one caller is for one proxy", f"{max(reached):g}", reached == {1}
    everybody = all(row["proxies_of_all"] >= row["size"] - CALLERS - 1 for row in rows)
    yield "an edit for everybody is for all others", f"{largest['proxies_of_all']:g}", everybody
    of_cold, of_all = (largest["for_one"] / largest[other] for other in ("cold", "for_all"))
    yield f"the former costs at most {SHARE_OF_COLD:.0%} of a cold start", f"{of_cold:.1%}", of_cold <= SHARE_OF_COLD
    yield f"and at most {SHARE_OF_ALL:.0%} of the latter", f"{of_all:.0%}", of_all <= SHARE_OF_ALL
    power = _exponent(rows)
    yield f"it grows to a power of at most {LARGEST_EXPONENT:g}", f"{power:.2f}", power <= LARGEST_EXPONENT


def _in_a_process(size: int) -> dict[str, float]:
    code = f"import json; from bench.reachability import measure; print(json.dumps(measure({size})))"
    answer: dict[str, float] = json.loads(
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout
    )
    return answer


def _exponent(rows: Sequence[dict[str, float]]) -> float:
    """The exponent with which an edit for one caller grows with the size."""
    if len(rows) == 1:
        return 1.0
    first, last = rows[0], rows[-1]
    return math.log(last["for_one"] / first["for_one"]) / math.log(last["size"] / first["size"])


def _print(rows: Sequence[dict[str, float]], found: Sequence[tuple[str, str, bool]]) -> None:
    table = Table(
        title="proxies x services, told of what permissions let them call",
        caption="Processor time; of edits the middle one.",
    )
    for name in ("size", "cold", "edit for one", "proxies", "built", "edit for all", "proxies", "one / all"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            f"{row['size']:g} x {row['size']:g}",
            f"{row['cold'] * 1000:,.0f} ms",
            f"{row['for_one'] * 1000:.1f} ms",
            f"{row['proxies_of_one']:g}",
            f"{row['fragments_of_one']:g}",
            f"{row['for_all'] * 1000:.1f} ms",
            f"{row['proxies_of_all']:g}",
            f"{row['for_one'] / row['for_all']:.0%}",
        )
    console = Console()
    console = console if console.is_terminal else Console(width=_WIDTH)
    console.print(table)
    for says, measured, held in found:
        console.print(f"{'✓' if held else '✗'} {says}: {measured}")
