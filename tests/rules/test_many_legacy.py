"""Many legacy policies: an edit asks the proxies that it can select, and a service the policies that can be for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import pytest

from cp.insight.lint import lint
from cp.model.document import Document
from cp.model.names import Key
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.legacy import LegacyMatch, legacy_rules, matching, precedence, rank_at, rules, withheld
from cp.rules.legacy.selectors import Rank, best_rank, selectors_of
from cp.rules.matching.profile import profile
from tests.rules.test_legacy import Tags, between, document, inbound, limit, timeout
from tests.rules.worlds import kinds
from tests.snapshots import policies

SERVICES = ("web", "api", "admin", "*")
MANY = 100


def tags(service: str) -> Tags:
    return {"kuma.io/service": service}


def proxy(name: str, *services: str) -> Document:
    ports = [inbound(80 + place, service) for place, service in enumerate(services)]
    return document("Dataplane", name, {"networking": {"address": "10.0.0.1", "inbound": ports}})


def world(*documents: Document) -> World:
    return World.of([Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"}), *documents], kinds())


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What selectors were compared with."""
    calls: list[object] = []

    def counted(selectors: object, tag_sets: object) -> object:
        calls.append(selectors)
        return best_rank(selectors, tag_sets)  # type: ignore[arg-type]

    for module in (matching, precedence, withheld):
        monkeypatch.setattr(module, "best_rank", counted)
    return calls


def test_an_edit_of_one_policy_asks_the_proxies_that_it_can_select(asked: list[object]) -> None:
    proxies = [proxy(f"p{n}", f"s{n}") for n in range(MANY)]
    before = world(*proxies, *(timeout(f"t{n}", tags(f"s{n}"), tags(f"s{n + 1}")) for n in range(MANY)))
    matched = [legacy_rules(before, dataplane) for dataplane in before.table("Dataplane", "default")]
    edited = timeout("t7", tags("s7"), tags("s9"))
    asked.clear()

    after = before.next({edited.key: edited}, 1)
    matched_now = [legacy_rules(after, dataplane) for dataplane in after.table("Dataplane", "default")]

    assert sum(old is not new for old, new in zip(matched, matched_now, strict=True)) == 1
    assert len(asked) == 1


def test_a_service_asks_the_policies_that_can_be_for_it(asked: list[object]) -> None:
    policies = [timeout(f"t{n}", tags("*"), tags(f"s{n}")) for n in range(MANY)]
    here = world(proxy("p", "web"), *policies, timeout("all", tags("*"), tags("*")))
    of_proxy = legacy_rules(here, next(iter(here.table("Dataplane", "default"))))
    asked.clear()

    conf = of_proxy.of_service("s42", "http")["MeshTimeout"]

    assert str(conf.value["connectionTimeout"]) == f"{len('t42')}s"
    assert len(asked) == 2


def test_who_holds_is_found_once_for_all_policies_that_are_for_a_service(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[LegacyMatch] = []

    def counted(match: LegacyMatch, place: str | int = "") -> Rank | None:
        calls.append(match)
        return rank_at(match, place)

    monkeypatch.setattr(rules, "rank_at", counted)
    here = world(proxy("p", "web"), *(timeout(f"t{n:03}", tags("*"), tags("*")) for n in range(MANY)))
    dataplane = next(iter(here.table("Dataplane", "default")))
    of_proxy = legacy_rules(here, dataplane)

    holders = {of_proxy.holder(match, "api").policy.name for match in of_proxy.outbounds}
    others = [of_proxy.next_holder(match, "api") for match in of_proxy.outbounds]

    assert holders == {"t000"}
    assert [other.policy.name for other in others if other is not None] == ["t001", *["t000"] * (MANY - 1)]
    assert len(calls) == MANY


@pytest.mark.parametrize("seed", range(50))
def test_who_holds_is_who_is_served_and_who_would_hold_is_served_without(seed: int) -> None:
    chance = Random(seed)
    any_tags = [tags(service) for service in SERVICES]
    drawn = [timeout(f"{'t' * n}", chance.choice(any_tags), chance.choice(any_tags)) for n in range(1, 8)]
    before = world(proxy("p", *chance.sample(SERVICES[:3], 2)), *drawn)
    dataplane = next(iter(before.table("Dataplane", "default")))

    for service in ("web", "api"):
        served = timeout_of(before, dataplane, service)
        of_proxy = legacy_rules(before, dataplane)
        for match in of_proxy.outbounds:
            if rank_at(match, service) is not None:
                kept_out = of_proxy.next_holder(match, service)
                without = before.next({match.policy.key: None}, 1)
                assert of_proxy.holder(match, service).policy.name == served
                assert ("" if kept_out is None else kept_out.policy.name) == timeout_of(without, dataplane, service)


def timeout_of(here: World, dataplane: Resource, service: str) -> str:
    conf = legacy_rules(here, dataplane).of_service(service, "http").get("MeshTimeout")
    return "" if conf is None else conf.fields["connectionTimeout"].winner.origin.policy.name


def outside(name: str, **narrower: str) -> Document:
    tagged = {"kuma.io/service": name, **narrower}
    return document("ExternalService", name, {"tags": tagged, "networking": {"address": "192.0.2.1:80"}})


def permission(name: str, sources: Sequence[Tags], destinations: Sequence[Tags]) -> Document:
    return between("TrafficPermission", name, list(sources), list(destinations))


def with_legacy(*documents: Document) -> World:
    mesh = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default", "policyEngine": "Legacy"})
    here = World.of([mesh, *documents], kinds())
    assert not [str(finding) for finding in here.findings if finding.severity == "error"]
    return here


def of_each(count: int) -> World:
    """As many proxies as ExternalServices, each of which one proxy may call."""
    numbers = range(count)
    return with_legacy(
        *(proxy(f"p{n}", f"s{n}") for n in numbers),
        *(outside(f"e{n}") for n in numbers),
        *(permission(f"t{n}", [tags(f"s{n}")], [tags(f"e{n}")]) for n in numbers),
    )


def withheld_of(here: World) -> dict[str, frozenset[str]]:
    return {each.name: withheld.withheld(here, each) for each in here.table("Dataplane", "default")}


def test_an_edit_of_a_permission_asks_the_services_and_the_callers_that_it_names(asked: list[object]) -> None:
    before = of_each(MANY)
    everything = withheld_of(before)
    first = len(asked)
    asked.clear()
    edited = permission("t7", [tags("s8")], [tags("e7")])

    now = withheld_of(before.next({edited.key: edited}, 1))

    assert first <= 2 * MANY
    assert len(asked) <= 4
    assert {name for name in now if now[name] != everything[name]} == {"p7", "p8"}


def test_what_lint_asks_of_permissions_grows_as_there_are_more_of_them(asked: list[object]) -> None:
    def asked_by_lint(count: int) -> int:
        asked.clear()
        lint(policies(), of_each(count))
        return len(asked)

    assert asked_by_lint(2 * MANY) < 2.5 * asked_by_lint(MANY)


@pytest.mark.parametrize("seed", range(50))
def test_withheld_is_what_no_source_of_the_best_permission_fits(seed: int) -> None:
    chance = Random(seed)

    def drawn(service: str) -> Tags:
        narrower = {"team": chance.choice(["a", "b", "*"])} if chance.random() < 0.3 else {}
        return {**tags(service), **narrower}

    services = [outside(name, **{"team": "a"} if chance.random() < 0.5 else {}) for name in ("mail", "pay", "geo")]
    named = ["mail", "pay", "*"]
    permissions = [
        permission(
            f"t{n}",
            [drawn(chance.choice(SERVICES)) for _ in range(chance.randint(1, 2))],
            [drawn(chance.choice(named)) for _ in range(chance.randint(1, 2))],
        )
        for n in range(6)
    ]
    before = with_legacy(*(proxy(f"p-{name}", name) for name in SERVICES[:3]), *services, *permissions)
    withheld_of(before)
    here = before.next({each.key: None for each in chance.sample([*services, *permissions], 2)}, 1)

    expected = {each.name: frozenset(by_definition(here, each)) for each in here.table("Dataplane", "default")}

    assert withheld_of(here) == expected


def by_definition(here: World, dataplane: Resource) -> Iterator[str]:
    own = [dict(section.tags) for section in profile(dataplane).sections]
    for service in here.table("ExternalService", "default"):
        ranked = [
            (rank, each)
            for each in here.table("TrafficPermission", "default")
            if (rank := best_rank(selectors_of(each.data, "destinations"), [service.spec.tags])) is not None
        ]
        best = max(ranked, key=lambda of_one: of_one[0], default=None)
        if best is None or best_rank(selectors_of(best[1].data, "sources"), own) is None:
            yield service.name


@pytest.mark.parametrize("seed", range(50))
def test_what_is_found_by_services_is_what_asking_everybody_finds(seed: int) -> None:
    chance = Random(seed)
    any_tags = [tags(service) for service in SERVICES]
    policies = [
        make(f"p{n:02}", chance.choice(any_tags), chance.choice(any_tags))
        for n in range(12)
        for make in (timeout, limit)
    ]
    several = between("Timeout", "several", chance.sample(any_tags, 2), chance.sample(any_tags, 2), conf={})
    trace = document("TrafficTrace", "trace", {"selectors": chance.choice([[], [{"match": tags("web")}]]), "conf": {}})
    here = world(proxy("p", *chance.sample(SERVICES[:3], 2)), *policies, several, trace)
    dataplane = next(iter(here.table("Dataplane", "default")))

    everybody = (
        found
        for kind in here.kinds.values()
        if kind.legacy is not None
        for policy in here.table(kind.name, "default")
        for found in matching._match(policy, profile(dataplane))
    )

    assert matching.legacy_matches(here, dataplane) == tuple(everybody)
