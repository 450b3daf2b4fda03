"""Puts together what a control plane has to do with the others on its store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from socket import gethostname

from cp.metrics import Metrics
from cp.policies import discover, kinds
from cp.serving.agent_links import AgentLinks
from cp.serving.delivery import OwnRevision
from cp.serving.http_server import most_connections
from cp.serving.instances.circle import InstanceCircle
from cp.serving.instances.envoy_links import EnvoyLinks
from cp.serving.instances.members import LeadersStore, Members
from cp.serving.instances.observers import ChoresObserver, OwnObserver, SharedObserver
from cp.serving.instances.peers import Peers
from cp.serving.instances.tokens import InstanceTokens
from cp.serving.reconcile import Reconciler
from cp.serving.signing_keys import SigningKeys
from cp.store.port import Store


@dataclass(frozen=True, slots=True)
class InstanceParts:
    """What asks the others, and answers them."""

    members: Members
    peers: Peers
    observed: SharedObserver
    for_chores: ChoresObserver
    circle: InstanceCircle
    envoys: EnvoyLinks

    def store_for_chores(self, store: Store) -> LeadersStore:
        return LeadersStore(store, self.members)


@contextmanager
def instances_met(
    members: Members, store: Store, own: OwnObserver, reconciler: Reconciler, metrics: Metrics
) -> Iterator[InstanceParts]:
    """For as long as the block lasts."""
    tokens = InstanceTokens(SigningKeys(store, kinds(discover())), reconciler.current, members.id)
    peers = Peers(members, tokens, gethostname())
    observed = SharedObserver(own, peers, partial(own_revision, reconciler))
    links = AgentLinks(most_connections() // 2)  # the others are for requests that end
    circle = InstanceCircle(members, peers, tokens, own, links, partial(_revision, reconciler))
    metrics.register("store_writes", "0 while the store refuses writes, else 1", lambda: int(not store.refusal))
    metrics.register("instances", "Control planes on the store that are not gone", lambda: members.present_count)
    metrics.register("instance_leads", "1 if this control plane does the chores, else 0", lambda: int(members.leads))
    metrics.register("agent_links", "Agents that can be asked about their Envoys", lambda: links.count)
    chores, envoys = ChoresObserver(own, observed, members), EnvoyLinks(links, peers)
    try:
        yield InstanceParts(members, peers, observed, chores, circle, envoys)
    finally:
        peers.close()


def own_revision(reconciler: Reconciler) -> OwnRevision:
    """What this process serves now."""
    return OwnRevision(_revision(reconciler), partial(_passed_at, reconciler))


def _revision(reconciler: Reconciler) -> int:
    return reconciler.world.revision


def _passed_at(reconciler: Reconciler, revision: int) -> float | None:
    later = reconciler.publications.after(revision)
    return later[0].at if later else None
