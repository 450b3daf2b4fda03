"""MeshGatewayRoutes, with the gateways that they are for, and VirtualOutbounds."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from tests.random_mesh import gateways
from tests.random_mesh.words import GATEWAYS, MISSING, PATHS, SERVICES, TEAMS, Data, Make, several, sometimes, weighted

_SERVICE: Final = "kuma.io/service"


def edge(chance: Random) -> Iterator[Data]:
    """Builtin gateways with MeshGatewayRoutes, and now and then a newer route beside them."""
    yield from several(chance, gateways.proxy, 1, 2)
    yield from several(chance, gateways.gateway, 1, 2)
    yield from several(chance, gateways.certificate, 1, 2)
    yield from several(chance, route, 1, 4)
    if chance.random() < 0.1:
        yield gateways.http_route(chance)


def route(chance: Random) -> Data:
    """A MeshGatewayRoute. Of some it is known when they were made."""
    of_protocol = weighted([(4, lambda drawn: {"http": _http(drawn)}), (1, lambda drawn: {"tcp": _tcp(drawn)})])
    return {
        "type": "MeshGatewayRoute",
        "mesh": "default",
        "name": chance.choice(["all", "shop", "of-team", "z-last"]),
        "selectors": several(chance, _selector, 1, 2),
        "conf": of_protocol(chance),
        **sometimes(chance, 0.7, {"creationTime": f"2024-01-0{chance.randint(1, 4)}T00:00:00Z"}),
    }


def _selector(chance: Random) -> Data:
    tags = {_SERVICE: chance.choice(["*", *GATEWAYS, GATEWAYS[0]])}
    tags |= sometimes(chance, 0.4, {"listener": chance.choice(["x", "y", "*"])})
    return {"match": tags | sometimes(chance, 0.15, {"team": chance.choice(TEAMS)})}


def _tcp(chance: Random) -> Data:
    return {"rules": [{"backends": several(chance, _backend, 1, 2)}]}


def _http(chance: Random) -> Data:
    hostnames = {"hostnames": chance.sample(gateways.ROUTED, chance.choice([1, 1, 2]))}
    return sometimes(chance, 0.4, hostnames) | {"rules": several(chance, _rule, 1, 3)}


def _rule(chance: Random) -> Data:
    """Few paths, so that rules of several routes have the same matches."""
    filters: list[Data] = weighted([(6, lambda _: []), (1, _headers), (1, _redirects), (1, _rewrites), (1, _mirrors)])(
        chance
    )
    matches = several(chance, _match, 1, 2)
    if any("replacePrefixMatch" in str(each) for each in filters):
        matches = [{**match, "path": {"match": "PREFIX", "value": "/api"}} for match in matches]
    backends = {} if any("redirect" in each for each in filters) else {"backends": several(chance, _backend, 1, 2)}
    return {"matches": matches, **({"filters": filters} if filters else {}), **backends}


def _match(chance: Random) -> Data:
    path: Data = {"match": chance.choice(["PREFIX", "PREFIX", "EXACT", "REGEX"]), "value": chance.choice(PATHS)}
    header = {
        "name": chance.choice(["x-version", "X-Version"]),
        **chance.choice([{"value": "1"}, {"match": "PRESENT"}, {"match": "ABSENT"}]),
    }
    match = {"path": path} | sometimes(chance, 0.2, {"method": chance.choice(["GET", "POST"])})
    match |= sometimes(chance, 0.2, {"headers": [header]})
    return match | sometimes(chance, 0.1, {"queryParameters": [{"name": "q", "value": "1"}]})


def _backend(chance: Random) -> Data:
    tags = {_SERVICE: chance.choice([*SERVICES, *SERVICES, MISSING])}
    tags |= sometimes(chance, 0.2, {"team": chance.choice(TEAMS)})
    return {"destination": tags} | sometimes(chance, 0.7, {"weight": chance.choice([0, 1, 9])})


def _headers(chance: Random) -> list[Data]:
    name = chance.choice(["x-route", "X-Route", "host"])
    changes: dict[str, Make] = {
        "requestHeader": lambda _: {"set": [{"name": name, "value": "yes"}]},
        "responseHeader": lambda _: {"add": [{"name": "x-answer", "value": "yes"}], "remove": ["x-secret"]},
    }
    chosen = chance.choice(sorted(changes))
    return [{chosen: changes[chosen](chance)}]


def _redirects(chance: Random) -> list[Data]:
    host = sometimes(chance, 0.5, {"hostname": "else.where"}) | sometimes(chance, 0.5, {"port": 8443})
    return [{"redirect": {"scheme": "https", "statusCode": chance.choice([301, 302]), **host}}]


def _rewrites(chance: Random) -> list[Data]:
    paths = [{"replaceFull": "/new"}, {"replacePrefixMatch": "/new"}, {"replacePrefixMatch": "/"}]
    return [{"rewrite": chance.choice([*paths, {"hostToBackendHostname": True}])}]


def _mirrors(chance: Random) -> list[Data]:
    return [{"mirror": {"percentage": 50, "backend": {"destination": {_SERVICE: chance.choice(SERVICES)}}}}]


def virtual_outbound(chance: Random) -> Data:
    """Names for what has some tags, or for nothing that is there."""
    selector = {_SERVICE: chance.choice(["*", *SERVICES, MISSING])}
    parameters = [{"name": "service", "tagKey": _SERVICE}, {"name": "team", "tagKey": "team"}]
    host, used = chance.choice([("{{.service}}.mesh", 1), ("{{.team}}.{{.service}}.mesh", 2)])
    conf = {"host": host, "port": chance.choice(["80", "8080"]), "parameters": parameters[:used]}
    return {
        "type": "VirtualOutbound",
        "mesh": "default",
        "name": chance.choice(["all", "by-team"]),
        "selectors": [{"match": selector | sometimes(chance, 0.2, {"team": chance.choice(TEAMS)})}],
        "conf": conf,
    }


_HOSTS: Final = (
    *("{{.service}}.mesh", "{{.service}}", "{{.team}}.{{.service}}.shop", "{{.service}}.svc.mesh.local"),
    *("shop.example", "api.example.com", "127.0.0.1"),
)


def virtual_outbound_of_any_name(chance: Random) -> Data:
    """One whose names may be those of others: of tags, of services, of hosts outside."""
    drawn = virtual_outbound(chance)
    parameters = [{"name": "service", "tagKey": _SERVICE}, {"name": "team", "tagKey": "team"}]
    used = parameters[: chance.choice([1, 2])]
    host = chance.choice([name for name in _HOSTS if "team" not in name or len(used) > 1])
    conf = {"host": host, "port": chance.choice(["80", "443", "8080"]), "parameters": used}
    return {**drawn, "name": chance.choice(["a", "b", "c", "d"]), "conf": conf}
