"""Over random meshes: what must hold whatever they are made of."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cp.model.document import Document
from cp.model.names import Key
from cp.model.source import read_documents
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules import PolicyRules, RouteRule, build, effective, routes
from cp.rules.matching import match
from cp.rules.matching.matcher import PolicyMatcher
from cp.rules.merging import MergedField
from tests.rules.test_merging import leaves
from tests.rules.texts import MESH, WHOLE_MESH, Data, hr, inbound, ms, policy, proxy, route, service, subset, timeout
from tests.rules.worlds import kinds, to_service, to_tag
from tests.rules.worlds import service as identity

TOPS: list[Data] = [
    WHOLE_MESH,
    subset(team="a"),
    subset(team="b"),
    {"kind": "MeshService", "name": "web"},
    {"kind": "Dataplane", "labels": {"app": "demo"}},
    {"kind": "Dataplane", "name": "p1"},
]
TARGETS: list[Data] = [
    WHOLE_MESH,
    ms("backend"),
    ms("backend", sectionName="http"),
    ms("backend", sectionName="9090"),
    ms("other"),
    {"kind": "MeshService", "labels": {"tier": "db"}},
    hr("r"),
    hr("s"),
]
CONFS: list[Data] = [
    {"http": {"requestTimeout": "1s"}},
    {"http": {"requestTimeout": "2s", "streamIdleTimeout": "3s"}},
    {"http": {"requestTimeout": None, "streamIdleTimeout": "4s"}},
]
LABELS: list[Data] = [
    {},
    {},
    {"kuma.io/origin": "zone"},
    {"kuma.io/policy-role": "producer"},
    {"kuma.io/effect": "shadow"},
]
CALLS = [
    to_service("backend"),
    to_service("backend", "admin"),
    to_service("other"),
    to_tag("backend"),
    to_tag("nobody"),
]
R, S = (identity(name, kind="MeshHTTPRoute") for name in "rs")
WAYS = [(), (R,), (S,), (R, S), (S, R)]


def timeouts() -> st.SearchStrategy[Data]:
    items = st.lists(st.tuples(st.sampled_from(TARGETS), st.sampled_from(CONFS)), min_size=1, max_size=3)
    new = st.builds(
        lambda name, top, to, labels: timeout(f"t{name}", to, top=top, labels=labels),
        st.integers(0, 4),
        st.sampled_from(TOPS),
        items,
        st.sampled_from(LABELS),
    )
    old = st.builds(
        lambda name, route_, conf: timeout(f"t{name}", WHOLE_MESH, conf, top=hr(route_)),
        st.integers(0, 4),
        st.sampled_from("rs"),
        st.sampled_from(CONFS[:2]),
    )
    return st.one_of(new, new, new, old)


def mesh_routes() -> st.SearchStrategy[Data]:
    to, paths = st.sampled_from(["backend", "other"]), st.sampled_from(["/v1", "/v2"])
    return st.builds(
        lambda name, to, path, top: route(name, to, path, top=top),
        st.sampled_from("rs"),
        to,
        paths,
        st.sampled_from(TOPS[:3]),
    )


def services() -> st.SearchStrategy[Data]:
    ports = st.sampled_from([((80, "http"), (9090, "admin")), ((80, "http"),)])
    labels = st.sampled_from([None, {"tier": "db"}])
    return st.builds(
        lambda name, p, lab: service(name, *p, labels=lab), st.sampled_from(["backend", "other"]), ports, labels
    )


def proxies() -> st.SearchStrategy[Data]:
    tags = st.sampled_from([{"team": "a"}, {"team": "b"}, {}])
    labels = st.sampled_from([None, {"app": "demo"}])
    return st.builds(
        lambda name, tag, lab: proxy(f"p{name}", inbounds=[inbound(80, **tag), inbound(81)], labels=lab),
        st.integers(0, 2),
        tags,
        labels,
    )


def permissions() -> st.SearchStrategy[Data]:
    clients = st.sampled_from([WHOLE_MESH, subset(env="dev"), subset(zone="east"), subset(env="prod", zone="east")])
    items = st.lists(st.tuples(clients, st.sampled_from(["Allow", "Deny"])), min_size=1, max_size=2)
    return st.builds(
        lambda name, top, found: policy(
            "MeshTrafficPermission",
            f"m{name}",
            top=top,
            from_=[{"targetRef": target, "default": {"action": action}} for target, action in found],
        ),
        st.integers(0, 2),
        st.sampled_from(TOPS),
        items,
    )


ANYTHING = st.one_of(timeouts(), timeouts(), mesh_routes(), services(), proxies(), permissions())


def meshes() -> st.SearchStrategy[list[Data]]:
    return st.lists(ANYTHING, min_size=3, max_size=10, unique_by=lambda data: (data["type"], data["name"]))


def documents(some: Iterable[Data]) -> list[Document]:
    return [document for data in (MESH, *some) for document in read_documents(json.dumps(data)).documents]


def world_of(some: Iterable[Data]) -> World:
    return World.of(documents(some), kinds())


def outcome(world: World) -> Data:
    """All that policies come to, as plain data."""
    return {one.name: dict(_of_proxy(world, one)) for one in world.table("Dataplane", "default")}


def _of_proxy(world: World, dataplane: Resource) -> Iterator[tuple[str, Any]]:
    matched = match(world, dataplane)
    yield "matched", [(one.policy.name, one.inbounds) for kind in sorted(matched) for one in matched[kind]]
    for kind in sorted(matched):
        rules = build(world, matched[kind], kind=world.kinds[kind])
        yield f"{kind} rules", [(str(rule.identity), dict(rule.combined.conf.value)) for rule in rules.to.all]
        yield f"{kind} from", [_from(rules, index) for index in range(2)]
        yield f"{kind} calls", [_call(rules, to, via) for to in CALLS for via in WAYS]
        if kind == "MeshHTTPRoute":
            yield "routes", [_rows(routes(rules, to)) for to in CALLS]


def _rows(table: tuple[RouteRule, ...] | None) -> Any:
    return None if table is None else [(one.contributors, one.hash, one.default) for one in table]


def _from(rules: PolicyRules, index: int) -> Any:
    return [(one.matchers, dict(one.combined.conf.value)) for one in rules.from_(index).rules]


def _call(rules: PolicyRules, to: Any, via: Any) -> Any:
    conf = effective(rules, to, via)
    return dict(conf.value), [_said(field) for field in conf.fields.values()]


def _said(field: MergedField) -> Any:
    return [(one.origin.policy.name, one.origin.index, one.value) for one in (field.winner, *field.losers)]


@settings(deadline=None)
@given(meshes(), st.randoms(use_true_random=False))
def test_the_order_of_documents_never_changes_an_outcome(some: list[Data], random: Any) -> None:
    shuffled = list(some)
    random.shuffle(shuffled)

    assert outcome(world_of(some)) == outcome(world_of(shuffled))


Edit = tuple[Data, bool]


def edits() -> st.SearchStrategy[list[Edit]]:
    return st.lists(st.tuples(ANYTHING, st.booleans()), min_size=1, max_size=5)


def after(world: World, edit: Edit, revision: int) -> World:
    data, removes = edit
    (document,) = read_documents(json.dumps(data)).documents
    return world.next({document.key: None if removes else document}, revision)


@settings(deadline=None)
@given(meshes(), edits())
def test_a_world_that_was_edited_is_the_world_that_was_written_so(some: list[Data], changes: Sequence[Edit]) -> None:
    """What is taken over from World to World never shows."""
    world = world_of(some)
    outcome(world)
    for revision, edit in enumerate(changes, 2):
        world = after(world, edit, revision)
        assert outcome(world) == outcome(World.of([resource.document for resource in world], kinds()))


@settings(deadline=None)
@given(meshes(), edits())
def test_it_is_neither_when_nobody_asked_in_between(some: list[Data], changes: Sequence[Edit]) -> None:
    world = world_of(some)
    outcome(world)
    for revision, edit in enumerate(changes, 2):
        world = after(world, edit, revision)

    assert outcome(world) == outcome(World.of([resource.document for resource in world], kinds()))


@settings(deadline=None)
@given(meshes())
def test_every_leaf_of_an_effective_conf_has_the_winner_s_value(some: list[Data]) -> None:
    world = world_of(some)
    for one in world.table("Dataplane", "default"):
        rules = build(world, match(world, one).get("MeshTimeout", ()), world.kinds["MeshTimeout"])
        for to in CALLS:
            for via in WAYS:
                conf = effective(rules, to, via)
                assert {path: field.value for path, field in conf.fields.items()} == leaves(conf.value)


def test_an_edit_of_one_policy_asks_that_policy_alone() -> None:
    some = [
        proxy("p1"),
        proxy("p2", inbounds=[inbound(80, team="a")]),
        *(timeout(f"t{i}", WHOLE_MESH, 1) for i in range(9)),
    ]
    world = world_of(some)
    for one in world.table("Dataplane", "default"):
        match(world, one)
    edited = after(world, (timeout("t3", WHOLE_MESH, 2), False), 2)

    assert edited.derived(PolicyMatcher).asked == 1


def test_an_edit_asks_its_policy_once_for_each_kind_of_tags_that_some_policy_looks_at() -> None:
    some = [
        proxy("p1"),
        proxy("p2", inbounds=[inbound(80, team="a")]),
        proxy("p3", inbounds=[inbound(80, team="a", unseen="b")]),
        timeout("t0", WHOLE_MESH, 1, top={"kind": "MeshSubset", "tags": {"team": "a"}}),
        *(timeout(f"t{i}", WHOLE_MESH, 1) for i in range(1, 9)),
    ]
    world = world_of(some)
    for one in world.table("Dataplane", "default"):
        match(world, one)
    edited = after(world, (timeout("t3", WHOLE_MESH, 2), False), 2)

    assert edited.derived(PolicyMatcher).asked == 2


def test_dataplanes_that_look_alike_match_what_is_in_their_own_mesh() -> None:
    elsewhere = [{**one, "mesh": "other"} for one in (proxy("p1"), timeout("t1", WHOLE_MESH, 1))]
    world = world_of([proxy("p1"), {"type": "Mesh", "name": "other"}, *elsewhere])

    (ours,), (theirs,) = (world.table("Dataplane", mesh) for mesh in ("default", "other"))

    assert not match(world, ours)
    assert [one.policy.mesh for one in match(world, theirs)["MeshTimeout"]] == ["other"]


def test_what_an_edit_does_not_touch_is_the_same_object() -> None:
    some = [
        proxy("p1"),
        timeout("t", ms("backend"), 1),
        timeout("u", ms("other"), 2),
        service("backend"),
        service("other"),
    ]
    world = world_of(
        [*some, policy("MeshRetry", "r", to=[{"targetRef": WHOLE_MESH, "default": {"http": {"numRetries": 1}}}])]
    )
    backend, other = to_service("backend"), to_service("other")

    def rules(of: World, kind: str) -> PolicyRules:
        (one,) = of.table("Dataplane", "default")
        return build(of, match(of, one)[kind], of.kinds[kind])

    old, new = rules(world, "MeshTimeout"), rules(world, "MeshRetry")
    before = effective(old, backend), effective(old, other)
    edited = after(world, (timeout("t", ms("backend"), 3), False), 2)
    assert rules(edited, "MeshRetry") is new
    assert effective(rules(edited, "MeshTimeout"), backend) is not before[0]
    assert effective(rules(edited, "MeshTimeout"), other) is before[1]


def test_a_route_may_come_and_go() -> None:
    some = [proxy("p1"), service("backend"), timeout("t", hr("r"), CONFS[0])]
    world = world_of(some)
    via = identity("r", kind="MeshHTTPRoute")
    seen = []
    for revision, edit in enumerate([(route("r"), False), (route("r"), True), (route("r"), False)], 2):
        world = after(world, edit, revision)
        (one,) = world.table("Dataplane", "default")
        rules = build(world, match(world, one)["MeshTimeout"], world.kinds["MeshTimeout"])
        seen.append(bool(effective(rules, to_service("backend"), (via,)).value))

    assert seen == [True, False, True]
    assert world.get(Key("MeshHTTPRoute", "default", "r")) is not None
