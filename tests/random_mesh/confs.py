"""What policies set: every field of timeouts and retries, and of the others a few that meet."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from tests.random_mesh.words import COLLECTORS, MISSING, SERVICES, TEAMS, ZONES, Data, Make, nullable, some_of

_CONDITIONS: Final = ("5xx", "GatewayError", "Reset", "ConnectFailure", "HttpMethodGet", "503", "Retriable4xx")
_GRPC_CONDITIONS: Final = ("Canceled", "DeadlineExceeded", "Internal", "ResourceExhausted", "Unavailable")
SERVER_NAMES: Final = ("a601e0c00295a9fbe.backend.80.default.ms", "aa37a23ac775842ef.orders.80.default.ms")
"""For which callers of port 80 of MeshServices ask."""

_CIPHER: Final = "ECDHE-ECDSA-AES128-GCM-SHA256"
_HEADER: Final = {"name": "x-try", "type": "Exact", "value": "1"}


def _duration(chance: Random, least: int = 0) -> str:
    number = chance.randint(least, 9)
    return chance.choice([f"{number}s", f"{number}m", f"{number * 100}ms"])


def _above_zero(chance: Random) -> str:
    return _duration(chance, 1)


def timeouts(chance: Random) -> Data:
    """Now and then what holds anyway."""
    if chance.random() < 0.1:
        return {"http": {"requestTimeout": "15s"}}
    fields: dict[str, Make] = {"connectionTimeout": _above_zero, "idleTimeout": _duration, "http": _http_timeouts}
    return nullable(chance, some_of(chance, fields))


def _http_timeouts(chance: Random) -> Data:
    names = ("requestTimeout", "streamIdleTimeout", "maxStreamDuration", "maxConnectionDuration")
    fields = nullable(chance, some_of(chance, dict.fromkeys(names, _duration)))
    return fields | ({"requestHeadersTimeout": _duration(chance)} if chance.random() < 0.3 else {})


def timeouts_of_route(chance: Random) -> Data:
    names = ("requestTimeout", "streamIdleTimeout")
    return {"http": nullable(chance, some_of(chance, dict.fromkeys(names, _duration)), 0.4)}


def timeouts_of_tcp_route(chance: Random) -> Data:
    """Nothing but a null, now and then: it is the only field."""
    value = _duration(chance)
    return {"idleTimeout": None if value.startswith("1") else value}


def timeouts_of_clients(chance: Random) -> Data:
    """What can be told apart by who calls."""
    return timeouts_of_route(chance)


def _back_off(chance: Random) -> Data:
    """Now and then with what would hold without it."""
    base = chance.choice(["25ms", "7ms", "90ms"])
    return some_of(chance, {"baseInterval": lambda _: base, "maxInterval": lambda _: "1s"})


def _retries_with(conditions: Sequence[str], **more: Make) -> Make:
    fields: dict[str, Make] = {
        "numRetries": lambda chance: chance.randint(0, 5),
        "perTryTimeout": _duration,
        "backOff": _back_off,
        "retryOn": lambda chance: sorted(chance.sample(conditions, chance.randint(1, 3))),
        "rateLimitedBackOff": lambda _: {"resetHeaders": [{"name": "retry-after", "format": "Seconds"}]},
    }
    return lambda chance: nullable(chance, some_of(chance, {**fields, **more}))


_SECTIONS: Final[dict[str, Make]] = {
    "http": _retries_with(
        _CONDITIONS,
        retriableRequestHeaders=lambda _: [_HEADER],
        retriableResponseHeaders=lambda _: [_HEADER],
        hostSelection=lambda _: [{"predicate": "OmitPreviousHosts"}],
        hostSelectionMaxAttempts=lambda chance: chance.randint(1, 5),
    ),
    "grpc": _retries_with(_GRPC_CONDITIONS),
    "tcp": lambda chance: {"maxConnectAttempt": chance.randint(1, 5)},
}


def retries(chance: Random) -> Data:
    sections = some_of(chance, _SECTIONS)
    if set(sections.get("http", ())) == {"hostSelectionMaxAttempts"}:
        sections["http"]["numRetries"] = 2
    return nullable(chance, sections, 0.05)


def retries_of_route(chance: Random) -> Data:
    sections = retries(chance)
    sections.pop("tcp", None)
    return sections if any(sections.values()) else {"http": {"numRetries": 3}}


def retries_of_tcp_route(chance: Random) -> Data:
    return {"tcp": _SECTIONS["tcp"](chance)}


def breaker(chance: Random) -> Data:
    """Few fields and few values, so that several say the same, and nulls over nulls."""
    names = chance.sample(["maxConnections", "maxRetries"], chance.randrange(1, 3))
    limits: Data = {name: chance.choice([1, 2, None]) for name in names}
    conf: Data = {"connectionLimits": chance.choice([limits, limits, None])}
    if chance.random() < 0.5 or conf["connectionLimits"] is None:
        conf["outlierDetection"] = {"detectors": {"totalFailures": {}}}
    return conf


def check(chance: Random) -> Data:
    """Objects that say something by being there, and nulls over each other."""
    kinds = chance.sample(["http", "tcp", "grpc"], chance.choice([1, 1, 2]))
    checks: Data = {kind: chance.choice([{}, {"disabled": True}, {}]) for kind in kinds}
    return nullable(chance, checks, 0.3) | {"interval": chance.choice(["5s", "6s"])}


def balancing(chance: Random) -> Data:
    conf: Data = {}
    if chance.random() < 0.5:
        kind = chance.choice(["RoundRobin", "Random", "LeastRequest", "RingHash", "Maglev"])
        conf["loadBalancer"] = {"type": kind}
    if chance.random() < 0.6 or not conf:
        conf["localityAwareness"] = _locality(chance)
    return conf


def _locality(chance: Random) -> Data:
    awareness: Data = {"disabled": chance.random() < 0.5}
    if chance.random() < 0.5:
        awareness["localZone"] = {"affinityTags": [{"key": "team"}]}
    if chance.random() < 0.3:
        awareness["crossZone"] = {"failover": [{"to": {"type": "Only", "zones": [chance.choice(ZONES)]}}]}
    return awareness


def hashes(_chance: Random) -> Data:
    return {"hashPolicies": [{"type": "Header", "header": {"name": "x-user"}}]}


def collected(chance: Random) -> Data:
    by_name = {"name": chance.choice([*COLLECTORS, MISSING])}
    target = by_name if chance.random() < 0.5 else {"labels": {"team": chance.choice(TEAMS)}}
    reference = {"kind": "MeshOpenTelemetryBackend", **target}
    return {"backends": [{"type": "OpenTelemetry", "openTelemetry": {"backendRef": reference}}]}


def logged(chance: Random) -> Data:
    if chance.random() < 0.5:
        return collected(chance)
    return {"backends": [{"type": "File", "file": {"path": chance.choice(["/dev/null", "/dev/stderr"])}}]}


def action(chance: Random) -> Data:
    return {"action": chance.choice(["Allow", "Deny", "AllowWithShadowDeny"])}


def tls(chance: Random) -> Data:
    return {"mode": chance.choice(["Strict", "Permissive"])}


def permissions(spec: Data) -> Data:
    """In place of most lists by tags, lists by identity and by server name, which meet each other."""
    chance = Random(repr(spec))
    if chance.random() < 0.4:
        return spec
    rules = [{"default": _lists(chance)} for _ in spec["from"]]
    return {**{name: value for name, value in spec.items() if name != "from"}, "rules": rules}


def _lists(chance: Random) -> Data:
    names = chance.sample(["allow", "allow", "allowWithShadowDeny", "deny"], chance.choice([1, 1, 2]))
    return {name: [client(chance) for _ in range(chance.choice([1, 1, 2]))] for name in names}


def client(chance: Random) -> Data:
    """Who calls, for `rules` and permissions."""
    path = chance.choice([*SERVICES, *SERVICES, "", MISSING])
    is_prefix = not path or chance.random() < 0.2
    spiffe = {"type": "Prefix" if is_prefix else "Exact", "value": f"spiffe://default/{path}"}
    sni = {"type": "Exact", "value": chance.choice(SERVER_NAMES)}
    return chance.choice([{"spiffeID": spiffe}, {"spiffeID": spiffe}, {"spiffeID": spiffe, "sni": sni}, {"sni": sni}])


def versions(spec: Data) -> Data:
    """Now and then with versions and ciphers, where a policy may have them: it is for all of the mesh."""
    chance = Random(repr(spec))
    is_for_all = spec.get("targetRef", {"kind": "Mesh"}) == {"kind": "Mesh"}
    if not is_for_all or chance.random() < 0.5:
        return spec
    version = chance.choice(
        [{"min": "TLS12"}, {"max": "TLS12"}, {"max": "TLS13"}, {"max": "TLS11"}, {"min": "TLSAuto"}]
    )
    more: Data = chance.choice([{"tlsVersion": version}, {"tlsVersion": version, "tlsCiphers": [_CIPHER]}])
    first, *others = spec["from"]
    return {**spec, "from": [{**first, "default": {**first["default"], **more}}, *others]}


def faults(chance: Random) -> Data:
    return {"http": [{"abort": {"httpStatus": chance.choice([500, 503]), "percentage": 1}}]}


def as_good_as_none(spec: Data) -> Data:
    """In place of some confs of clients one that comes to nothing: an empty list, half a rate, what is switched off."""
    chance = Random(f"as good as none {spec!r}")
    emptied: Data = {
        part: [_emptied(chance, item) for item in spec[part]] for part in ("from", "rules") if part in spec
    }
    return {**spec, **emptied}


def _emptied(chance: Random, item: Data) -> Data:
    conf = item["default"]
    if chance.random() < 0.75:
        return item
    if "local" in conf:
        protocol, rate = next((name, of) for name, section in conf["local"].items() for of in section.values())
        field = {"http": "requestRate", "tcp": "connectionRate"}[protocol]
        return {**item, "default": {"local": {protocol: {field: {**rate, "interval": None}}}}}
    if "connectionLimits" in conf:
        detection = {"disabled": True, "detectors": {"totalFailures": {}}}
        return {**item, "default": {"outlierDetection": detection}}
    return {**item, "default": {name: [] if isinstance(value, list) else value for name, value in conf.items()}}


def limit(chance: Random) -> Data:
    return limit_of_requests(chance) if chance.random() < 0.5 else {"local": {"tcp": {"connectionRate": _rate(chance)}}}


def limit_of_requests(chance: Random) -> Data:
    return {"local": {"http": {"requestRate": _rate(chance)}}}


def _rate(chance: Random) -> Data:
    return {"num": chance.randint(100, 102), "interval": "10s"}


def passthrough(chance: Random) -> Data:
    """One conf for a proxy, with a list to which everybody adds."""
    conf: Data = {"passthroughMode": chance.choice(["All", "None", "Matched", None])} if chance.random() < 0.7 else {}
    protocol = chance.choice(["tcp", "http"])
    match = {"type": "IP", "value": f"10.0.0.{chance.randrange(3)}", "protocol": protocol, "port": 80}
    return conf | ({"appendMatch": [match]} if chance.random() < 0.6 or not conf else {})
