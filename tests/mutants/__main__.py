"""`make mutants`: draws mutants over all rooms, and runs the tests that are closest to each until one fails.

Ends with 1 if more than one mutant in twenty survives. Results are kept in `.mutants`; `--resume` goes on with them.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from tests.mutants.copies import TestRun, WorkingCopy
from tests.mutants.nearest import Nearest
from tests.mutants.operators import Mutant
from tests.mutants.sample import sample

ROOT: Final = Path(__file__).resolve().parents[2]
_KEPT: Final = ROOT / ".mutants"
_NEAR: Final = ("-x", "-m", "not long and not envoy")
_FAR: Final = ("-x", "-m", "not long")
_SUITE: Final = 3600.0
"""Seconds for all tests at the most."""

_TESTS_OF_A_MUTANT: Final = 20
"""One mutant in so many may survive."""


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one mutant: `killed`, `killed far` by the second ring, `timed out`, `survived` or `invalid`."""

    mutant: str
    outcome: str
    test: str = ""


class Campaign:
    """The results of mutants, kept in a file, and the copies of the tree in which their tests run."""

    def __init__(self, root: Path, log: Path, files: ExitStack, *, jobs: int, limit: float) -> None:
        self.results = {result.mutant: result for result in _read(log)}
        self._log, self._limit, self._jobs = log, limit, jobs
        self._copies = SimpleQueue[WorkingCopy]()
        self._nearest = Nearest(root)
        for _ in range(jobs):
            copy = WorkingCopy(root)
            files.callback(copy.remove)
            self._copies.put(copy)

    def near(self, mutant: Mutant) -> list[str]:
        return self._nearest.tests(mutant.path, mutant.source)

    def first_ring(self, drawn: Iterator[Mutant], count: int) -> list[Mutant]:
        """Run the closest tests of so many mutants. One that cannot be imported is replaced by the next."""
        valid: list[Mutant] = []
        with ThreadPoolExecutor(self._jobs) as pool:
            while batch := list(islice(drawn, count - len(valid))):
                outcomes = pool.map(self._try, batch)
                valid += [mutant for mutant, outcome in zip(batch, outcomes, strict=True) if outcome != "invalid"]
        return valid

    def _try(self, mutant: Mutant) -> str:
        if mutant.name not in self.results:
            run = self._run(mutant, self.near(mutant), _NEAR)
            self._keep(mutant, Result(mutant.name, run.outcome, *run.failed[:1]))
        return self.results[mutant.name].outcome

    def _run(self, mutant: Mutant, tests: Sequence[str], options: Sequence[str]) -> TestRun:
        if not tests:
            return TestRun("survived", ())
        copy = self._copies.get()
        try:
            with copy.changed(mutant.path, mutant.changed):
                return copy.run(tests, self._limit, *options)
        finally:
            self._copies.put(copy)

    def second_ring(self, survivors: Sequence[Mutant]) -> None:
        """Run the other tests that reach each survivor. One after the other, as they start Envoys."""
        copy = self._copies.get()
        reaching = copy.reaching(survivors, self._jobs * 2, _SUITE)
        self._copies.put(copy)
        for mutant, tests in zip(survivors, reaching, strict=True):
            near = self.near(mutant)
            run = self._run(mutant, [test for test in tests if test not in near], _FAR)
            outcome = "killed far" if run.outcome == "killed" else run.outcome
            self._keep(mutant, Result(mutant.name, outcome, *run.failed[:1]))

    def fail_by_themselves(self) -> set[str]:
        """Run the tests that killed a mutant without any, and return those that fail all the same."""
        tests = {result.test for result in self.results.values() if result.outcome.startswith("killed")}
        copy = self._copies.get()
        run = copy.run(sorted(tests), _SUITE, "-m", "not long") if tests else TestRun("survived", ())
        self._copies.put(copy)
        return {*run.failed}

    def _keep(self, mutant: Mutant, result: Result) -> None:
        with self._log.open("a") as log:
            log.write(json.dumps(asdict(result)) + "\n")
        self.results[mutant.name] = result
        sys.stdout.write(f"{len(self.results):4} {result.outcome:10} {mutant}  {result.test}\n")
        sys.stdout.flush()


def _read(log: Path) -> Iterator[Result]:
    for line in log.read_text().splitlines() if log.exists() else ():
        yield Result(**json.loads(line))


def main() -> int:
    given = _given()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the copies are removed
    _KEPT.mkdir(exist_ok=True)
    log = _KEPT / f"seed-{given.seed}.jsonl"
    if not given.resume:
        log.unlink(missing_ok=True)
    with ExitStack() as files:
        campaign = Campaign(ROOT, log, files, jobs=given.jobs, limit=given.limit)
        valid = campaign.first_ring(sample(ROOT, given.rooms, given.seed), given.count)
        if not given.near_only:
            campaign.second_ring([mutant for mutant in valid if campaign.results[mutant.name].outcome == "survived"])
        own_faults = campaign.fail_by_themselves()
    results = [campaign.results[mutant.name] for mutant in valid]
    outcomes = [replace(result, outcome="uncertain") if result.test in own_faults else result for result in results]
    for mutant, result in zip(valid, outcomes, strict=True):
        if result.outcome in {"survived", "uncertain"}:
            sys.stdout.write(f"\n{result.outcome}: {mutant}  {result.test}\n{mutant.diff}\n")
            sys.stdout.write(f"closest tests: {' '.join(campaign.near(mutant)) or 'none'}\n")
    counts = Counter(result.outcome for result in outcomes)
    figures = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    sys.stdout.write(f"\nseed {given.seed}, {len(outcomes)} mutants: {figures}\n")
    return 1 if counts["survived"] * _TESTS_OF_A_MUTANT > len(outcomes) else 0


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("--count", type=int, default=50, help="how many mutants")
    parser.add_argument("--seed", type=int, default=1, help="which mutants")
    parser.add_argument(
        "--rooms", type=lambda text: text.split(","), default=[], help="of these rooms alone: ads,store"
    )
    parser.add_argument("--jobs", type=int, default=2, help="how many mutants at once")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for the tests of a mutant")
    parser.add_argument("--near-only", action="store_true", help="leave out the second ring")
    parser.add_argument("--resume", action="store_true", help="go on with the results of this seed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
