"""`make bench`: measurements, as ratios of one run. Absolute times waver with the machine.

python -m bench [serving | mtls | rules | reachability | api | store | instances | isolation | meshes | cli | page]
                [--quick] [--only delta,sotw] [--proxies N] [--services N] [--sizes 100,300] [--hostnames N]
                [--kinds MeshTimeout,MeshRetry] [--simulate FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import api, cli, meshes, page, reachability, rules, store
from bench.instances import run as instances
from bench.instances.stand import Options as InstancesOptions
from bench.isolation import run as isolation
from bench.mtls import run as mtls
from bench.mtls.stand import Size
from bench.serving import run as serving

_PARTS = "parts of serving and mtls: delta, sotw, growth, gateways"
SCENARIOS = (
    "rules",
    "reachability",
    "serving",
    "mtls",
    "api",
    "store",
    "instances",
    "isolation",
    "meshes",
    "cli",
    "page",
)


def main() -> int:
    arguments = _parser().parse_args()
    names = arguments.scenario or list(SCENARIOS)
    measure = {
        "rules": _rules,
        "reachability": _reachability,
        "serving": _serving,
        "mtls": _mtls,
        "api": _api,
        "store": _store,
        "instances": _instances,
        "isolation": _isolation,
        "meshes": _meshes,
        "cli": _cli,
        "page": _page,
    }
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
    parser.add_argument("--only", default="delta,sotw,growth,gateways", help=_PARTS)
    parser.add_argument("--proxies", type=int, help="how many are served")
    parser.add_argument("--services", type=int, help="how many each of them calls")
    parser.add_argument("--hostnames", type=int, help="how many each gateway has")
    parser.add_argument("--kinds", help="isolation: the kinds of documents, separated by commas")
    parser.add_argument("--simulate", type=Path, help="instances: a file of --json, to simulate and measure nothing")
    return parser


def _rules(arguments: argparse.Namespace) -> dict[str, Any]:
    return rules.run(_sizes(arguments))


def _reachability(arguments: argparse.Namespace) -> dict[str, Any]:
    return reachability.run(_sizes(arguments))


def _serving(arguments: argparse.Namespace) -> dict[str, Any]:
    usual = 100 if arguments.quick else 1000
    return serving.run(
        serving.Options(
            proxies=usual if arguments.proxies is None else arguments.proxies,
            services=usual if arguments.services is None else arguments.services,
            sizes=_sizes(arguments),
            hostnames=usual if arguments.hostnames is None else arguments.hostnames,
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


def _store(arguments: argparse.Namespace) -> dict[str, Any]:
    quick = store.Options(seconds=3, resources=500, growth=(0, 500))
    return store.run(quick if arguments.quick else store.Options())


def _instances(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.simulate:
        return instances.simulate(arguments.simulate)
    usual = InstancesOptions()
    options = instances.quick(usual) if arguments.quick else usual
    given = {name: getattr(arguments, name) for name in ("proxies", "services") if getattr(arguments, name) is not None}
    sizes = tuple(map(int, arguments.sizes.split(","))) if arguments.sizes else options.instances
    return instances.run(replace(options, instances=sizes, **given))


def _isolation(arguments: argparse.Namespace) -> dict[str, Any]:
    kinds = tuple(arguments.kinds.split(",")) if arguments.kinds else isolation.QUICK if arguments.quick else ()
    return isolation.run(isolation.Options(kinds, edits=3 if arguments.quick else 6))


def _meshes(arguments: argparse.Namespace) -> dict[str, Any]:
    usual = meshes.Options(50, 3) if arguments.quick else meshes.Options()
    return meshes.run(usual if arguments.hostnames is None else replace(usual, hostnames=arguments.hostnames))


def _page(arguments: argparse.Namespace) -> dict[str, Any]:
    usual = 200 if arguments.quick else 5000
    return page.run(usual if arguments.proxies is None else arguments.proxies)


def _cli(arguments: argparse.Namespace) -> dict[str, Any]:
    return cli.run(3 if arguments.quick else 21)


def _sizes(arguments: argparse.Namespace) -> tuple[int, ...]:
    usual = "30,100" if arguments.quick else "100,300,1000"
    return tuple(int(size) for size in (arguments.sizes or usual).split(","))


if __name__ == "__main__":
    sys.exit(main())
