"""MeshHTTPRoutes and MeshTCPRoutes: with splits, mirrors, redirects, and with no rule at all."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.random_mesh.targets import PROXIES, called, top
from tests.random_mesh.words import (
    MISSING,
    NAMESPACES,
    PATHS,
    PORTS,
    ROUTES,
    SERVICES,
    TCP_ROUTES,
    Data,
    home,
    several,
    sometimes,
    team,
    weighted,
)


def http_route(chance: Random) -> Data:
    spec = {**top(chance, (*PROXIES, "MeshGateway")), "to": []}
    if spec.get("targetRef", {}).get("kind") == "MeshGateway":
        spec["to"] = [{"targetRef": {"kind": "Mesh"}, "rules": several(chance, _gateway_rule, 1, 2)}]
    else:
        spec["to"] = several(chance, _http_item, 1, 2)
    return home(chance).named("MeshHTTPRoute", chance.choice(ROUTES), {}, spec=with_nulls(spec))


def _http_item(chance: Random) -> Data:
    return {"targetRef": called(chance), "rules": several(chance, _http_rule, chance.choice([0, 1, 1, 1]), 3)}


def _gateway_rule(chance: Random) -> Data:
    """A gateway has no service of its own."""
    return {"matches": several(chance, _match, 1, 2), "default": {"backendRefs": several(chance, backend, 1, 3)}}


def _http_rule(chance: Random) -> Data:
    return {"matches": several(chance, _match, 1, 2), "default": _sent(chance)}


def _sent(chance: Random) -> Data:
    """What becomes of a request: it goes to backends, is redirected, or goes where it would without the route."""
    default: Data = {}
    if chance.random() < 0.6:
        default["backendRefs"] = several(chance, backend, 1, 3)
    if chance.random() < 0.3:
        default["filters"] = [weighted([(2, _redirect), (1, _mirror), (1, _header)])(chance)]
    return default


def _redirect(_chance: Random) -> Data:
    return {"type": "RequestRedirect", "requestRedirect": {"statusCode": 301, "hostname": "else"}}


def _mirror(chance: Random) -> Data:
    ref = backend(chance)
    ref.pop("weight", None)
    return {"type": "RequestMirror", "requestMirror": {"backendRef": ref}}


def _header(_chance: Random) -> Data:
    changes = {"set": [{"name": "x-route", "value": "yes"}]}
    return {"type": "RequestHeaderModifier", "requestHeaderModifier": changes}


def _match(chance: Random) -> Data:
    kind, value = chance.choice(["Exact", "PathPrefix", "PathPrefix", "RegularExpression"]), chance.choice(PATHS)
    conditions: Data = {"path": {"type": kind, "value": f"{value}.*" if kind == "RegularExpression" else value}}
    conditions |= sometimes(chance, 0.25, {"method": chance.choice(["GET", "POST"])})
    if chance.random() < 0.25:
        conditions["headers"] = [{"name": "x-version", "type": "Exact", "value": chance.choice(["1", "2"])}]
    if chance.random() < 0.1:
        conditions["queryParams"] = [{"type": "Exact", "name": "q", "value": chance.choice(["1", "2"])}]
    return conditions


def backend(chance: Random) -> Data:
    """With a weight or without, 0 and large ones too; some lead to what is not there."""
    backend_ref = weighted([(5, _real), (2, _tagged), (1, _subset), (1, _outside), (1, _by_labels)])(chance)
    weight = chance.choice([0, 1, 2, 9, 1000])
    return {**backend_ref, **sometimes(chance, 0.5, {"weight": weight})}


def _real(chance: Random) -> Data:
    backend_ref = {"kind": "MeshService", "name": _name(chance), "port": chance.choice(PORTS)}
    return backend_ref | sometimes(chance, 0.1, {"namespace": chance.choice(NAMESPACES)})


def _name(chance: Random) -> str:
    return chance.choice([*SERVICES, *SERVICES, *SERVICES, MISSING])


def _tagged(chance: Random) -> Data:
    """Without a port."""
    return {"kind": "MeshService", "name": _name(chance)}


def _subset(chance: Random) -> Data:
    return {"kind": "MeshServiceSubset", "name": _name(chance), "tags": team(chance)}


def _outside(chance: Random) -> Data:
    return {"kind": chance.choice(["MeshExternalService", "MeshMultiZoneService"]), "name": _name(chance), "port": 80}


def _by_labels(chance: Random) -> Data:
    return {"kind": "MeshService", "labels": team(chance), "port": chance.choice(PORTS)}


def tcp_route(chance: Random) -> Data:
    spec = {**top(chance), "to": several(chance, _tcp_item, 1, 2)}
    return home(chance).named("MeshTCPRoute", chance.choice(TCP_ROUTES), {}, spec=spec)


def _tcp_item(chance: Random) -> Data:
    rules = [{"default": {"backendRefs": several(chance, backend, 1, 3)}}]
    return {"targetRef": called(chance), "rules": rules}


def with_nulls(spec: Data) -> Data:
    """Now and then a weight is null, which is none at all."""
    chance = Random(f"nulls {spec!r}")

    def changed(data: Any) -> Any:
        if isinstance(data, list):
            return [changed(entry) for entry in data]
        if not isinstance(data, dict):
            return data
        nulls = {name: None for name in ("weight",) if name in data and chance.random() < 0.2}
        return {name: changed(value) for name, value in data.items()} | nulls

    varied: Data = changed(spec)
    return varied
