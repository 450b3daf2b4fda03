"""What lint says of policies for gRPC clients without a proxy."""

from __future__ import annotations

from typing import Any

import pytest

from cp.insight.explain import AmbiguousCall, explain, parse_call
from cp.insight.lint import lint
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import kinds
from cp.resources.world import World
from cp.translate.compiler import Compiler
from tests.random_mesh import MESH, document
from tests.snapshots import policies

CLIENT = document("Dataplane", "c", labels={"koguma.io/client": "grpc"}, networking={"address": "10.0.0.1"})
TAGS = {"kuma.io/service": "a", "kuma.io/protocol": "grpc"}
SERVER = document("Dataplane", "s", networking={"address": "10.0.0.2", "inbound": [{"port": 80, "tags": TAGS}]})
TO_CLIENTS = {"kind": "Dataplane", "labels": {"koguma.io/client": "grpc"}}
LOG = {"backends": [{"type": "File", "file": {"path": "/tmp/log"}}]}  # noqa: S108  # nobody writes to it


def codes(kind: str, default: dict[str, Any]) -> set[str]:
    spec = {"targetRef": TO_CLIENTS, "to": [{"targetRef": {"kind": "Mesh"}, "default": default}]}
    world = World.of([MESH, CLIENT, SERVER, document(kind, "p", spec=spec)], kinds(policies()))
    assert not list(world.findings)
    return {finding.code for finding in lint(policies(), world) if finding.resource and finding.resource.name != "s"}


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        ("MeshTimeout", {"http": {"requestTimeout": "1s"}}, set[str]()),
        ("MeshAccessLog", LOG, {"does-not-apply"}),
        ("MeshHealthCheck", {"http": {"path": "/"}, "interval": "1s", "timeout": "1s"}, {"does-not-apply"}),
    ],
)
def test_only_what_they_do_something_of_has_an_effect(kind: str, default: dict[str, Any], expected: set[str]) -> None:
    assert codes(kind, default) == expected


MTLS = {"enabledBackend": "ca", "backends": [{"name": "ca", "type": "builtin", "mode": "STRICT"}]}
STRICT = Document(MESH.key, {**MESH.data, "mtls": MTLS})
GATEWAY = {"type": "DELEGATED", "tags": {"kuma.io/service": "c"}}
NAMED = document("Dataplane", "c", labels=CLIENT.data["labels"], networking={"address": "10.0.0.1", "gateway": GATEWAY})


@pytest.mark.parametrize(
    ("client", "known", "expected"),
    [
        (NAMED, {NAMED.key: False}, "the bootstrap of the gRPC client names no certificates"),
        (NAMED, {NAMED.key: True}, ""),
        (NAMED, {}, ""),
        (CLIENT, {CLIENT.key: True}, "the gRPC client has no name to be certified"),
        (CLIENT, {}, "the gRPC client has no name to be certified"),
    ],
)
def test_a_client_is_said_to_be_refused_if_it_surely_speaks_plain_text(
    client: Document, known: dict[Key, bool], expected: str
) -> None:
    world = World.of([STRICT, SERVER, client], kinds(policies()))
    findings = lint(policies(), world, clients=known)
    refused = [finding.message for finding in findings if finding.code == "plain-text-refused"]

    assert len(refused) == bool(expected)
    assert all(expected in message for message in refused)


@pytest.mark.parametrize(
    ("client", "is_certified", "expected"),
    [
        (NAMED, True, "over TLS it shows spiffe://default/c"),
        (NAMED, False, "as far as is known its bootstrap names no certificates, so it speaks plain text"),
        (CLIENT, True, "it has no name to be certified, so it speaks plain text"),
    ],
)
def test_an_explanation_says_what_a_client_speaks(client: Document, is_certified: bool, expected: str) -> None:
    world, compiler = World.of([STRICT, SERVER, client], kinds(policies())), Compiler(policies())
    compiler.certified_clients = frozenset({client.key} if is_certified else ())
    dataplane = world.get(client.key)
    assert dataplane is not None

    with pytest.raises(AmbiguousCall, match=expected):
        explain(compiler, policies(), world, dataplane, parse_call("GET http://a:80/"))
