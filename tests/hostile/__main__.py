"""`python -m tests.hostile`: attack a control plane with one proxy's token, and print what others notice."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.hostile.attacks import ATTACKS
from tests.hostile.campaign import Campaign, Observation, percentile

_MIB = 1024 * 1024


def report(observation: Observation) -> str:
    """What was seen, as text."""
    before, after = observation.history
    quiet = observation.quiet or observation
    idle, most = observation.idle / _MIB, max(observation.memory) / _MIB
    kept = f"{len(before)} writes before, {len(set(before) & set(after))} of them after"
    busy, busy_attacker = observation.caused, observation.busy_attacker
    ratio = f"{busy / busy_attacker:.2f} times" if busy_attacker else "no time"
    lines = [
        f"tries: {dict(observation.tries)}",
        f"memory: {idle:.0f} MiB idle, at most {most:.0f} MiB ({observation.growth:.2f} times)",
        f"processor: {busy:.1f} s for the attack, and {busy_attacker:.1f} s of the attacker ({ratio})",
        *(
            f"{name}: {_milliseconds(values)}; without the attack {_milliseconds(quiet_values)}"
            for name, values, quiet_values in (
                ("/ready", observation.health, quiet.health),
                ("the API", observation.requests, quiet.requests),
                ("delivery in another mesh", observation.deliveries, quiet.deliveries),
            )
        ),
        f"history of people: {kept}; a rollback to the first is answered with {observation.rollback}",
        *(
            f"{name} {value:g}"
            for name, value in sorted(observation.metrics.items())
            if name.startswith(("koguma_ads_streams_refused_total{", "koguma_api_limited_total{"))
        ),
    ]
    return "\n".join(lines)


def _milliseconds(values: Sequence[float]) -> str:
    shares = {"median": 0.5, "p99": 0.99, "most": 1.0}
    return ", ".join(f"{name} {percentile(values, share) * 1000:.0f} ms" for name, share in shares.items())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("attacks", nargs="*", choices=[*ATTACKS, []], help="Default: all at once.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(report(Campaign(Path(folder)).run(options.seconds, options.attacks)))  # noqa: T201


if __name__ == "__main__":
    main()
