"""`make bench`: measurements, as ratios of one run. Absolute times waver with the machine.

python -m bench [serving | mtls | rules | api] [--quick] [--only delta,sotw] [--proxies N] [--services N]
                [--sizes 100,300]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bench import api, rules
from bench.mtls import run as mtls
from bench.mtls.stand import Size
from bench.serving import run as serving

SCENARIOS = ("rules", "serving", "mtls", "api")


def main() -> int:
    arguments = _parser().parse_args()
    names = arguments.scenario or list(SCENARIOS)
    measure = {"rules": _rules, "serving": _serving, "mtls": _mtls, "api": _api}
    results = {name: measure[name](arguments) for name in names}
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2))
    return 0 if all(result["held"] for result in results.values()) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench ARGS=…", description="Measure Koguma; prints tables.")
    parser.add_argument("scenario", nargs="*", choices=[*SCENARIOS, []], help="what to measure; all if none is named")
    parser.add_argument("--sizes", help="how many of each there are, one run for each")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    parser.add_argument("--quick", action="store_true", help="a small mesh, to see that all of it runs")
    parser.add_argument("--only", default="delta,sotw,growth", help="parts of serving and mtls: delta, sotw, growth")
    parser.add_argument("--proxies", type=int, help="how many are served")
    parser.add_argument("--services", type=int, help="how many each of them calls")
    return parser


def _rules(arguments: argparse.Namespace) -> dict[str, Any]:
    return rules.run(_sizes(arguments))


def _serving(arguments: argparse.Namespace) -> dict[str, Any]:
    usual = 100 if arguments.quick else 1000
    return serving.run(
        serving.Options(
            proxies=usual if arguments.proxies is None else arguments.proxies,
            services=usual if arguments.services is None else arguments.services,
            sizes=_sizes(arguments),
            parts=tuple(arguments.only.split(",")),
        )
    )


def _mtls(arguments: argparse.Namespace) -> dict[str, Any]:
    usual = 100 if arguments.quick else 1000
    size = Size(
        proxies=usual if arguments.proxies is None else arguments.proxies,
        services=usual if arguments.services is None else arguments.services,
    )
    return mtls.run(mtls.Options(size, tuple(arguments.only.split(","))))


def _api(arguments: argparse.Namespace) -> dict[str, Any]:
    usual = "100" if arguments.quick else "100,1000,10000"
    return api.run(tuple(int(size) for size in (arguments.sizes or usual).split(",")))


def _sizes(arguments: argparse.Namespace) -> tuple[int, ...]:
    usual = "30,100" if arguments.quick else "100,300,1000"
    return tuple(int(size) for size in (arguments.sizes or usual).split(","))


if __name__ == "__main__":
    sys.exit(main())
