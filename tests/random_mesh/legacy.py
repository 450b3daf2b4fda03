"""Legacy policies, and random meshes of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Final

from tests.random_mesh import gateway_routes, legacy_policies, policies, proxies, services
from tests.random_mesh.mesh import Mesh
from tests.random_mesh.words import PATHS, SERVICES, TEAMS, ZONES, Data, Make, several, some_of, sometimes, weighted

_NAMES: Final = ("all", "strict", "of-team", "z-last")
_SERVICE: Final = "kuma.io/service"
_BACKENDS: Final = ("file", "collector")


def _duration(chance: Random) -> str:
    return chance.choice(["1s", "5s", "7s", "15s", "1m"])


def _number(chance: Random) -> int:
    return chance.randint(1, 5)


def _service(chance: Random) -> str:
    return chance.choice(["*", "*", *SERVICES])


def _client(chance: Random) -> Data:
    tags = {_SERVICE: _service(chance)} | sometimes(chance, 0.25, {"team": chance.choice([*TEAMS, "*"])})
    return {"match": tags | sometimes(chance, 0.1, {"kuma.io/zone": chance.choice(ZONES)})}


def _called(chance: Random) -> Data:
    return {"match": {_SERVICE: _service(chance)}}


def _tagged(chance: Random) -> Data:
    """Of those who are called any tag can be asked for."""
    return {"match": {"team": chance.choice(TEAMS)}} if chance.random() < 0.15 else _client(chance)


def _timeout(chance: Random) -> Data:
    http: Data = {"requestTimeout": _duration(chance)} | sometimes(chance, 0.4, {"streamIdleTimeout": "9s"})
    choices: dict[str, Make] = {
        "connectTimeout": _duration,
        "tcp": lambda chance: {"idleTimeout": _duration(chance)},
        "http": lambda chance: http | sometimes(chance, 0.4, {"idleTimeout": _duration(chance)}),
        "grpc": lambda chance: {"maxStreamDuration": _duration(chance)},
    }
    return some_of(chance, choices)


def _retry(chance: Random) -> Data:
    back_off = {"baseInterval": "20ms"} | sometimes(chance, 0.5, {"maxInterval": "1s"})
    of_http: dict[str, Make] = {
        "numRetries": _number,
        "perTryTimeout": _duration,
        "backOff": lambda _: back_off,
        "retriableStatusCodes": lambda _: [500, 503],
        "retryOn": lambda chance: chance.sample(["all_5xx", "reset", "connect_failure"], 2),
    }
    of_grpc = {name: of_http[name] for name in ("numRetries", "perTryTimeout", "backOff")}
    return some_of(
        chance,
        {
            "http": lambda chance: some_of(chance, of_http),
            "grpc": lambda chance: some_of(chance, of_grpc),
            "tcp": lambda chance: {"maxConnectAttempts": _number(chance)},
        },
    )


def _breaker(chance: Random) -> Data:
    detectors: dict[str, Make] = {
        "totalErrors": lambda chance: {"consecutive": _number(chance)},
        "gatewayErrors": lambda _: {},
        "standardDeviation": lambda _: {"requestVolume": 10, "minimumHosts": 2, "factor": 1.5},
        "failure": lambda chance: {"threshold": chance.randint(10, 90)},
    }
    thresholds: dict[str, Make] = dict.fromkeys(("maxConnections", "maxRetries", "maxRequests"), _number)
    conf = some_of(
        chance,
        {
            "detectors": lambda chance: some_of(chance, detectors),
            "thresholds": lambda chance: some_of(chance, thresholds),
        },
    )
    return conf | sometimes(chance, 0.4, {"interval": _duration(chance), "maxEjectionPercent": 30})


def _check(chance: Random) -> Data:
    conf: Data = {"interval": "10s", "timeout": "2s", "unhealthyThreshold": _number(chance), "healthyThreshold": 1}
    conf |= sometimes(chance, 0.3, {"http": {"path": chance.choice(PATHS)}})
    conf |= sometimes(chance, 0.2, {"tcp": {}} if "http" not in conf else {})
    return conf | sometimes(chance, 0.3, {"reuseConnection": False, "noTrafficInterval": "9s"})


def _log(chance: Random) -> Data:
    return sometimes(chance, 0.6, {"backend": chance.choice([*_BACKENDS, "nowhere"])})


def _destination(chance: Random) -> Data:
    name = chance.choice(["*", *SERVICES])
    return {_SERVICE: name} | sometimes(chance, 0.2, {"team": chance.choice(TEAMS)})


def _split(chance: Random) -> Data:
    if chance.random() < 0.6:
        return {"destination": _destination(chance)}
    return {"split": [{"weight": weight, "destination": _destination(chance)} for weight in (90, 10)]}


def _row(chance: Random) -> Data:
    matches: dict[str, Make] = {
        "path": lambda chance: {chance.choice(["prefix", "exact"]): chance.choice(PATHS)},
        "method": lambda _: {"exact": "GET"},
    }
    modify = {"requestHeaders": {"add": [{"name": "x-a", "value": "1"}]}}
    return {"match": some_of(chance, matches), **_split(chance)} | sometimes(chance, 0.3, {"modify": modify})


def _route(chance: Random) -> Data:
    conf = _split(chance) | sometimes(chance, 0.3, {"http": several(chance, _row, 1, 2)})
    return conf | sometimes(chance, 0.3, {"loadBalancer": {chance.choice(["random", "leastRequest", "maglev"]): {}}})


def _limit(chance: Random) -> Data:
    return {"http": {"requests": _number(chance), "interval": _duration(chance)}}


def _fault(chance: Random) -> Data:
    faults: dict[str, Make] = {
        "delay": lambda chance: {"percentage": 50, "value": _duration(chance)},
        "abort": lambda _: {"percentage": 10, "httpStatus": 503},
    }
    return some_of(chance, faults)


def _policy(kind: str, called: Make, conf: Make | None, chance: Random) -> Data:
    data: Data = {
        "type": kind,
        "mesh": "default",
        "name": chance.choice(_NAMES),
        "sources": several(chance, _client, 1, 2),
        "destinations": several(chance, called, 1, 2),
    }
    return data if conf is None else data | {"conf": conf(chance)}


def _injection(chance: Random) -> Data:
    data = _policy("FaultInjection", _tagged, _fault, chance)
    for destination in data["destinations"]:
        destination["match"]["kuma.io/protocol"] = "http"
    return data


def _trace(chance: Random) -> Data:
    conf = sometimes(chance, 0.7, {"backend": chance.choice(["zipkin", "datadog", "nowhere"])})
    selectors = several(chance, _client, 1, 2)
    return {
        "type": "TrafficTrace",
        "mesh": "default",
        "name": chance.choice(_NAMES),
        "selectors": selectors,
        "conf": conf,
    }


_MAKES: Final = (
    (3, partial(_policy, "Timeout", _called, _timeout)),
    (3, partial(_policy, "Retry", _called, _retry)),
    (3, partial(_policy, "CircuitBreaker", _called, _breaker)),
    (2, partial(_policy, "HealthCheck", _called, _check)),
    (2, partial(_policy, "TrafficLog", _called, _log)),
    (2, partial(_policy, "TrafficRoute", _called, _route)),
    (2, partial(_policy, "TrafficPermission", _tagged, None)),
    (1, partial(_policy, "RateLimit", _tagged, _limit)),
    (1, _injection),
    (1, _trace),
    (1, partial(legacy_policies.policy, "ProxyTemplate")),
)

_NEWER: Final = ("MeshTimeout", "MeshRetry", "MeshHealthCheck", "MeshCircuitBreaker", "MeshTrafficPermission")
_LAST_NAMES: Final = ("zz-legacy-1-all", "zz-legacy-2-strict", "zzz")
"""Names that a migration may have given, and one behind those."""


def _newer(chance: Random) -> Data:
    """A policy with a targetRef."""
    data = policies.policy(chance, chance.choice(_NEWER))
    return data | sometimes(chance, 0.4, {"name": chance.choice(_LAST_NAMES)})


def policy(chance: Random) -> Data:
    """A legacy policy of some kind. Of some it is known when they were made."""
    made: Data = weighted(_MAKES)(chance)
    return made | sometimes(chance, 0.7, {"creationTime": f"2024-01-0{chance.randint(1, 4)}T00:00:00Z"})


def legacy_mesh(seed: int) -> Mesh:
    """A mesh with proxies and legacy policies; in some of them there are services that those do not know."""
    return Mesh(tuple(_documents(Random(seed))), seed)


def _documents(chance: Random) -> Iterator[Data]:
    mesh = proxies.mesh(chance)
    mesh |= {"logging": _logging(chance), "tracing": _tracing(chance)}
    if chance.random() < 0.7:
        mesh["meshServices"] = {"mode": "Disabled"}
    mesh |= sometimes(chance, 0.6, {"policyEngine": "Legacy"})
    yield mesh
    yield from proxies.trust(mesh)
    drawn = [proxies.dataplane(chance) for _ in range(chance.randint(2, 6))]
    drawn += [policy(chance) for _ in range(chance.randint(2, 9))]
    if chance.random() < 0.2:
        drawn.append(services.service(chance))
    if chance.random() < 0.2:
        drawn.append(services.external_service(chance))
    if chance.random() < 0.3:
        drawn += gateway_routes.edge(chance)
    if chance.random() < 0.1:
        drawn.append(gateway_routes.virtual_outbound(chance))
    if chance.random() < 0.3:
        drawn += several(chance, _newer, 1, 3)
    yield from {(data.get("type"), data.get("name", str(data))): data for data in drawn}.values()


def _logging(chance: Random) -> Data:
    backends = [
        {"name": "file", "type": "file", "conf": {"path": "/tmp/access.log"}},  # noqa: S108  # a name, never opened
        {"name": "collector", "type": "tcp", "conf": {"address": "127.0.0.9:5000"}},
    ]
    return {"backends": backends} | sometimes(chance, 0.5, {"defaultBackend": "file"})


def _tracing(chance: Random) -> Data:
    backends = [
        {"name": "zipkin", "type": "zipkin", "sampling": 30, "conf": {"url": "http://127.0.0.9:9411/api/v2/spans"}},
        {"name": "datadog", "type": "datadog", "conf": {"address": "127.0.0.8", "port": 8126}},
    ]
    return {"backends": backends} | sometimes(chance, 0.5, {"defaultBackend": "zipkin"})
