"""Which requests a route takes, and where they go."""

from collections import Counter

import pytest

from tests.support.client import call
from tests.support.loopback import Address
from tests.support.mesh import Document, http_route, mesh_service, prefix, rule
from tests.support.mesh import backend as to_backend
from tests.support.playground import Playground
from tests.support.services import HttpService
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

V1, V2 = "backend-v1", "backend-v2"
OLD, ELSE = "/old", "/else"


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


def filtered(*filters: Document, name: str = "filtered") -> Document:
    """A route below `/old` to the first version, with filters."""
    return http_route(name, "backend", rule(prefix(OLD), to={V1: 1}, filters=list(filters)))


def replaced(kind: str, value: str) -> Document:
    field = kind[0].lower() + kind[1:]
    return {"type": kind, field: value}


@pytest.mark.parametrize(
    ("redirect", "status", "location"),
    [
        ({"hostname": "new.example"}, 302, "http://new.example/old/page?a=b"),
        (
            {"statusCode": 301, "scheme": "https", "hostname": "new.example", "port": 8443},
            301,
            "https://new.example:8443/old/page?a=b",
        ),
        ({"statusCode": 307, "hostname": "h", "path": replaced("ReplaceFullPath", "/gone")}, 307, "http://h/gone?a=b"),
        (
            {"statusCode": 308, "hostname": "h", "path": replaced("ReplacePrefixMatch", "/new")},
            308,
            "http://h/new/page?a=b",
        ),
        ({"statusCode": 303, "hostname": "h", "path": replaced("ReplacePrefixMatch", "/")}, 303, "http://h/page?a=b"),
    ],
)
def test_a_request_is_sent_elsewhere(
    mesh: Playground, backend: Address, redirect: Document, status: int, location: str
) -> None:
    with mesh.having(filtered({"type": "RequestRedirect", "requestRedirect": redirect})):
        eventually(lambda: "location" in call(backend, OLD).headers)
        hits = mesh.services[V1].hits(f"{OLD}/page")
        answer = call(backend, f"{OLD}/page?a=b")

        assert (answer.status, answer.headers["location"]) == (status, location)
        assert mesh.services[V1].hits(f"{OLD}/page") == hits
        assert call(backend, ELSE).status == 200


def test_a_copy_of_a_request_goes_to_another_service(mesh: Playground, backend: Address) -> None:
    """Nobody waits for what becomes of the copy."""
    mirror = {"type": "RequestMirror", "requestMirror": {"backendRef": to_backend(V2)}}
    mirrored = mesh.services[V2]
    mirrored.on(OLD, failures=1_000_000, delay=0.5)
    with mesh.having(filtered(mirror)):
        eventually(lambda: call(backend, OLD).status == 200 and mirrored.hits(OLD) > 0)
        before = settled(mirrored, OLD)
        answers = [call(backend, OLD) for _ in range(10)]

        assert {(answer.service, answer.status) for answer in answers} == {(V1, 200)}
        assert min(answer.seconds for answer in answers) < 0.4
        assert settled(mirrored, OLD) - before == 10
    mirrored.on(OLD)


def settled(service: HttpService, path: str) -> int:
    """How often a service was asked, once every copy has arrived: it is the same for some time."""
    looks: list[int] = []

    def no_change() -> bool:
        looks.append(service.hits(path))
        return len(looks) > SAME and looks[-1] == looks[-1 - SAME]

    eventually(no_change, pause=0.05)
    return looks[-1]


SAME = 4


def test_a_share_of_requests_is_copied(mesh: Playground, backend: Address) -> None:
    mirror = {"type": "RequestMirror", "requestMirror": {"percentage": 30, "backendRef": to_backend(V2)}}
    mesh.services[V2].on(OLD)
    with mesh.having(filtered(mirror)):
        eventually(lambda: call(backend, OLD).status == 200 and mesh.services[V2].hits(OLD) > 0)
        before = settled(mesh.services[V2], OLD)
        shares(backend, OLD)

        assert (settled(mesh.services[V2], OLD) - before) / 400 == pytest.approx(0.3, abs=0.1)


def test_headers_of_requests_are_set_added_and_removed(mesh: Playground, backend: Address) -> None:
    changes = {
        "set": [{"name": "x-set", "value": "route"}],
        "add": [{"name": "x-added", "value": "second"}],
        "remove": ["x-secret"],
    }
    sent = {"x-set": "first", "x-added": "first", "x-secret": "s"}
    with mesh.having(filtered({"type": "RequestHeaderModifier", "requestHeaderModifier": changes})):
        eventually(lambda: "x-set" in call(backend, OLD).seen["headers"])
        seen = call(backend, OLD, headers=sent).seen["headers"]
        untouched = call(backend, ELSE, headers=sent).seen["headers"]

    assert (seen["x-set"], seen["x-added"], "x-secret" in seen) == ("route", "first, second", False)
    assert {name: untouched[name] for name in sent} == sent


def test_headers_of_answers_are_set_added_and_removed(mesh: Playground, backend: Address) -> None:
    changes = {
        "set": [{"name": "content-type", "value": "text/plain"}],
        "add": [{"name": "x-added", "value": "route"}],
        "remove": ["x-service"],
    }
    with mesh.having(filtered({"type": "ResponseHeaderModifier", "responseHeaderModifier": changes})):
        eventually(lambda: "x-added" in call(backend, OLD).headers)
        headers, untouched = call(backend, OLD).headers, call(backend, ELSE).headers

    assert (headers["content-type"], headers["x-added"], "x-service" in headers) == ("text/plain", "route", False)
    assert untouched["content-type"] == "application/json"
    assert "x-added" not in untouched
    assert untouched["x-service"] in {V1, V2}


@pytest.mark.parametrize(
    ("rewrite", "host", "path"),
    [
        ({"hostname": "new.example"}, "new.example", "/old/page?a=b"),
        ({"path": replaced("ReplaceFullPath", "/whole")}, "old.example", "/whole?a=b"),
        ({"path": replaced("ReplacePrefixMatch", "/")}, "old.example", "/page?a=b"),
        ({"hostname": "h", "path": replaced("ReplacePrefixMatch", "/a/b")}, "h", "/a/b/page?a=b"),
    ],
)
def test_the_host_and_the_path_of_a_request_are_rewritten(
    mesh: Playground, backend: Address, rewrite: Document, host: str, path: str
) -> None:
    def seen(where: str) -> tuple[str, str]:
        found = call(backend, where, headers={"host": "old.example"}).seen
        return found["headers"]["host"], found["path"]

    with mesh.having(filtered({"type": "URLRewrite", "urlRewrite": rewrite})):
        eventually(lambda: seen(OLD) != ("old.example", OLD))

        assert seen(f"{OLD}/page?a=b") == (host, path)
        assert seen(f"{ELSE}/page?a=b") == ("old.example", f"{ELSE}/page?a=b")


def test_a_path_below_a_regular_expression_is_replaced_as_a_whole(mesh: Playground, backend: Address) -> None:
    rewrite = {"type": "URLRewrite", "urlRewrite": {"path": replaced("ReplaceFullPath", "/whole")}}
    regex = {"path": {"type": "RegularExpression", "value": "/old/[0-9]+"}}
    with mesh.having(http_route("filtered", "backend", rule(regex, to={V1: 1}, filters=[rewrite]))):
        eventually(lambda: call(backend, f"{OLD}/1?a=b").seen["path"] == "/whole?a=b")

        assert call(backend, f"{OLD}/one?a=b").seen["path"] == f"{OLD}/one?a=b"


def test_who_asks_a_service_that_is_missing_is_told(mesh: Playground, backend: Address) -> None:
    split = http_route("missing", "backend", rule(prefix(OLD), to={V1: 1, "nobody": 1}))
    with mesh.having(split):
        eventually(lambda: {call(backend, OLD).status for _ in range(10)} == {200, 500})

        answers = Counter(call(backend, OLD).status for _ in range(200))
        assert set(answers) == {200, 500}
        assert answers[500] / 200 == pytest.approx(0.5, abs=0.15)
        assert {call(backend, ELSE).status for _ in range(20)} == {200}
