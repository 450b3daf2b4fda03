"""Which requests a route takes, and where they go."""

from collections import Counter

import pytest

from tests.support.client import call
from tests.support.loopback import Address
from tests.support.mesh import http_route, mesh_service, prefix, rule
from tests.support.playground import Playground
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

V1, V2 = "backend-v1", "backend-v2"


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    """`backend` is both versions, and each has a service of its own."""
    versions = [mesh_service(name, version=name.removeprefix("backend-")) for name in (V1, V2)]
    empty_mesh.control_plane.apply(mesh_service("backend"), *versions)
    empty_mesh.service(V1, "backend", version="v1")
    empty_mesh.service(V2, "backend", version="v2")
    empty_mesh.client("frontend", "backend")
    empty_mesh.ready()
    return empty_mesh


@pytest.fixture
def backend(mesh: Playground) -> Address:
    return mesh.proxies["frontend"].outbound()


def shares(backend: Address, path: str, requests: int = 400) -> Counter[str]:
    return Counter(call(backend, path).service for _ in range(requests))


def test_requests_are_split_by_weight(mesh: Playground, backend: Address) -> None:
    with mesh.having(http_route("split", "backend", rule(prefix("/split"), to={V1: 80, V2: 20}))):
        eventually(lambda: shares(backend, "/split", 20)[V1] >= 12)

        share = shares(backend, "/split")[V2] / 400

    assert share == pytest.approx(0.2, abs=0.08)


def test_a_weight_of_zero_gets_nothing(mesh: Playground, backend: Address) -> None:
    with mesh.having(http_route("split", "backend", rule(prefix("/split"), to={V1: 0, V2: 1}))):
        eventually(lambda: shares(backend, "/split", 10) == {V2: 10})

        assert shares(backend, "/split", 100) == {V2: 100}


def test_other_requests_go_to_all_of_the_service(mesh: Playground, backend: Address) -> None:
    with mesh.having(http_route("all-v2", "backend", rule(prefix("/v2"), to={V2: 1}))):
        eventually(lambda: shares(backend, "/v2", 10) == {V2: 10})

        assert set(shares(backend, "/v20", 20)) == {V1, V2}


def test_a_request_goes_where_the_most_specific_match_leads(mesh: Playground, backend: Address) -> None:
    header = {**prefix("/"), "headers": [{"type": "Exact", "name": "x-version", "value": "two"}]}
    present = {**prefix("/"), "headers": [{"type": "Present", "name": "x-any"}]}
    query = {**prefix("/"), "queryParams": [{"type": "Exact", "name": "version", "value": "two"}]}
    post = {**prefix("/"), "method": "POST"}
    route = http_route(
        "matches",
        "backend",
        rule(prefix("/"), to={V1: 1}),
        rule(header, present, query, post, to={V2: 1}),
        rule({"path": {"type": "Exact", "value": "/exactly"}}, to={V2: 1}),
        rule(prefix("/deep"), to={V2: 1}),
    )
    with mesh.having(route):
        eventually(lambda: call(backend, "/exactly").service == V2)

        assert call(backend, headers={"x-version": "two"}).service == V2
        assert call(backend, headers={"x-version": "twofold"}).service == V1
        assert call(backend, headers={"x-any": ""}).service == V2
        assert call(backend, "/?version=two").service == V2
        assert call(backend, "/?version=one").service == V1
        assert call(backend, method="POST").service == V2
        assert call(backend, "/exactly/not").service == V1
        assert call(backend, "/deep/down").service == V2
        assert call(backend, "/deeper").service == V1


def test_a_regular_expression_has_to_match_the_whole_path(mesh: Playground, backend: Address) -> None:
    route = http_route(
        "regex", "backend", rule({"path": {"type": "RegularExpression", "value": "/r[0-9]+"}}, to={V2: 1})
    )
    with mesh.having(route):
        eventually(lambda: shares(backend, "/r123", 10) == {V2: 10})

        assert set(shares(backend, "/r123x", 20)) == {V1, V2}


def test_all_conditions_of_one_match_have_to_hold(mesh: Playground, backend: Address) -> None:
    both = {**prefix("/both"), "method": "GET", "headers": [{"name": "x-version", "value": "two"}]}
    route = http_route("both", "backend", rule(both, to={V2: 1}), rule(prefix("/"), to={V1: 1}))
    with mesh.having(route):
        eventually(lambda: call(backend, "/both", headers={"x-version": "two"}).service == V2)

        assert call(backend, "/both", "PUT", headers={"x-version": "two"}).service == V1
        assert call(backend, "/both").service == V1
        assert call(backend, "/else", headers={"x-version": "two"}).service == V1


def test_headers_and_paths_are_changed_as_the_filters_say(mesh: Playground, backend: Address) -> None:
    filters = [
        {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x-by", "value": "route"}]}},
        {
            "type": "URLRewrite",
            "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/new"}},
        },
    ]
    route = http_route("rewrite", "backend", rule(prefix("/old"), to={V1: 1}, filters=filters))
    with mesh.having(route):
        eventually(lambda: call(backend, "/old/x?a=b").seen["path"] == "/new/x?a=b")

        seen = call(backend, "/old").seen

    assert (seen["path"], seen["headers"]["x-by"]) == ("/new", "route")


def test_a_percent_sign_in_a_header_means_itself(mesh: Playground, backend: Address) -> None:
    asked = {"set": [{"name": "x-share", "value": "100%"}], "add": [{"name": "x-host", "value": "%HOSTNAME%"}]}
    answered = {"set": [{"name": "x-encoded", "value": "a%20b"}]}
    filters = [
        {"type": "RequestHeaderModifier", "requestHeaderModifier": asked},
        {"type": "ResponseHeaderModifier", "responseHeaderModifier": answered},
        {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/a%20b"}}},
    ]
    with mesh.having(http_route("percent", "backend", rule(prefix("/percent"), to={V1: 1}, filters=filters))):
        eventually(lambda: "x-encoded" in call(backend, "/percent").headers)
        answer = call(backend, "/percent")

    assert answer.headers["x-encoded"] == "a%20b"
    assert (answer.seen["headers"]["x-share"], answer.seen["headers"]["x-host"]) == ("100%", "%HOSTNAME%")
    assert answer.seen["path"] == "/a%20b"
