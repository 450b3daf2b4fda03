"""Documents for tests, as short as they can be said."""

from __future__ import annotations

import json
from typing import Any

Data = dict[str, Any]

MESH: Data = {"type": "Mesh", "name": "default"}


def text(*some: Data | str) -> str:
    """Documents, as data or as YAML, in one text."""
    return "\n---\n".join(one if isinstance(one, str) else json.dumps(one) for one in some)


def proxy(
    name: str = "web", *, inbounds: list[Data] | None = None, labels: Data | None = None, **networking: Any
) -> Data:
    """A sidecar with one inbound that carries its name for a service."""
    found = [{"port": 80, "tags": {"kuma.io/service": name}}] if inbounds is None else inbounds
    networking = {"address": "192.168.0.1", **({"inbound": found} if found else {}), **networking}
    return _named("Dataplane", name, labels) | {"networking": networking}


def inbound(port: int, name: str = "", **tags: str) -> Data:
    tags = {"kuma.io/service": "web", **{tag.replace("_", "/"): value for tag, value in tags.items()}}
    return {"port": port, "tags": tags, **({"name": name} if name else {})}


def gateway(name: str = "edge", kind: str = "BUILTIN", **tags: str) -> Data:
    found = {"type": kind, "tags": {"kuma.io/service": name, **tags}}
    return proxy(name, inbounds=[], gateway=found)


def mesh_gateway(name: str = "edge", *listeners: Data, match: Data | None = None, labels: Data | None = None) -> Data:
    found = list(listeners) or [{"port": 8080, "protocol": "HTTP"}]
    selectors = [{"match": {"kuma.io/service": "edge"} if match is None else match}]
    return _named("MeshGateway", name, labels) | {"selectors": selectors, "conf": {"listeners": found}}


def service(name: str, *ports: tuple[int, str], labels: Data | None = None, kind: str = "MeshService") -> Data:
    some = ports or ((80, "http"),)
    found = [{"port": port, "appProtocol": "http", **({"name": called} if called else {})} for port, called in some]
    selector: Data = {"dataplaneTags": {"app": name}}
    if kind == "MeshMultiZoneService":
        selector = {"meshService": {"matchLabels": {"app": name}}}
    return _named(kind, name, labels) | {"spec": {"selector": selector, "ports": found}}


def timeout(name: str, to: Data | list[tuple[Data, Any]], conf: Any = None, **rest: Any) -> Data:
    """A MeshTimeout: a number is its requestTimeout in seconds, None a null."""
    items = [(to, conf)] if isinstance(to, dict) else to
    found = [{"targetRef": target, "default": _timeouts(conf)} for target, conf in items]
    return policy("MeshTimeout", name, to=found, **rest)


def _timeouts(conf: Any) -> Data:
    if isinstance(conf, dict):
        return conf
    return {"http": {"requestTimeout": None if conf is None else f"{conf}s", "maxStreamDuration": "1h"}}


def policy(kind: str, name: str, *, top: Data | None = None, labels: Data | None = None, **spec: Any) -> Data:
    target = {} if top is None else {"targetRef": top}
    return _named(kind, name, labels) | {"spec": {**target, **{part.rstrip("_"): one for part, one in spec.items()}}}


def route(name: str, to: str | Data = "backend", *paths: str, top: Data | None = None, **rest: Any) -> Data:
    target = {"kind": "MeshService", "name": to} if isinstance(to, str) else to
    rules = [
        {"matches": [{"path": {"type": "PathPrefix", "value": path}}], "default": {}} for path in paths or ("/v1",)
    ]
    return policy("MeshHTTPRoute", name, top=top, to=[{"targetRef": target, "rules": rules}], **rest)


def _named(kind: str, name: str, labels: Data | None) -> Data:
    return {"type": kind, "mesh": "default", "name": name, **({"labels": labels} if labels else {})}


WHOLE_MESH: Data = {"kind": "Mesh"}


def ms(name: str, **more: Any) -> Data:
    """A target of kind MeshService."""
    return {"kind": "MeshService", "name": name, **more}


def hr(name: str, **more: Any) -> Data:
    """A target of kind MeshHTTPRoute."""
    return {"kind": "MeshHTTPRoute", "name": name, **more}


def subset(**tags: str) -> Data:
    return {"kind": "MeshSubset", "tags": tags}
