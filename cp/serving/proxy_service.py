"""`ProxyService`: what serves proxies, in this process or in workers of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from cp.metrics import Metrics, combined_text
from cp.serving.instances.members import Members
from cp.serving.instances.together import InstanceParts, instances_met, own_revision
from cp.serving.reconcile import Reconciler
from cp.serving.serve import ProxyDoor, changes_traced, proxies_served, reconciled, trust_keeper
from cp.serving.trust_keeper import TrustKeeper
from cp.serving.workers.crew import Crew, SilentWorkers, reserved
from cp.serving.workers.front import WorkersFront
from cp.serving.workers.observers import CombinedObserver
from cp.settings import Settings
from cp.store.port import Store
from cp.tracing.writes import WriteTraces
from koguma.v1 import workers_pb2 as pb


@dataclass(frozen=True, slots=True)
class ProxyService:
    """What serves proxies, and what there is to be asked about it."""

    port: int
    state: Reconciler | WorkersFront
    """What is in force, for the API."""

    reconciler: Reconciler
    together: InstanceParts
    trust: TrustKeeper
    own_metrics: Metrics
    """Those of this process."""

    traces: WriteTraces | None
    metrics: Callable[[], Awaitable[bytes]]
    """The text of all, those of workers among them."""


def proxy_service(
    settings: Settings, store: Store, door: ProxyDoor, members: Members
) -> AbstractAsyncContextManager[ProxyService]:
    """Proxies are served for as long as the block lasts: by this process, or by as many as the settings say."""
    if settings.workers == 1:
        return _here(settings, store, door, members)
    return _in_workers(settings, store, members)


@asynccontextmanager
async def _here(settings: Settings, store: Store, door: ProxyDoor, members: Members) -> AsyncIterator[ProxyService]:
    is_shared = members.is_one_of_several
    async with proxies_served(settings, store, settings.ads_port, door=door, is_shared=is_shared) as serving:

        async def metrics() -> bytes:
            return serving.metrics.text()

        reconciler = serving.reconciler
        with instances_met(members, store, serving.observer, reconciler, serving.metrics) as together:
            trust = trust_keeper(settings, store, reconciler, together.observed, together.store_for_chores)
            own_metrics, traces = serving.metrics, serving.traces
            yield ProxyService(serving.port, reconciler, reconciler, together, trust, own_metrics, traces, metrics)


@asynccontextmanager
async def _in_workers(settings: Settings, store: Store, members: Members) -> AsyncIterator[ProxyService]:
    """This process serves no proxies. It follows the store all the same, to answer the API's questions."""
    with reserved(settings.bind, settings.ads_port) as port:
        crew = Crew(settings, port, on_loss=members.note_lost_worker)
        async with (
            reconciled(settings, store) as (hub, reconciler),
            changes_traced(settings, hub, reconciler, is_shared=lambda: True) as traces,
            crew.at_work(),
        ):

            async def metrics() -> bytes:
                try:
                    answers = await crew.ask(pb.Request(metrics=pb.Nothing()))
                except SilentWorkers as silent:  # the metrics of the other workers are useful all the same
                    answers = silent.answers
                of_workers = {str(number): answer.metrics for number, answer in answers.items()}
                return combined_text({"api": hub.metrics.text()} | of_workers)

            observer = CombinedObserver(crew, partial(own_revision, reconciler))
            with instances_met(members, store, observer, reconciler, hub.metrics) as together:
                trust = trust_keeper(settings, store, reconciler, together.observed, together.store_for_chores)
                state = WorkersFront(reconciler, crew)
                yield ProxyService(port, state, reconciler, together, trust, hub.metrics, traces, metrics)
            reconciler.is_stopping = True
