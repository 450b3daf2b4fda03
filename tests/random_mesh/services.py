"""What can be called: services of every kind, of one display name, in namespaces and zones; and what they need."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from random import Random
from typing import Any, Final

import trustme

from tests.random_mesh.words import (
    COLLECTORS,
    PORTS,
    PROTOCOLS,
    SECRETS,
    SERVICES,
    TEAMS,
    Data,
    Home,
    home,
    in_kubernetes,
    sometimes,
    team,
)

TARGET_PORTS: Final = (9000, 9001)
"""On which proxies serve."""


def service(chance: Random) -> Data:
    """A MeshService; several may have one display name."""
    ports = [_port(chance, port) for port in chance.sample(PORTS, chance.randint(1, 2))]
    spec = {"selector": {"dataplaneTags": _chosen(chance)}, "ports": ports}
    name, labels, origin = chance.choice(SERVICES), team(chance), home(chance)
    if origin.namespace and chance.random() < 0.5:
        return in_kubernetes("MeshService", name, origin.namespace, labels, spec)
    return origin.named("MeshService", name, labels, spec=spec, **_address(chance))


def _chosen(chance: Random) -> Data:
    return {"kuma.io/service": chance.choice(SERVICES)} if chance.random() < 0.8 else team(chance)


def _port(chance: Random, port: int) -> Data:
    name = sometimes(chance, 0.5, {"name": f"port-{port}"})
    target = chance.choice((*TARGET_PORTS, 9000))
    return {**name, "port": port, "targetPort": target, "appProtocol": chance.choice(PROTOCOLS)}


def _address(chance: Random) -> Data:
    """Now and then an address of its own."""
    return sometimes(chance, 0.15, {"status": {"vips": [{"ip": f"241.0.0.{chance.randrange(1, 4)}"}]}})


def service_outside(chance: Random) -> Data:
    """A MeshExternalService: one that can be served if its secrets are there, and are what they should be."""
    spec: Data = {"match": {"port": chance.choice(PORTS), "protocol": chance.choice(PROTOCOLS)}}
    if chance.random() < 0.8:
        host = chance.choice(["127.0.0.1", "localhost", "10.9.9.9"])
        spec["endpoints"] = [{"address": host, "port": 8000 + chance.randrange(4), "priority": chance.randrange(3)}]
    if chance.random() < 0.35:
        spec["tls"] = {"enabled": True, "verification": _verification(chance)}
    return _home_outside(chance).named(
        "MeshExternalService", chance.choice(SERVICES), team(chance), spec=spec, **_address(chance)
    )


def _home_outside(chance: Random) -> Home:
    return home(chance) if chance.random() < 0.5 else Home()


def _verification(chance: Random) -> Data:
    verification: Data = {"mode": chance.choice(["Secured", "SkipSAN", "SkipCA", "SkipAll"])}
    if chance.random() < 0.8:
        verification["caCert"] = {"secret": chance.choice(SECRETS)}
    if chance.random() < 0.3:
        verification["clientCert"] = {"secret": chance.choice(SECRETS)}
        verification["clientKey"] = {"secret": chance.choice(SECRETS)}
    return verification


def service_of_several_zones(chance: Random) -> Data:
    """A MeshMultiZoneService."""
    ports = [{"port": port, "appProtocol": chance.choice(PROTOCOLS)} for port in chance.sample(PORTS, 1)]
    spec = {"selector": {"meshService": {"matchLabels": team(chance)}}, "ports": ports}
    return home(chance).named(
        "MeshMultiZoneService", chance.choice(SERVICES), team(chance), spec=spec, **_address(chance)
    )


def external_service(chance: Random) -> Data:
    """The older kind, which is called by a tag."""
    tags = {"kuma.io/service": chance.choice(SERVICES), "kuma.io/protocol": chance.choice(PROTOCOLS)}
    networking = {"address": "127.0.0.1:9443"}
    return {"type": "ExternalService", "mesh": "default", "name": "old", "networking": networking, "tags": tags}


def secret(chance: Random) -> Data:
    """A certificate with its key, or nothing that anybody could use."""
    text = chance.choice([*_certificates(), "neither"])
    data = b64encode(text.encode()).decode()
    return {"type": "Secret", "mesh": "default", "name": chance.choice(SECRETS), "data": data}


@cache
def _certificates() -> tuple[str, ...]:
    """Made anew in each run: nothing depends on what they say."""
    issued = (trustme.CA().issue_cert("localhost") for _ in range(2))
    return tuple(certificate.private_key_and_cert_chain_pem.bytes().decode() for certificate in issued)


def collector(chance: Random) -> Data:
    """Something that policies refer to by its name, or by the label of a team."""
    endpoint = {"address": f"127.0.0.{chance.randrange(9)}"}
    name, labels = chance.choice(COLLECTORS), {"team": chance.choice(TEAMS)}
    return Home().named("MeshOpenTelemetryBackend", name, labels, spec={"endpoint": endpoint})


def names(chance: Random) -> Data:
    """A HostnameGenerator."""
    kind = chance.choice(["meshService", "meshExternalService", "meshMultiZoneService"])
    labels: dict[str, Any] = sometimes(chance, 0.5, {"matchLabels": team(chance)})
    template = chance.choice(["{{ .Name }}.example", '{{ label "team" }}.{{ .Mesh }}'])
    spec = {"selector": {kind: labels}, "template": template}
    return {"type": "HostnameGenerator", "name": f"g-{chance.randrange(2)}", "spec": spec}
