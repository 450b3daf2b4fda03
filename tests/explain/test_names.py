"""Where names are said to lead is where what proxies are served leads them, over random meshes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.udp.dns_filter.v3.dns_filter_pb2 import DnsFilterConfig

from cp.insight.explain import CallQuery, explain
from cp.insight.explain.query import AmbiguousCall
from cp.insight.inspect import affected_proxies
from cp.insight.inspect.affected import PolicyEffect
from cp.insight.legacy import knows_names
from cp.insight.simulate import Call, NoListener, Outcome, simulate
from cp.model.hosts import is_ip
from cp.model.names import Destination
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.packing import LISTENER
from cp.translate.snapshot import Snapshot
from cp.translate.view.services import cluster_name
from generators.envoy.names import MISSING_CLUSTER
from tests.random_mesh import NAMED, Mesh, dataplanes, for_meshes, mesh_of
from tests.snapshots import policies
from tests.view.meshes import dataplane as dataplane_of
from tests.view.meshes import redirected as redirected_client
from tests.view.meshes import service
from tests.view.meshes import world as world_of

PORTS: Final = (80, 443, 8080)

Clusters: TypeAlias = frozenset[str]

REFUSED: Final[Clusters] = frozenset({MISSING_CLUSTER})
"""A name leads to an ExternalService also where no TrafficPermission lets the proxy call it: it is refused there."""


def answered(snapshot: Snapshot) -> Mapping[str, str]:
    """The names for which a proxy answers, with the addresses that it answers."""
    listeners = (Listener.FromString(packed.body) for packed in snapshot.of(LISTENER))
    configs = (
        DnsFilterConfig.FromString(served.typed_config.value)
        for listener in listeners
        for served in listener.listener_filters
        if served.typed_config.Is(DnsFilterConfig.DESCRIPTOR)
    )
    domains = (domain for config in configs for domain in config.server_config.inline_dns_table.virtual_domains)
    return {domain.name: domain.endpoint.address_list.address[0] for domain in domains}


def led_to(snapshot: Snapshot, name: str, port: int) -> Clusters | None:
    """The clusters at which a call of a name ends; None if nobody answers it."""
    outcome = simulated(snapshot, name, port)
    if outcome is None:
        return None
    return frozenset(share.cluster for share in (outcome.forward.shares if outcome.forward else ()))


def is_refused(snapshot: Snapshot, name: str, port: int) -> bool:
    """Whether the proxy answers a call itself, as no permission lets it make the call."""
    outcome = simulated(snapshot, name, port)
    return outcome is not None and outcome.reply is not None and "TrafficPermission" in outcome.reply.body


def simulated(snapshot: Snapshot, name: str, port: int) -> Outcome | None:
    address = name if is_ip(name) else answered(snapshot).get(name)
    if address is None:
        return None
    try:
        return simulate(snapshot, Call(address, port, "GET", "/", f"{name}:{port}", ()))
    except NoListener:
        return None


def redirected(world: World) -> Iterator[Resource]:
    return (proxy for proxy in dataplanes(world) if knows_names(proxy))


@for_meshes(NAMED)
def test_a_call_of_a_name_is_explained_to_end_where_it_is_served_to_end(mesh: Mesh) -> None:
    world, compiler = mesh.world(), Compiler(policies())
    for dataplane in redirected(world):
        snapshot = compiler.snapshot(world, dataplane)
        for name in answered(snapshot):
            for port in PORTS:
                try:
                    explanation = explain(compiler, policies(), world, dataplane, CallQuery("GET", name, port, "/"))
                except AmbiguousCall:
                    told = None
                else:
                    told = frozenset(backend.cluster for backend in explanation.backends)
                assert told == led_to(snapshot, name, port), f"{dataplane.name} calls {name}:{port}"


def test_what_a_proxy_answers_for_a_name_goes_before_what_else_the_name_could_mean() -> None:
    here, compiler = world_of(service("client"), redirected_client()), Compiler(policies())
    call = CallQuery("GET", "client.mesh", 80, "/")

    outbound = explain(compiler, policies(), here, dataplane_of(here), call).outbound

    assert outbound is not None
    assert outbound.kind == "kuma.io/service"


def at(effect: PolicyEffect) -> tuple[str, int]:
    """The name and the port that an effect is about."""
    name, _, port = str(effect.scope).removeprefix("at ").partition(" ")[0].rpartition(":")
    return name, int(port)


def clusters_of(effect: PolicyEffect) -> Clusters:
    tags = dict(effect.setting.value)
    return frozenset({cluster_name(Destination(tags.pop("kuma.io/service"), tags=tuple(sorted(tags.items()))))})


@for_meshes(NAMED)
def test_a_name_that_is_in_force_leads_where_it_is_served_to_lead_and_any_other_one_elsewhere(mesh: Mesh) -> None:
    world, compiler = mesh.world(), Compiler(policies())
    for outbound in world.table("VirtualOutbound", "default"):
        for proxy in affected_proxies(world, outbound):
            dataplane = world.get(proxy.dataplane)
            assert dataplane is not None
            snapshot = compiler.snapshot(world, dataplane)
            for effect in proxy.effects:
                ends, wanted = led_to(snapshot, *at(effect)), clusters_of(effect)
                is_in_force = effect in proxy.effects_in_force
                is_as_told = ends in (wanted, REFUSED) or is_refused(snapshot, *at(effect))
                assert not is_in_force or is_as_told, f"{outbound.name} at {proxy.dataplane}: {effect}"
                is_so_anyhow = "so without it" in effect.idle_reason or (
                    effect.overridden_by is not None and effect.overridden_by.value == effect.setting.value
                )
                assert is_in_force or is_so_anyhow or ends != wanted, f"{outbound.name}: {effect}"


def test_every_answer_is_drawn() -> None:
    """Or the comparisons would be of nothing."""
    told: set[str] = set()
    for seed in range(200):
        if told == {"in force", "overridden", *WORDS}:
            return
        world = mesh_of(seed, NAMED).world()
        for outbound in world.table("VirtualOutbound", "default"):
            for proxy in affected_proxies(world, outbound):
                told |= {"in force" for _ in proxy.effects_in_force} | {"overridden" for _ in proxy.overridden_effects}
                told |= {word for word in WORDS for effect in proxy.idle_effects if word in effect.idle_reason}

    raise AssertionError(f"only {told}")


WORDS: Final = ("so without it", "this is the port of", "comes first", "reachableServices", "the name leads to")
