"""`python -m tests.edits`: make each edit of the table twenty times under load, and print the calls that failed.

python -m tests.edits --envoy PATH --strategy gradual --protocol sotw --edits 20
python -m tests.edits --only outbound-backend-ref --no-draining    # with nothing kept for draining listeners
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.edits.field import Combination, Field, field_under_load
from tests.edits.redirected import REDIRECTED_EDITS, redirected_field_under_load
from tests.edits.table import EDITS
from tests.support.envoy import envoy_binary
from tests.support.machines import missing

_STEPS = 4
"""Calls of each kind between two edits."""


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    is_delta, is_known = options.protocol == "delta", not options.no_draining
    combination = Combination(options.envoy, options.strategy, is_delta, options.drain, is_known, options.log_level)
    lost = 0
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if names := [name for name in EDITS if name in (options.only or EDITS)]:
            lost += _make_all(stack.enter_context(field_under_load(folder, combination)), names, options.edits)
    names = [name for name in REDIRECTED_EDITS if name in (options.only or REDIRECTED_EDITS)]
    if names and (reason := missing()):
        _say(f"not made: {', '.join(names)}: {reason}")
    elif names:
        with redirected_field_under_load(combination) as mesh:
            lost += _make_all(mesh, names, options.edits)
    return 1 if lost else 0


def _make_all(mesh: Field, names: Sequence[str], edits: int) -> int:
    """Make edits of some kinds, and print the calls that failed. Returns their number."""
    lost = 0
    for name in names:
        calls = mesh.calls
        failures = make_edits(mesh, name, edits)
        lost += sum(map(len, failures.values()))
        _print(name, mesh.calls - calls, failures)
    return lost


def make_edits(mesh: Field, name: str, edits: int) -> dict[str, list[str]]:
    """Make so many edits of one kind under load, in whole circles, and return what failed, by the kind of call."""
    edit = (EDITS | REDIRECTED_EDITS)[name](mesh)
    circle = [*edit.states[1:], edit.states[0]]
    mesh.longest = mesh.short if edit.proxies_tcp else math.inf
    for state in [*edit.way, edit.states[0], *circle * math.ceil(edits / len(circle)), *reversed(edit.way)]:
        mesh.enter(state)
        mesh.goes_on(_STEPS)
    failures = {kind: texts for kind, texts in mesh.take_failures().items() if kind not in edit.turns_away}
    mesh.enter([])
    mesh.renew_connections()
    mesh.take_failures()
    return failures


def _print(name: str, calls: int, failures: dict[str, list[str]]) -> None:
    lost = sum(map(len, failures.values()))
    _say(f"{name:<26}{calls:>8} calls {lost:>5} lost")
    for kind, texts in failures.items():
        for text, count in Counter(texts).most_common(4):
            _say(f"    {kind}: {count} x {text[:300]}")


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # it is a command


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envoy", type=Path, default=None)
    parser.add_argument("--strategy", choices=("gradual", "immediate"), default="immediate")
    parser.add_argument("--protocol", choices=("sotw", "delta"), default="delta")
    parser.add_argument("--drain", type=int, default=4, help="Envoy's --drain-time-s")
    parser.add_argument("--edits", type=int, default=20)
    parser.add_argument("--only", nargs="*", choices=sorted(EDITS | REDIRECTED_EDITS), default=None)
    parser.add_argument("--folder", type=Path, default=None, help="where Envoys and the control plane write their logs")
    parser.add_argument("--log-level", default="error", help="that of Envoys")
    parser.add_argument("--no-draining", action="store_true", help="keep nothing for draining listeners")
    options = parser.parse_args(arguments)
    options.envoy = options.envoy or envoy_binary()
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
