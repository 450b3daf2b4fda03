"""Moving a mesh from legacy policies: what is claimed of it holds, whatever the mesh."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from types import ModuleType
from typing import Final

import pytest

from cp.api.envoy_json import decoded
from cp.cli.migrate import report
from cp.insight import comparison
from cp.insight.migrate import Migration, migration, outbounds, rewrites, selection, translations
from cp.insight.migrate.migration import Translate
from cp.insight.migrate.outbounds import holding
from cp.model.document import Document
from cp.model.names import Key
from cp.model.source import LEGACY_POLICIES, read_documents
from cp.policies import kinds
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.legacy.selectors import Rank
from cp.translate.compiler import Compiler
from cp.translate.packing import TYPES
from tests.drawing import expect_more
from tests.growth import MOST, growth
from tests.oracle import envoy
from tests.oracle.request import Answer
from tests.oracle.routes import Call
from tests.random_mesh import PATHS
from tests.random_mesh.judging import IN_SHARES, share
from tests.random_mesh.legacy import legacy_mesh
from tests.random_mesh.mesh import Mesh, mesh_of
from tests.snapshots import policies

Served = Mapping[tuple[str, str, str], bytes]
"""The bytes of each resource, by its proxy, type and name."""

MESH = """
type: Mesh
name: default
---
type: Dataplane
mesh: default
name: web-1
networking:
  address: 127.0.0.1
  inbound:
  - {port: 8001, tags: {kuma.io/service: web, kuma.io/protocol: http}}
  outbound:
  - {port: 10001, tags: {kuma.io/service: api}}
---
type: Dataplane
mesh: default
name: api-1
networking:
  address: 127.0.0.2
  inbound:
  - {port: 8001, tags: {kuma.io/service: api, kuma.io/protocol: http}}
  outbound:
  - {port: 10001, tags: {kuma.io/service: web}}
"""


def served(documents: list[Document]) -> Served:
    """What every proxy is served, worked out without anything of the migration."""
    world = World.of(documents, kinds(policies()))
    compiler = Compiler(policies())
    snapshots = {proxy.name: compiler.snapshot(world, proxy) for proxy in world.table("Dataplane", "default")}
    return {
        (proxy, type_url, packed.name): packed.body
        for proxy, snapshot in snapshots.items()
        for type_url in TYPES
        for packed in snapshot.of(type_url)
    }


def of(text: str) -> Migration:
    world = World.of(read_documents(text).documents, kinds(policies()))
    return migration(world, "default", policies(), decoded)


def check(mesh: Mesh) -> None:
    """No legacy policy is lost, and what is different is told, and printed."""
    answer = checked(mesh, translations)
    printed = "\n".join(report(answer))
    for difference in answer.differences:
        named = ", ".join(proxy.name for proxy in difference.proxies)
        assert f"{difference.resource.type} {difference.resource.name}, for {named}\n" in printed, mesh
    legacy = {document.key for document in mesh.read() if document.key.type in LEGACY_POLICIES}
    removed = {key for key in answer.removed if key.type != "Mesh"}
    assert legacy == {*removed, *(policy.key for each in answer.kept for policy in each.policies)}, mesh
    written = {document.key for document in answer.documents if document.key.type != "Mesh"}
    assert not written & {document.key for document in mesh.read()}, f"written over\n{mesh}"


def checked(mesh: Mesh, translate: Translate) -> Migration:
    """An answer for a mesh: what is different is told, and nothing else; and every new document is valid."""
    assert mesh.errors() == [], mesh
    before = list(mesh.read())
    answer = migration(mesh.world(), "default", policies(), decoded, translate)
    told = {
        (proxy.name, difference.resource.type_url, difference.resource.name)
        for difference in answer.differences
        for proxy in difference.proxies
    }
    after = [*(document for document in before if document.key not in answer.removed), *answer.documents]
    errors = [str(finding) for finding in World.of(after, kinds(policies())).findings if finding.severity == "error"]
    assert not errors, f"{errors}\n{mesh}"
    was, is_now = served(before), served(after)
    names = was.keys() | is_now.keys()
    assert told == {of_resource for of_resource in names if was.get(of_resource) != is_now.get(of_resource)}, mesh
    return answer


def test_a_random_mesh_is_moved_as_is_told() -> None:
    for seed in range(12):
        check(legacy_mesh(seed))


@pytest.mark.long
@pytest.mark.parametrize("first", range(12, 640, 100))
def test_many_random_meshes_are_moved_as_is_told(first: int) -> None:
    for seed in range(first, min(first + 100, 640)):
        check(legacy_mesh(seed))


def calls(dataplane: Resource) -> Iterator[Call]:
    """Those that rules of the random meshes ask for, and some that they nearly do, at each outbound."""
    versions = ((), (("x-version", "1"),))
    for data in dataplane.document.data["networking"].get("outbound") or ():
        for path, method, headers in product((*PATHS, "/apis", "/slow.x"), ("GET", "POST"), versions):
            yield Call(data.get("address", "127.0.0.1"), data["port"], method, path, headers)


def answers(documents: Sequence[Document]) -> dict[tuple[str, Call], Answer | str]:
    """What becomes of each call of each sidecar, read from the bytes that it is served."""
    world = World.of(documents, kinds(policies()))
    compiler = Compiler(policies())
    return {
        (dataplane.name, call): nameless(envoy.served(snapshot, call))
        for dataplane in world.table("Dataplane", "default")
        for snapshot in [compiler.snapshot(world, dataplane)]
        for call in calls(dataplane)
    }


def nameless(answer: Answer | str) -> Answer | str:
    return answer if isinstance(answer, str) else replace(answer, owner="")


@IN_SHARES
def test_where_only_names_differ_every_call_has_the_answer_of_before(is_further: bool) -> None:
    """By another reader of what is served, which knows nothing of how it was compared."""
    renamed = 0
    for seed in share(range(200), is_further):
        mesh = legacy_mesh(seed)
        answer = migration(mesh.world(), "default", policies(), decoded)
        if answer.differences and all(difference.in_names_alone for difference in answer.differences):
            before = list(mesh.read())
            after = [*(document for document in before if document.key not in answer.removed), *answer.documents]
            was, is_now = answers(before), answers(after)
            assert was == is_now, mesh
            renamed += any(difference.resource.type == "routes" for difference in answer.differences)
    expect_more(renamed, 0)


@IN_SHARES
def test_lists_of_clients_that_are_written_anew_mean_the_same(is_further: bool) -> None:
    answers = [checked(mesh_of(seed), rewrites) for seed in share(range(60), is_further)]
    expect_more(sum(len(answer.documents) for answer in answers), 3)
    assert all(answer.is_equal for answer in answers)


def test_most_random_meshes_are_the_same_afterwards() -> None:
    """Or else a translation that says nothing would pass as well: it would be told to differ everywhere."""
    answers = [migration(legacy_mesh(seed).world(), "default", policies(), decoded) for seed in range(40)]
    assert sum(answer.is_equal for answer in answers) > len(answers) / 2
    assert sum(len(answer.documents) for answer in answers) > len(answers)


def test_of_two_policies_the_one_that_holds_takes_the_place_of_the_other_as_a_whole() -> None:
    answer = of(
        f"""{MESH}---
type: Retry
mesh: default
name: all
sources: [{{match: {{kuma.io/service: "*"}}}}]
destinations: [{{match: {{kuma.io/service: "*"}}}}]
conf: {{http: {{numRetries: 3, perTryTimeout: 2s}}}}
---
type: Retry
mesh: default
name: of-web
sources: [{{match: {{kuma.io/service: web}}}}]
destinations: [{{match: {{kuma.io/service: "*"}}}}]
conf: {{http: {{numRetries: 1}}}}
"""
    )
    assert answer.is_equal
    confs = [document.data["spec"]["to"][0]["default"] for document in answer.documents]
    assert confs == [
        {"http": {"numRetries": 1, "perTryTimeout": None}},
        {"http": {"numRetries": 3, "perTryTimeout": "2s"}},
    ]
    assert answer.removed == (Key("Retry", "default", "all"), Key("Retry", "default", "of-web"))


def test_what_no_policy_with_a_target_can_say_stays() -> None:
    answer = of(
        f"""{MESH}---
type: RateLimit
mesh: default
name: for-web
sources: [{{match: {{kuma.io/service: web}}}}]
destinations: [{{match: {{kuma.io/service: "*"}}}}]
conf: {{http: {{requests: 3, interval: 1s}}}}
"""
    )
    (kept,) = answer.kept
    assert kept.kind == "RateLimit"
    assert kept.reason.startswith("`from` of a MeshRateLimit is for all clients alone, and for-web is for some; ")
    assert not answer.documents
    assert not answer.is_safe


def test_a_difference_says_which_policy_makes_it_and_for_whom() -> None:
    answer = of(
        f"""{MESH}---
type: HealthCheck
mesh: default
name: by-http
sources: [{{match: {{kuma.io/service: web}}}}]
destinations: [{{match: {{kuma.io/service: api}}}}]
conf: {{interval: 10s, timeout: 2s, unhealthyThreshold: 3, healthyThreshold: 1, http: {{path: /health}}}}
---
type: Timeout
mesh: default
name: all
sources: [{{match: {{kuma.io/service: "*"}}}}]
destinations: [{{match: {{kuma.io/service: "*"}}}}]
conf: {{connectTimeout: 3s}}
""".replace("api, kuma.io/protocol: http", "api, kuma.io/protocol: tcp")
    )
    (difference,) = answer.differences
    assert difference.causes == (Key("HealthCheck", "default", "by-http"),)
    assert difference.proxies == (Key("Dataplane", "default", "web-1"),)
    assert (difference.resource.type, difference.resource.name) == ("clusters", "api")
    assert "healthChecks" in {field.path for field in difference.fields}
    assert not answer.is_safe


def test_other_names_alone_are_told_and_safe() -> None:
    answer = of(
        f"""{MESH}---
type: TrafficRoute
mesh: default
name: halves
sources: [{{match: {{kuma.io/service: "*"}}}}]
destinations: [{{match: {{kuma.io/service: api}}}}]
conf:
  split:
  - {{weight: 1, destination: {{kuma.io/service: api}}}}
  - {{weight: 1, destination: {{kuma.io/service: web}}}}
"""
    )
    assert [difference.in_names_alone for difference in answer.differences] == [True]
    assert answer.is_safe
    assert not answer.is_equal


def test_the_engine_goes_with_the_last_legacy_policy() -> None:
    legacy = MESH.replace("name: default\n", "name: default\npolicyEngine: Legacy\n", 1)
    service = """---
type: ExternalService
mesh: default
name: outside
tags: {kuma.io/service: outside, kuma.io/protocol: http}
networking: {address: 127.0.0.9:80}
"""
    called = legacy.replace(
        "- {port: 10001, tags: {kuma.io/service: api}}", "- {port: 10001, tags: {kuma.io/service: outside}}"
    )

    answer = of(called + service)

    (mesh,) = answer.documents
    assert (mesh.key, mesh.data["policyEngine"]) == (Key("Mesh", "", "default"), "TargetRef")
    assert {difference.causes for difference in answer.differences} == {(mesh.key,)}, "everybody may call it then"


def test_of_equals_the_newest_holds_and_then_the_first_by_name() -> None:
    policy = """---
type: Timeout
mesh: default
name: {name}
creationTime: {created}
sources: [{{match: {{kuma.io/service: "{source}"}}}}]
destinations: [{{match: {{kuma.io/service: "{called}"}}}}]
conf: {{connectTimeout: {seconds}s}}
"""
    drawn = (
        ("a", "2024-01-01T00:00:00Z", "*", "api", 1),
        ("b", "2024-01-02T00:00:00Z", "web", "*", 2),
        ("c", "2024-01-02T00:00:00Z", "*", "api", 3),
        ("d", "2024-01-01T00:00:00Z", "*", "*", 4),
    )
    fields = ("name", "created", "source", "called", "seconds")
    answer = of(MESH + "".join(policy.format(**dict(zip(fields, each, strict=True))) for each in drawn))
    assert answer.is_equal
    assert {document.key.name.rpartition("-")[2] for document in answer.documents} == {"b", "c", "d"}


def proxy(number: int, **tags: str) -> str:
    carried = "".join(f", {name}: {value}" for name, value in tags.items())
    inbound = f"{{port: 8001, tags: {{kuma.io/service: s{number}{carried}}}}}"
    return f"""---
type: Dataplane
mesh: default
name: p{number}
networking: {{address: 127.0.0.1, inbound: [{inbound}]}}
"""


def timeout(
    name: str, source: str = '{kuma.io/service: "*"}', called: str = "*", conf: str = "connectTimeout: 3s"
) -> str:
    return f"""---
type: Timeout
mesh: default
name: {name}
sources: [{{match: {source}}}]
destinations: [{{match: {{kuma.io/service: "{called}"}}}}]
conf: {{{conf}}}
"""


def test_any_values_of_many_tags_are_those_that_a_proxy_carries_together() -> None:
    """Thirty tags of twenty values each would be more sets of tags than can be counted."""
    names = [f"t{number}" for number in range(30)]
    proxies = "".join(proxy(number, **dict.fromkeys(names, f"v{number}")) for number in range(20))
    source = str(dict.fromkeys(["kuma.io/service", *names], "*"))

    answer = of(f"type: Mesh\nname: default\n{proxies}{timeout('wild', source)}")

    assert len(answer.documents) == 20
    assert answer.is_equal


@pytest.mark.parametrize(("module", "bound"), [(selection, "MOST"), (outbounds, "MOST_ITEMS")])
def test_what_comes_to_too_many_policies_stays(monkeypatch: pytest.MonkeyPatch, module: ModuleType, bound: str) -> None:
    monkeypatch.setattr(module, bound, 3)
    proxies = "".join(proxy(number, team=f"v{number}") for number in range(4))

    answer = of(f"type: Mesh\nname: default\n{proxies}" + timeout("wild", "{kuma.io/service: '*', team: '*'}"))

    (kept,) = answer.kept
    assert kept.reason.endswith("name the values, and the services")


def choices(count: int) -> list[selection.Choice]:
    """As many choices, each for proxies of a service that call another one."""
    world = World.of(read_documents(timeout("all")).documents, kinds(policies()))
    (policy,) = world.table("Timeout", "default")
    return [
        selection.Choice(policy, (("kuma.io/service", f"s{number}"),), f"s{number}", Rank(2, 2))
        for number in range(count)
    ]


def test_what_a_policy_costs_to_write_does_not_depend_on_how_many_there_are() -> None:
    services = [f"s{number}" for number in range(200)]
    assert growth(choices, lambda given: list(holding(given, services)), 100) < MOST


def test_a_field_without_a_default_is_null_beside_fields_that_have_one() -> None:
    both = "{connectTimeout: 7s, http: {requestTimeout: 11s, maxStreamDuration: 14s}}"[1:-1]
    answer = of(MESH + timeout("all", conf=both) + timeout("of-web", "{kuma.io/service: web}", "api"))
    assert answer.is_equal


def mesh_timeout(name: str) -> str:
    return f"""---
type: MeshTimeout
mesh: default
name: {name}
labels: {{kuma.io/origin: global}}
spec:
  targetRef: {{kind: Mesh}}
  to: [{{targetRef: {{kind: Mesh}}, default: {{connectionTimeout: 77s}}}}]
"""


@pytest.mark.parametrize("name", ["zz-legacy-1-all", "zzz", "zz-other", "zzzz-legacy-1-all"])
def test_new_policies_take_no_name_and_lose_against_all_that_is_there(name: str) -> None:
    answer = of(MESH + mesh_timeout(name) + timeout("all"))

    (document,) = answer.documents
    assert document.key.name > name
    assert answer.is_equal


def test_a_name_that_nothing_can_follow_keeps_a_kind_where_it_is() -> None:
    answer = of(MESH + mesh_timeout("z" * 64 + "-legacy-1-all") + timeout("all"))

    assert [each.reason.partition(":")[0] for each in answer.kept] == ["their new names are those of other policies"]


def test_a_policy_for_tags_that_nobody_carries_now_is_not_lost_without_a_word() -> None:
    permission = """---
type: TrafficPermission
mesh: default
name: teams
sources: [{match: {kuma.io/service: web}}]
destinations: [{match: {kuma.io/service: api, team: "*"}}]
"""
    later = timeout("later", "{kuma.io/service: '*', version: '*'}")

    answer = of(MESH + permission + later + timeout("all"))

    notes = sorted(note for each in answer.translations for note in each.notes)
    assert [note.partition(":")[0] for note in notes] == ["Timeout later", "TrafficPermission teams"]
    assert "no Dataplane carries `team`" in notes[1]
    assert not answer.is_safe
    assert of(MESH.replace("service: api, ", "service: api, team: red, version: v1, ") + permission + later).is_safe


def test_a_mesh_without_proxies_shows_nothing() -> None:
    mesh = MESH.partition("---")[0]
    answer = of(mesh + timeout("all"))

    assert (answer.is_comparable, answer.is_equal, answer.is_safe) == (False, False, False)
    assert answer.documents, "the policies are written all the same"
    assert of(mesh).is_safe, "there is nothing to move"


def test_headers_with_capitals_are_moved_in_small_letters() -> None:
    route = """---
type: TrafficRoute
mesh: default
name: capitals
sources: [{match: {kuma.io/service: "*"}}]
destinations: [{match: {kuma.io/service: api}}]
conf:
  http:
  - match: {headers: {X-Version: {exact: "1"}}}
    modify:
      requestHeaders: {add: [{name: X-A, value: "1"}], remove: [{name: X-B}]}
      responseHeaders: {add: [{name: X-C, value: "2", append: true}]}
    destination: {kuma.io/service: web}
  destination: {kuma.io/service: api}
"""
    check = """---
type: HealthCheck
mesh: default
name: capitals
sources: [{match: {kuma.io/service: "*"}}]
destinations: [{match: {kuma.io/service: api}}]
conf:
  interval: 10s
  timeout: 2s
  unhealthyThreshold: 3
  healthyThreshold: 1
  http: {path: /health, requestHeadersToAdd: [{header: {key: Content-Type, value: text/plain}}]}
"""
    answer = of(MESH + route + check)

    assert answer.is_safe, [each.reason for each in answer.kept]
    (written,) = [document for document in answer.documents if document.key.type == "MeshHTTPRoute"]
    (rule,) = [each for each in written.data["spec"]["to"][0]["rules"] if "filters" in each["default"]]
    assert rule["matches"][0]["headers"][0]["name"] == "x-version"
    changes = [change for each in rule["default"]["filters"] for change in list(each.values())[1].items()]
    assert changes == [
        ("set", [{"name": "x-a", "value": "1"}]),
        ("remove", ["x-b"]),
        ("add", [{"name": "x-c", "value": "2"}]),
    ]


def test_what_is_too_large_to_be_read_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "LARGEST", 10)
    conf = "interval: 10s, timeout: 2s, unhealthyThreshold: 3, healthyThreshold: 1, http: {path: /}"
    check = timeout("all", conf=conf).replace("type: Timeout", "type: HealthCheck")

    answer = of(MESH.replace("protocol: http", "protocol: tcp") + check)

    assert answer.differences
    for difference in answer.differences:
        (field,) = difference.fields
        assert field.after.endswith("bytes, too large to say what is different")
    assert not answer.is_safe


EDGE = """---
type: MeshGateway
mesh: default
name: edge
selectors: [{match: {kuma.io/service: edge}}]
conf: {listeners: [{port: 8080, protocol: HTTP, tags: {port: http}}]}
---
type: Dataplane
mesh: default
name: edge-1
networking: {address: 127.0.0.3, gateway: {type: BUILTIN, tags: {kuma.io/service: edge}}}
"""


def gateway_route(name: str, created: str, tags: str, service: str) -> str:
    return f"""---
type: MeshGatewayRoute
mesh: default
name: {name}
creationTime: {created}
selectors: [{{match: {tags}}}]
conf:
  http:
    rules:
    - matches: [{{path: {{match: PREFIX, value: /}}}}]
      filters: [{{responseHeader: {{set: [{{name: X-Route, value: {name}}}]}}}}]
      backends: [{{destination: {{kuma.io/service: {service}}}}}]
"""


def test_routes_of_gateways_are_for_the_same_listeners_and_the_newest_stays_the_strongest() -> None:
    old = gateway_route("old", "2024-01-01T00:00:00Z", "{kuma.io/service: edge, port: http}", "web")
    new = gateway_route("new", "2024-01-02T00:00:00Z", "{kuma.io/service: edge}", "api")
    answer = of(MESH + EDGE + old + new)
    assert [each.in_names_alone for each in answer.differences] == [True]
    targets = [document.data["spec"]["targetRef"] for document in answer.documents]
    assert targets == [
        {"kind": "MeshGateway", "name": "edge", "tags": {"kuma.io/service": "edge", "kuma.io/zone": "*"}},
        {"kind": "MeshGateway", "name": "edge", "tags": {"kuma.io/service": "edge", "port": "http"}},
    ]


def test_routes_of_gateways_are_written_before_there_is_a_proxy_for_them() -> None:
    route = gateway_route("all", "2024-01-01T00:00:00Z", "{kuma.io/service: edge, team: red}", "web")
    gateway = EDGE.partition("---\ntype: Dataplane")[0]
    (document,) = of(MESH + gateway + route).documents
    assert document.data["spec"]["targetRef"]["tags"] == {"kuma.io/service": "edge", "team": "red"}
    assert not of(MESH + gateway + route.replace("service: edge", "service: other")).documents


def test_a_reason_why_nobody_can_be_asked_is_a_name() -> None:
    route = gateway_route("all", "2024-01-01T00:00:00Z", "{kuma.io/service: edge}", "nobody")
    (difference,) = of(MESH + EDGE + route).differences
    assert any("inlineString" in field.path for field in difference.fields)
    assert difference.in_names_alone


def test_names_by_tags_stay_and_the_engine_goes() -> None:
    outbound = """---
type: VirtualOutbound
mesh: default
name: all
selectors: [{match: {kuma.io/service: "*"}}]
conf:
  host: "{{.service}}.%s"
  port: "80"
  parameters: [{name: service, tagKey: kuma.io/service}, {name: team}]
"""
    legacy = MESH.replace("name: default\n", "name: default\npolicyEngine: Legacy\n", 1)
    answer = of(legacy + outbound % "shop")
    assert [each.kind for each in answer.kept] == ["VirtualOutbound"]
    assert "`{{ .DisplayName }}.shop`" in answer.kept[0].notes[0]
    assert not of(legacy + outbound % "{{.team}}").kept[0].notes, "MeshServices do not know that tag"
    assert [document.data["policyEngine"] for document in answer.documents] == ["TargetRef"]
    assert not answer.is_safe


OF_TAGS: Final = """---
type: VirtualOutbound
mesh: default
name: %s
selectors: [{match: {kuma.io/service: "*"}}]
conf:
  host: "{{ .name }}.mesh"
  port: "%s"
  parameters: [{name: name, tagKey: kuma.io/service}]
"""


def test_a_name_that_tags_have_anyhow_needs_no_successor() -> None:
    redirecting = MESH.replace("networking:\n", "networking:\n  transparentProxying: {redirectPortOutbound: 15001}\n")
    assert redirecting != MESH
    answer = of(redirecting + OF_TAGS % ("usual", "80"))
    assert answer.is_equal
    assert answer.is_safe
    assert [key.name for key in answer.removed] == ["usual"]

    beside = of(redirecting + OF_TAGS % ("usual", "80") + OF_TAGS % ("other", "8080"))
    assert beside.is_equal
    assert [policy.name for each in beside.kept for policy in each.policies] == ["other"]
    assert not beside.is_safe


def test_of_a_limit_for_some_clients_it_is_told_by_what_certificates_know_them() -> None:
    limit = """---
type: RateLimit
mesh: default
name: of-web
sources: [{match: {kuma.io/service: web}}]
destinations: [{match: {kuma.io/service: "*"}}]
conf: {http: {requests: 3, interval: 1s}}
"""
    mtls = "name: default\nmtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}\n"
    (kept,) = of(MESH.replace("name: default\n", mtls, 1) + limit).kept
    (plain,) = of(MESH + limit).kept
    assert "`spiffe://default/web`" in kept.notes[0]
    assert "what they show over TLS" in kept.reason
    assert not plain.notes


def test_a_limit_that_names_all_clients_beside_some_is_for_all() -> None:
    limit = """---
type: RateLimit
mesh: default
name: for-all
sources: [{match: {kuma.io/service: web}}, {match: {kuma.io/service: "*"}}]
destinations: [{match: {kuma.io/service: "*"}}]
conf: {http: {requests: 3, interval: 1s}}
"""
    answer = of(MESH + limit)
    assert answer.is_equal
    assert not answer.kept
    fault = limit.replace("RateLimit", "FaultInjection").replace('"*"}}]\nconf', '"*", kuma.io/protocol: http}}]\nconf')
    answer = of(MESH + fault.replace("http: {requests: 3, interval: 1s}", "delay: {percentage: 1, value: 1s}"))
    assert answer.is_equal
    assert answer.documents[0].data["spec"]["from"][0]["targetRef"] == {"kind": "Mesh"}


def test_a_limit_of_those_who_call_a_service_outside_stays() -> None:
    answer = of(
        f"""{MESH}---
type: ExternalService
mesh: default
name: pay
tags: {{kuma.io/service: pay, kuma.io/protocol: http}}
networking: {{address: pay.example.com:80}}
---
type: RateLimit
mesh: default
name: for-pay
sources: [{{match: {{kuma.io/service: "*"}}}}]
destinations: [{{match: {{kuma.io/service: pay}}}}]
conf: {{http: {{requests: 3, interval: 1s}}}}
"""
    )
    assert [each.reason for each in answer.kept] == [
        "no MeshRateLimit is for those who call an ExternalService, and for-pay is"
    ]


def test_a_prefix_that_ends_within_a_segment_is_the_same_in_an_expression() -> None:
    route = """---
type: TrafficRoute
mesh: default
name: prefixed
sources: [{match: {kuma.io/service: "*"}}]
destinations: [{match: {kuma.io/service: api}}]
conf:
  http: [{match: {path: {prefix: "/a.b"}}, destination: {kuma.io/service: web}}]
  destination: {kuma.io/service: api}
"""
    (difference,) = of(MESH + route).differences
    assert any(field.after == {"regex": r"/a\.b.*"} for field in difference.fields)
    assert difference.in_names_alone
