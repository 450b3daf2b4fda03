"""`make bench ARGS=rules`: measurements, as ratios of one run. Absolute times waver with the machine.

python -m bench [rules] [--sizes 100,300,1000] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bench import rules

SCENARIOS = {"rules": rules}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench ARGS=…", description="Measure Koguma; prints tables.")
    parser.add_argument("scenario", nargs="*", choices=[*SCENARIOS, []], help="what to measure; all if none is named")
    parser.add_argument("--sizes", default="100,300,1000", help="how many of each there are, one run for each")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    names = arguments.scenario or list(SCENARIOS)
    found = {name: SCENARIOS[name].run(sizes) for name in names}
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2))
    return 0 if all(result["held"] for result in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
