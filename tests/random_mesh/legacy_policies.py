"""Legacy policies of every kind with random selectors, and the Mesh and Dataplanes that they are about."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

from tests.random_mesh import proxies
from tests.random_mesh.words import GATEWAYS, MISSING, PATHS, SERVICES, Data, Make, several, sometimes, team

_SECONDS: Final = ("1s", "2s", "5s", "40s")
_TIMES: Final = ("2020-01-01T00:00:00Z", "2024-01-01T00:00:00Z")
_NAMES: Final = ("a", "b", "c")
_BY_TAG: Final = 0.8
_BACKENDS: Final = {
    "logging": {
        "defaultBackend": "near",
        "backends": [
            {"name": "near", "type": "file", "conf": {"path": "/var/log/near.log"}},
            {"name": "far", "type": "tcp", "conf": {"address": "127.0.0.1:5000"}},
        ],
    },
    "tracing": {
        "defaultBackend": "near",
        "backends": [
            {"name": "near", "type": "zipkin", "conf": {"url": "http://127.0.0.1:9411/api/v2/spans"}},
            {"name": "far", "type": "datadog", "sampling": 50, "conf": {"address": "127.0.0.1", "port": 8126}},
        ],
    },
}


def mesh(chance: Random) -> Data:
    """A Mesh with collectors, to which logs and traces refer by their names."""
    engine = chance.choice(["Legacy", "TargetRef"])
    return {**proxies.mesh(chance), "policyEngine": engine, **_BACKENDS}


def dataplane(chance: Random) -> Data:
    """A proxy that calls most services by their tags: of others legacy policies know nothing."""
    drawn = proxies.dataplane(chance)
    for outbound in drawn["networking"].get("outbound") or ():
        if chance.random() < _BY_TAG and "backendRef" in outbound:
            del outbound["backendRef"]
            outbound["tags"] = {"kuma.io/service": chance.choice(SERVICES)}
    return drawn


def policy(kind: str, chance: Random) -> Data:
    selected = (
        {"selectors": several(chance, _proxies, 1, 2)}
        if kind in {"TrafficTrace", "ProxyTemplate"}
        else {
            "sources": several(chance, _proxies, 1, 2),
            "destinations": several(chance, _DESTINATIONS.get(kind, _services), 1, 2),
        }
    )
    named = {"type": kind, "mesh": "default", "name": chance.choice(_NAMES)}
    made = sometimes(chance, 0.5, {"creationTime": chance.choice(_TIMES)})
    return {**named, **made, **selected, **_CONFS[kind](chance)}


_AT_GATEWAYS: Final = (
    *("Timeout", "Retry", "CircuitBreaker", "HealthCheck", "TrafficLog", "TrafficRoute"),
    *("TrafficTrace", "ProxyTemplate"),
)


def policy_of_gateway(chance: Random) -> Data:
    """A policy that can do something at builtin gateways, for some of them."""
    drawn = policy(chance.choice(_AT_GATEWAYS), chance)
    service = chance.choice(["*", *GATEWAYS, GATEWAYS[0]])
    tags = {"kuma.io/service": service, **sometimes(chance, 0.2, team(chance))}
    return drawn | {"sources" if "sources" in drawn else "selectors": [{"match": tags}]}


def _services(chance: Random) -> Data:
    return {"match": {"kuma.io/service": chance.choice(["*", "*", *SERVICES, MISSING])}}


def _proxies(chance: Random) -> Data:
    return {"match": {**_services(chance)["match"], **sometimes(chance, 0.4, team(chance))}}


def _inbounds(chance: Random) -> Data:
    return {"match": {**_proxies(chance)["match"], **sometimes(chance, 0.2, {"kuma.io/protocol": "http"})}}


def _inbounds_of_http(chance: Random) -> Data:
    return {"match": {**_proxies(chance)["match"], "kuma.io/protocol": chance.choice(["http", "http2", "grpc"])}}


def _faults(chance: Random) -> Data:
    delay = {"value": chance.choice(_SECONDS), "percentage": chance.choice([10, 50.5])}
    abort = {"httpStatus": chance.choice([500, 503]), "percentage": 20}
    return {"conf": chance.choice([{"delay": delay}, {"abort": abort}, {"delay": delay, "abort": abort}])}


def _timeouts(chance: Random) -> Data:
    seconds = partial(chance.choice, _SECONDS)
    conf = sometimes(chance, 0.7, {"connectTimeout": seconds()})
    conf |= sometimes(chance, 0.5, {"tcp": {"idleTimeout": seconds()}})
    conf |= sometimes(chance, 0.3, {"grpc": {"streamIdleTimeout": seconds(), "maxStreamDuration": seconds()}})
    http = {"requestTimeout": seconds(), **sometimes(chance, 0.5, {"idleTimeout": seconds()})}
    return {"conf": conf | sometimes(chance, 0.7, {"http": http})}


def _retries(chance: Random) -> Data:
    retries = {"numRetries": chance.randint(1, 5), "perTryTimeout": chance.choice(_SECONDS)}
    http = {**retries, **sometimes(chance, 0.5, {"retryOn": ["reset", "connect_failure"]})}
    conf = {"http": http, **sometimes(chance, 0.5, {"tcp": {"maxConnectAttempts": chance.randint(1, 4)}})}
    return {"conf": conf | sometimes(chance, 0.5, {"grpc": {"numRetries": chance.randint(1, 3)}})}


def _circuit_breakers(chance: Random) -> Data:
    thresholds = {"maxConnections": chance.randint(1, 9), "maxRetries": 2}
    detectors = {"totalErrors": {"consecutive": chance.randint(1, 9)}, **sometimes(chance, 0.3, {"gatewayErrors": {}})}
    return {"conf": chance.choice([{"thresholds": thresholds}, {"interval": "3s", "detectors": detectors}])}


def _health_checks(chance: Random) -> Data:
    common = {"interval": chance.choice(_SECONDS), "timeout": "1s", "unhealthyThreshold": 3, "healthyThreshold": 1}
    return {"conf": {**common, **sometimes(chance, 0.5, {"http": {"path": chance.choice(PATHS)}})}}


def _rate_limits(chance: Random) -> Data:
    return {"conf": {"http": {"requests": chance.randint(1, 9), "interval": chance.choice(_SECONDS)}}}


def _routes(chance: Random) -> Data:
    conf: Data = {**_backends(chance), **sometimes(chance, 0.6, {"http": several(chance, _rule, 1, 3)})}
    return {"conf": conf | sometimes(chance, 0.3, {"loadBalancer": chance.choice([{"random": {}}, {"maglev": {}}])})}


def _rule(chance: Random) -> Data:
    kind = chance.choice(["prefix", "exact"])
    match: Data = {"path": {kind: chance.choice(PATHS)}, **sometimes(chance, 0.3, {"method": {"exact": "GET"}})}
    return {"match": match, **_backends(chance)}


def _backends(chance: Random) -> Data:
    if chance.random() < 0.6:
        return {"destination": _destination(chance)}
    return {"split": [{"weight": weight, "destination": _destination(chance)} for weight in (1, chance.randint(0, 3))]}


def _destination(chance: Random) -> Data:
    return {"kuma.io/service": chance.choice([*SERVICES, *SERVICES, MISSING]), **sometimes(chance, 0.3, team(chance))}


def _collected(chance: Random) -> Data:
    return sometimes(chance, 0.6, {"conf": {"backend": chance.choice(["near", "far"])}})


def _changes(chance: Random) -> Data:
    value = f"altStatName: {chance.choice(_NAMES)}"
    match = {"origin": chance.choice(["outbound", "inbound"])}
    changed = {"cluster": {"operation": "patch", "match": match, "value": value}}
    return {"conf": {"imports": ["default-proxy"], "modifications": [changed]}}


def _permissions(_chance: Random) -> Data:
    return {}


_CONFS: Final[dict[str, Callable[[Random], Any]]] = {
    "Timeout": _timeouts,
    "Retry": _retries,
    "CircuitBreaker": _circuit_breakers,
    "HealthCheck": _health_checks,
    "RateLimit": _rate_limits,
    "FaultInjection": _faults,
    "TrafficPermission": _permissions,
    "TrafficRoute": _routes,
    "TrafficLog": _collected,
    "TrafficTrace": _collected,
    "ProxyTemplate": _changes,
}

_DESTINATIONS: Final[dict[str, Make]] = {
    "RateLimit": _inbounds,
    "FaultInjection": _inbounds_of_http,
    "TrafficPermission": _inbounds,
}

MAKES: Final[dict[str, Make]] = {
    "legacy Mesh": mesh,
    "legacy Dataplane": dataplane,
    **{kind: partial(policy, kind) for kind in _CONFS},
}
