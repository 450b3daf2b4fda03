"""Single rules of lint: what is compared with what, and that work grows with the mesh and not with its square."""

from __future__ import annotations

from typing import Any

import pytest

from cp.insight.lint import lint
from cp.insight.lint.routes import covers, paths_over
from cp.insight.lint.survey import MeshSurvey
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import kinds
from cp.resources.world import World
from cp.translate.compiler import Compiler
from generators.proxy import Protocol
from tests.random_mesh import MESH, document
from tests.snapshots import policies

SECTIONS: dict[tuple[str, str], dict[str, Any]] = {
    ("MeshTimeout", "http"): {"http": {"requestTimeout": "2s"}},
    ("MeshRetry", "http"): {"http": {"numRetries": 3}},
    ("MeshRetry", "grpc"): {"grpc": {"numRetries": 3}},
    ("MeshRetry", "tcp"): {"tcp": {"maxConnectAttempt": 3}},
    ("MeshHealthCheck", "http"): {"interval": "5s", "http": {"path": "/health"}},
    ("MeshHealthCheck", "grpc"): {"interval": "5s", "grpc": {"serviceName": "health"}},
    ("MeshFaultInjection", "http"): {"http": [{"abort": {"httpStatus": 500, "percentage": 10}}]},
    ("MeshRateLimit", "local.http"): {"local": {"http": {"requestRate": {"num": 1, "interval": "1s"}}}},
    ("MeshRateLimit", "local.tcp"): {"local": {"tcp": {"connectionRate": {"num": 1, "interval": "1s"}}}},
}

MEANS = {policy.kind.name: policy.section_protocols for policy in policies()}


def mesh(protocol: str = "http", proxies: int = 1, services: int = 1) -> list[Document]:
    """Proxies that serve the first of some services, and call all of them."""
    numbers = range(services)
    outbounds = [
        {"port": 10000 + n, "backendRef": {"kind": "MeshService", "name": f"s{n}", "port": 80}} for n in numbers
    ]
    tags = {"kuma.io/service": "s0", "kuma.io/protocol": protocol}
    inbound = [{"port": 8080, "tags": tags}]
    return [
        MESH,
        *(
            document(
                "Dataplane",
                f"p{n}",
                networking={"address": f"10.0.0.{n + 1}", "inbound": inbound, "outbound": outbounds},
            )
            for n in range(proxies)
        ),
        *(
            document(
                "MeshService",
                f"s{n}",
                spec={
                    "selector": {"dataplaneTags": {"kuma.io/service": f"s{n}"}},
                    "ports": [{"port": 80, "targetPort": 8080, "appProtocol": protocol}],
                },
            )
            for n in numbers
        ),
    ]


def world(documents: list[Document]) -> World:
    made = World.of(documents, kinds(policies()))
    assert not [str(finding) for finding in made.findings if finding.severity == "error"]
    return made


def policy(kind: str, conf: dict[str, Any], name: str = "p") -> Document:
    """For calls to a service; or, of a policy that is about those who are called, for inbounds."""
    if kind in {"MeshFaultInjection", "MeshRateLimit"}:
        top = {"targetRef": {"kind": "Mesh", "proxyTypes": ["Sidecar"]}}
        return document(kind, name, spec={**top, "rules": [{"default": conf}]})
    return document(kind, name, spec={"to": [{"targetRef": {"kind": "MeshService", "name": "s0"}, "default": conf}]})


def served(documents: list[Document]) -> Any:
    made = world(documents)
    dataplane = made.get(Key("Dataplane", "default", "p0"))
    assert dataplane is not None
    return Compiler(policies()).snapshot(made, dataplane)


@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize(
    ("kind", "section"), [(kind, section) for kind, sections in MEANS.items() for section in sections]
)
def test_a_section_has_a_meaning_where_it_changes_what_is_served(kind: str, section: str, protocol: Protocol) -> None:
    documents, conf = mesh(protocol), SECTIONS[kind, section]
    changes = served([*documents, policy(kind, conf)]) != served(documents)

    assert changes == (protocol in MEANS[kind][section])


@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize(
    ("kind", "section"), [(kind, section) for kind, sections in MEANS.items() for section in sections]
)
def test_a_section_without_a_meaning_is_told(kind: str, section: str, protocol: Protocol) -> None:
    findings = lint(policies(), world([*mesh(protocol), policy(kind, SECTIONS[kind, section])]))

    told = [finding.path.endswith(section) for finding in findings if finding.code == "no-meaning"]
    assert told == ([] if protocol in MEANS[kind][section] else [True])


def path(kind: str, value: str, **more: Any) -> dict[str, Any]:
    return {"path": {"type": kind, "value": value}, **more}


@pytest.mark.parametrize(
    ("earlier", "later", "expected"),
    [
        (path("PathPrefix", "/"), path("Exact", "/a"), True),
        (path("PathPrefix", "/a"), path("Exact", "/a"), True),
        (path("PathPrefix", "/a"), path("PathPrefix", "/a/b"), True),
        (path("PathPrefix", "/a"), path("PathPrefix", "/ab"), False),
        (path("PathPrefix", "/a/b"), path("PathPrefix", "/a"), False),
        (path("Exact", "/a"), path("PathPrefix", "/a"), False),
        (path("Exact", "/a"), path("Exact", "/a"), True),
        (path("PathPrefix", "/"), path("RegularExpression", ".*"), True),
        (path("PathPrefix", "/a"), path("RegularExpression", "/a/b.*"), True),
        (path("PathPrefix", "/a"), path("RegularExpression", "/a.*"), False),
        (path("PathPrefix", "/a/b"), path("RegularExpression", "/a/b?c"), False),
        (path("PathPrefix", "/a"), path("RegularExpression", "/a/b|/c"), False),
        (path("RegularExpression", "/a.*"), path("RegularExpression", "/a.*"), True),
        (path("RegularExpression", "/a.*"), path("Exact", "/ab"), False),
        (path("PathPrefix", "/"), {"method": "GET"}, True),
        ({"method": "GET"}, path("Exact", "/a", method="GET"), True),
        ({"method": "GET"}, path("Exact", "/a", method="POST"), False),
        ({"method": "GET"}, path("Exact", "/a"), False),
        ({"headers": [{"name": "x"}]}, {"headers": [{"name": "x"}, {"name": "y"}]}, True),
        ({"headers": [{"name": "x"}, {"name": "y"}]}, {"headers": [{"name": "x"}]}, False),
        ({"queryParams": [{"name": "x"}]}, {"method": "GET"}, False),
    ],
)
def test_an_earlier_match_takes_all_of_a_later_one(
    earlier: dict[str, Any], later: dict[str, Any], expected: bool
) -> None:
    written = earlier.get("path", {"type": "PathPrefix", "value": "/"})
    takes = (written["type"], written["value"]) in set(paths_over(later)) and covers(earlier, later)

    assert takes == expected


def test_proxies_of_a_class_are_looked_at_once() -> None:
    """A hundred proxies have the decisions of one, and twice the services have twice the decisions."""
    timeouts = [
        document(
            "MeshTimeout",
            f"t{n}",
            spec={
                "to": [{"targetRef": {"kind": "MeshService", "name": f"s{n}"}, "default": {"connectionTimeout": "1s"}}]
            },
        )
        for n in range(10)
    ]
    counts = {
        (proxies, services): len(MeshSurvey(policies(), world([*mesh("http", proxies, services), *timeouts])).decisions)
        for proxies, services in ((1, 5), (100, 5), (1, 10))
    }

    assert counts[100, 5] == counts[1, 5]
    assert counts[1, 10] == 2 * counts[1, 5]
