"""Legacy policies, and random meshes of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Final

from tests.random_mesh import gateway_routes, legacy_policies, policies, proxies, services
from tests.random_mesh.mesh import Mesh
from tests.random_mesh.words import (
    PATHS,
    PROTOCOLS,
    SERVICES,
    TEAMS,
    ZONES,
    Data,
    Make,
    several,
    some_of,
    sometimes,
    weighted,
)

_NAMES: Final = ("all", "strict", "of-team", "z-last")
_SERVICE: Final = "kuma.io/service"
_BACKENDS: Final = ("file", "collector")
_CONDITIONS: Final = ("all_5xx", "reset", "connect_failure", "gateway_error", "retriable_headers")


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
    http |= sometimes(chance, 0.2, {"maxStreamDuration": _duration(chance)})
    grpc = {"maxStreamDuration": _duration(chance)} | sometimes(chance, 0.3, {"streamIdleTimeout": "11s"})
    choices: dict[str, Make] = {
        "connectTimeout": _duration,
        "tcp": lambda chance: {"idleTimeout": _duration(chance)},
        "http": lambda chance: http | sometimes(chance, 0.4, {"idleTimeout": _duration(chance)}),
        "grpc": lambda _: grpc,
    }
    return some_of(chance, choices)


def _retry(chance: Random) -> Data:
    back_off = {"baseInterval": "20ms"} | sometimes(chance, 0.5, {"maxInterval": "1s"})
    of_http: dict[str, Make] = {
        "numRetries": _number,
        "perTryTimeout": _duration,
        "backOff": lambda _: back_off,
        "retriableStatusCodes": lambda _: [500, 503],
        "retryOn": lambda chance: chance.sample(_CONDITIONS, chance.choice([1, 2, 2])),
        "retriableMethods": lambda chance: chance.sample(["GET", "PUT", "OPTIONS"], 2),
    }
    of_grpc: dict[str, Make] = {name: of_http[name] for name in ("numRetries", "perTryTimeout", "backOff")}
    of_grpc["retryOn"] = lambda chance: chance.sample(["cancelled", "internal", "unavailable"], 2)
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
        "localErrors": lambda chance: {"consecutive": _number(chance)},
        "standardDeviation": lambda _: {"requestVolume": 10, "minimumHosts": 2, "factor": 1.5},
        "failure": lambda chance: {"threshold": chance.randint(10, 90)},
    }
    limits = ("maxConnections", "maxRetries", "maxRequests", "maxPendingRequests")
    thresholds: dict[str, Make] = dict.fromkeys(limits, _number)
    conf = some_of(
        chance,
        {
            "detectors": lambda chance: some_of(chance, detectors),
            "thresholds": lambda chance: some_of(chance, thresholds),
        },
    )
    conf |= sometimes(chance, 0.2, {"baseEjectionTime": _duration(chance), "splitExternalAndLocalErrors": True})
    return conf | sometimes(chance, 0.4, {"interval": _duration(chance), "maxEjectionPercent": 30})


def _check(chance: Random) -> Data:
    conf: Data = {"interval": "10s", "timeout": "2s", "unhealthyThreshold": _number(chance), "healthyThreshold": 1}
    conf |= sometimes(chance, 0.3, {"http": _http_check(chance)})
    conf |= sometimes(chance, 0.2, {"tcp": chance.choice(_TCP_CHECKS)} if "http" not in conf else {})
    conf |= sometimes(chance, 0.2, {"healthyPanicThreshold": 62.5, "failTrafficOnPanic": True})
    conf |= sometimes(chance, 0.2, {"initialJitter": "1s", "intervalJitter": "2s", "intervalJitterPercent": 10})
    conf |= sometimes(chance, 0.2, {"eventLogPath": "/dev/null", "alwaysLogHealthCheckFailures": True})
    return conf | sometimes(chance, 0.3, {"reuseConnection": False, "noTrafficInterval": "9s"})


_TCP_CHECKS: Final[tuple[Data, ...]] = ({}, {"send": "cGluZw==", "receive": ["cG9uZw=="]})


def _http_check(chance: Random) -> Data:
    headers = [{"header": {"key": "X-Check", "value": "1"}, "append": chance.random() < 0.5}]
    check = {"path": chance.choice(PATHS)} | sometimes(chance, 0.3, {"requestHeadersToAdd": headers})
    return check | sometimes(chance, 0.3, {"expectedStatuses": [200, 204]})


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
        "path": lambda chance: {chance.choice(["prefix", "prefix", "exact", "regex"]): chance.choice(PATHS)},
        "method": lambda chance: {chance.choice(["exact", "exact", "prefix", "regex"]): "GET"},
        "headers": lambda chance: {"X-Version": {chance.choice(["exact", "prefix", "regex"]): "1"}},
    }
    match = some_of(chance, matches)
    is_prefixed = "prefix" in match.get("path", {})
    changes = [*_CHANGES, *(_REWRITES if is_prefixed else ())]
    modify = {name: value for change in chance.sample(changes, 2) for name, value in change.items()}
    return {"match": match, **_split(chance)} | sometimes(chance, 0.3, {"modify": modify})


_TO_EXPRESSION: Final = {"pattern": "^/([a-z]+).*", "substitution": r"\1"}
_CHANGES: Final[tuple[Data, ...]] = (
    {"requestHeaders": {"add": [{"name": "x-a", "value": "1"}], "remove": [{"name": "X-Secret"}]}},
    {"responseHeaders": {"add": [{"name": "X-B", "value": "2", "append": True}]}},
    {"host": {"value": "else.where"}},
    {"host": {"fromPath": _TO_EXPRESSION}},
    {"path": {"regex": _TO_EXPRESSION}},
)
_REWRITES: Final[tuple[Data, ...]] = ({"path": {"rewritePrefix": "/new"}},) * 2
_BALANCERS: Final[tuple[Data, ...]] = (
    *({name: {}} for name in ("random", "leastRequest", "maglev", "roundRobin")),
    {"leastRequest": {"choiceCount": 3}},
    {"ringHash": {"hashFunction": "MURMUR_HASH_2", "minRingSize": 64, "maxRingSize": 512}},
)


def _route(chance: Random) -> Data:
    conf = _split(chance) | sometimes(chance, 0.3, {"http": several(chance, _row, 1, 2)})
    return conf | sometimes(chance, 0.3, {"loadBalancer": chance.choice(_BALANCERS)})


def _limit(chance: Random) -> Data:
    http = {"requests": _number(chance), "interval": _duration(chance)}
    headers = [{"key": "X-Wait", "value": "1", "append": chance.random() < 0.5}]
    return {"http": http | sometimes(chance, 0.4, {"onRateLimit": {"status": 423, "headers": headers}})}


def _fault(chance: Random) -> Data:
    faults: dict[str, Make] = {
        "delay": lambda chance: {"percentage": 50, "value": _duration(chance)},
        "abort": lambda _: {"percentage": 10, "httpStatus": 503},
        "responseBandwidth": lambda _: {"percentage": 10.5, "limit": "50 kbps"},
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


def _outside(chance: Random) -> Data:
    """An ExternalService, which Dataplanes may have the tag of as well."""
    tags = {_SERVICE: chance.choice(SERVICES), "kuma.io/protocol": chance.choice(PROTOCOLS)}
    tags |= sometimes(chance, 0.3, {"team": chance.choice(TEAMS)}) | sometimes(chance, 0.2, {"kuma.io/zone": "east"})
    tls = sometimes(chance, 0.3, {"tls": {"enabled": True, "serverName": "pay.example.com"}})
    networking = {"address": chance.choice(["127.0.0.1:9443", "pay.example.com:443"]), **tls}
    name = chance.choice(["near", "far"])
    return {"type": "ExternalService", "mesh": "default", "name": name, "networking": networking, "tags": tags}


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
    if chance.random() < 0.35:
        drawn += several(chance, _outside, 1, 2)
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
