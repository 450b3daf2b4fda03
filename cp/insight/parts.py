"""The two parts of which a proxy is served a destination: its listener with its routes, and its cluster.

A proxy may be served only one of them. Where all routes of a service lead to others, its cluster is not served; and a
service to which only routes of others lead has a cluster and no listener. What policies say about the part that is
missing has no effect, and here it is found out which field that is: the generator is asked for the missing part too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cp.model.names import Destination, Identity, Key
from cp.rules.merging import Conf, Layer, MergedConf, Origin, merge, put, without
from cp.translate.backend import BackendResult
from cp.translate.compiler import ProxyClass
from cp.translate.effective import Effective
from cp.translate.fragments import Fragment, Task
from cp.translate.outbound import OutboundResult
from cp.translate.translator import Translator
from cp.translate.view.outbound_address import OutboundAddress
from cp.translate.view.services import cluster_name

_SUPPOSED: Final = ("127.0.0.1", 1)
"""Where a listener would be of a destination that has none."""

_FEW: Final = 3

_Change: TypeAlias = Callable[[Conf], Conf]


@dataclass(frozen=True, slots=True)
class DestinationParts:
    """The parts of one destination that the proxies of a class are served."""

    translator: Translator
    bundle: ProxyClass
    mesh: str
    destination: Destination
    entries: tuple[OutboundResult, ...]
    """Its outbounds; none where only routes of others lead there."""

    upstream: BackendResult | None
    """Its cluster; None where no route leads there."""

    @property
    def is_whole(self) -> bool:
        """Whether no part is missing. Where one could not be made, what is served tells nothing of what is missing."""
        return self._has_failed or (bool(self.entries) and self.upstream is not None)

    @property
    def _has_failed(self) -> bool:
        fragments = (
            *(entry.fragment for entry in self.entries),
            *(self.upstream.fragments if self.upstream is not None else ()),
        )
        return any(fragment.failure is not None for fragment in fragments)

    @property
    def name(self) -> str:
        return f"`{_names([self.destination])[0]}`"

    @property
    def why(self) -> str:
        """Why a part is missing."""
        name = self.name
        if self.entries:
            used = dict.fromkeys(used for entry in self.entries for used in entry.uses)
            if not used:
                return f"no route of {name} leads anywhere"
            return f"all routes of {name} go to {_listed(_names(used))}"
        callers = [
            entry.listening.destination for entry in self.bundle.entries.values() if self.destination in entry.uses
        ]
        listed = _listed(_names(dict.fromkeys(callers)))
        return f"nobody calls {name} itself: calls come by the routes of {listed}, with what holds there"

    @property
    def hint(self) -> str:
        """Where to write what is about the part that is missing."""
        if self.entries:
            return "write it for the services to which the routes lead, or have a route lead to this one"
        return "write it for the service that is called, or call this one itself"

    def listener_differs(
        self, kind: str, of_service: MergedConf | None, of_routes: Mapping[str, MergedConf | None]
    ) -> bool:
        """Whether listeners or routes would be others if a kind of policy came to this."""
        return any(self.entry_differs(entry, kind, of_service, of_routes) for entry in self.entries)

    def entry_differs(
        self,
        entry: OutboundResult,
        kind: str,
        of_service: MergedConf | None,
        of_routes: Mapping[str, MergedConf | None],
    ) -> bool:
        """The same for one of its outbounds."""
        return _bodies(self._of_listener(entry, kind, of_service, of_routes)) != _bodies(entry.fragment)

    def cluster_differs(self, kind: str, conf: MergedConf | None) -> bool:
        """Whether the cluster or its endpoints would be others if a kind of policy came to this."""
        if self.upstream is None:
            return False
        return self._of_cluster(_with(self.upstream.effective, kind, conf)) != [
            body for fragment in self.upstream.fragments for body in _bodies(fragment)
        ]

    def matters_to_missing_part_only(self, kind: str, path: str) -> bool:
        """Whether a field does nothing for the part that is served, and would for the one that is not."""
        return self._matters_to_missing_part_only(kind, lambda conf: without(conf, path))

    def null_matters_to_missing_part_only(self, kind: str, path: str, removed: Any) -> bool:
        """The same of a field that nobody sets any more, because a null took its value away."""
        return self._matters_to_missing_part_only(kind, lambda conf: put(conf, path, removed))

    def changes_cluster_only(self, kind: str, path: str) -> bool:
        """Whether a field that holds for calls does nothing for listener and routes, and does for the cluster."""
        return self._changes_cluster_only(kind, lambda conf: without(conf, path))

    def is_reached_by(self, routes: tuple[Identity, ...]) -> bool:
        """Whether some row to which these routes contribute leads to the destination itself."""
        own = cluster_name(self.destination)
        rows = (
            row
            for entry in self.entries
            for row in entry.outbound.routes
            if row.owner in entry.owners and entry.owners[row.owner].contributors == routes
        )
        return any(split.cluster == own for row in rows for split in row.splits)

    def _matters_to_missing_part_only(self, kind: str, change: _Change) -> bool:
        if self.is_whole:
            return False
        if self.upstream is None:
            return self._changes_cluster_only(kind, change)
        acts = self.cluster_differs(kind, _changed(self.upstream.effective.get(kind), change))
        return not acts and _changes_listener(self._as_if_called(), kind, change)

    def _changes_cluster_only(self, kind: str, change: _Change) -> bool:
        return not _changes_listener(self, kind, change) and self._changes_cluster(kind, change)

    def _changes_cluster(self, kind: str, change: _Change) -> bool:
        effective = self.entries[0].effective
        changed = _with(effective, kind, _changed(effective.get(kind), change))
        return self._of_cluster(effective) != self._of_cluster(changed)

    def _as_if_called(self) -> DestinationParts:
        """The destination as if it were called."""
        listening = OutboundAddress(*_SUPPOSED, self.destination)
        work = self.bundle
        entry = self.translator.outbounds.result(work.world, self.mesh, work.rules, listening, work.caller)
        return DestinationParts(self.translator, self.bundle, self.mesh, self.destination, (entry,), None)

    def _of_listener(
        self,
        entry: OutboundResult,
        kind: str,
        of_service: MergedConf | None,
        of_routes: Mapping[str, MergedConf | None],
    ) -> Fragment:
        found = _with(entry.effective, kind, of_service)
        routes = {name: _with(held, kind, of_routes.get(name)) for name, held in entry.of_routes.items()}
        is_grpc, world = self.bundle.caller.is_grpc, self.bundle.world
        task = self.translator.outbounds.task(world, self.mesh, entry.outbound, found, routes, is_grpc=is_grpc)
        return self.translator.fragments.get(task)

    def _of_cluster(self, effective: Effective) -> list[bytes]:
        """Nothing, if it cannot be made."""
        work = self.bundle
        try:
            tasks: Iterable[Task] = self.translator.backends.tasks(
                work.world, self.mesh, self.destination, effective, work.caller
            )
        except Exception:  # noqa: BLE001  # a fault of ours in what is not served concerns nobody
            return []
        return [body for task in tasks for body in _bodies(self.translator.fragments.get(task))]


def _changes_listener(parts: DestinationParts, kind: str, change: _Change) -> bool:
    for entry in parts.entries:
        of_service = _changed(entry.effective.get(kind), change)
        of_routes = {name: _changed(found.get(kind), change) for name, found in entry.of_routes.items()}
        if parts.entry_differs(entry, kind, of_service, of_routes):
            return True
    return False


def destination_parts(translator: Translator, bundle: ProxyClass, mesh: str) -> Iterator[DestinationParts]:
    """Every destination that the proxies of a class call, or to which their routes lead."""
    entries: dict[Destination, list[OutboundResult]] = {one: [] for one in bundle.upstreams}
    for entry in bundle.entries.values():
        if entry.outbound.names or not bundle.caller.is_grpc:  # else there is nothing that it could call
            entries.setdefault(entry.listening.destination, []).append(entry)
    for destination, of_destination in entries.items():
        upstream = bundle.upstreams.get(destination)
        yield DestinationParts(translator, bundle, mesh, destination, tuple(of_destination), upstream)


def _bodies(fragment: Fragment) -> list[bytes]:
    return [packed.body for packed in fragment]


def _with(effective: Effective, kind: str, conf: MergedConf | None) -> Effective:
    others = {name: held for name, held in effective.items() if name != kind}
    return others if conf is None else {**others, kind: conf}


def _changed(conf: MergedConf | None, change: _Change) -> MergedConf | None:
    """What a kind of policy comes to, as if somebody else had a say."""
    value = change({} if conf is None else conf.value)
    if conf is None and not value:
        return None
    origin = Origin(Key("", "", ""), Identity("", "", ""), "")
    return merge((Layer(dict(value), origin),))


def _names(destinations: Iterable[Destination]) -> list[str]:
    """Destinations as operators know them; those of one service by their ports as well."""
    every = list(destinations)
    count = Counter(one.service for one in every)
    return [_name(one, with_port=count[one.service] > 1) for one in every]


def _name(destination: Destination, *, with_port: bool) -> str:
    tags = "".join(f" {name}={value}" for name, value in destination.tags)
    port = destination.identity.section if destination.identity is not None and with_port else ""
    return f"{destination.service}{f':{port}' if port else ''}{tags}"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return ", ".join(f"`{name}`" for name in names[:_FEW]) + more
