"""The two parts of a destination that a proxy is served: its listener with its routes, and its cluster.

A proxy may be served only one part. If all routes of a service lead to other services, its cluster is not served; a
service that is reached only by routes of other services has a cluster and no listener.
A field of a policy that is about the unserved part has no effect. To find these fields, the unserved part is built too,
once with the field and once without it, and the results are compared. See record 0043.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias

from cp.model.names import Destination, Identity, Key
from cp.model.wording import few
from cp.resources.limits import BYTES_OF_OUTBOUNDS, DestinationRoom, Room
from cp.rules.merging import Conf, Layer, MergedConf, Origin, alone, merge, put, without
from cp.translate.backend import BackendResult
from cp.translate.compiler import CompiledProxy
from cp.translate.effective import Effective, types_behind
from cp.translate.fragments import Fragment, Task
from cp.translate.outbound import OutboundResult
from cp.translate.proxy_class import ProxyClass
from cp.translate.translator import Translator
from cp.translate.view.backends import BackendKey, mark_of, reached
from cp.translate.view.outbound_address import OutboundAddress
from cp.translate.view.services import cluster_name

_PLACEHOLDER_ADDRESS: Final = ("127.0.0.1", 1)
"""The address of the listener that is built for a destination without one."""

_Change: TypeAlias = Callable[[Conf], Conf]


@dataclass(frozen=True, slots=True)
class DestinationParts:
    """The parts of one destination that the proxies of a class are served."""

    translator: Translator
    proxy_class: ProxyClass
    mesh: str
    destination: Destination
    outbounds: tuple[OutboundResult, ...]
    """Its outbounds; none where only routes of others lead there."""

    backend: BackendResult | None
    """Its cluster; None where no route leads there."""

    mark: str = ""
    """What the name of its cluster ends with, where it is for some listeners of a gateway alone."""

    @property
    def is_whole(self) -> bool:
        """Whether both parts are served. A destination with a failed part counts as whole, and no field is judged."""
        return self._has_failed or (bool(self.outbounds) and self.backend is not None)

    @property
    def _has_failed(self) -> bool:
        fragments = (
            *(result.fragment for result in self.outbounds),
            *(self.backend.fragments if self.backend is not None else ()),
        )
        return any(fragment.failure is not None for fragment in fragments)

    @property
    def name(self) -> str:
        return f"`{_labels([self.destination])[0]}`"

    @property
    def why(self) -> str:
        """Why a part is not served."""
        name = self.name
        if self.outbounds:
            destinations = dict.fromkeys(destination for result in self.outbounds for destination in result.uses)
            if not destinations:
                return f"no route of {name} leads anywhere"
            return f"all routes of {name} go to {_enumeration(_labels(destinations))}"
        callers = [
            result.address.destination
            for result in self.proxy_class.outbounds.values()
            if self.destination in result.uses
        ]
        listed = _enumeration(_labels(dict.fromkeys(callers)))
        return f"nobody calls {name} itself: calls come by the routes of {listed}, with what holds there"

    @property
    def hint(self) -> str:
        """What to do with a field that is about the unserved part."""
        if self.outbounds:
            return "write it for the services to which the routes lead, or have a route lead to this one"
        return "write it for the service that is called, or call this one itself"

    def listener_differs(
        self, kind: str, service_conf: MergedConf | None, route_confs: Mapping[str, MergedConf | None]
    ) -> bool:
        """Whether listeners or routes would differ if a kind of policy had these confs."""
        return any(self.outbound_differs(result, kind, service_conf, route_confs) for result in self.outbounds)

    def outbound_differs(
        self,
        result: OutboundResult,
        kind: str,
        service_conf: MergedConf | None,
        route_confs: Mapping[str, MergedConf | None],
    ) -> bool:
        """Whether the listener or the routes of one outbound would differ if a kind of policy had these confs."""
        return _bodies(self._listener_fragment(result, kind, service_conf, route_confs)) != _bodies(result.fragment)

    def cluster_differs(self, kind: str, conf: MergedConf | None) -> bool:
        """Whether the cluster or its endpoints would differ if a kind of policy had this conf."""
        if self.backend is None:
            return False
        return self._cluster_bodies(_with_conf(self.backend.effective, kind, conf)) != [
            body for fragment in self.backend.fragments for body in _bodies(fragment)
        ]

    def acts_on_unserved_part_only(self, kind: str, path: str) -> bool:
        """Whether a field has no effect on the part that is served, and would have one on the unserved part."""
        return self._acts_on_unserved_part_only(kind, lambda conf: without(conf, path))

    def has_no_effect_on_served_part(self, kind: str, path: str) -> bool:
        """Whether one part is not served, and a field has no effect on the other one, within its conf or on its own."""
        if self.is_whole:
            return False
        bodies = partial(self._bodies_with_change, kind)
        if bodies(lambda conf: without(conf, path)) != bodies(lambda conf: conf):
            return False
        return bodies(lambda conf: alone(conf, path)) == bodies(lambda _: {})

    def null_acts_on_unserved_part_only(self, kind: str, path: str, removed: Any) -> bool:
        """Whether `removed`, the value that a null removed from a field, would act on the unserved part only."""
        return self._acts_on_unserved_part_only(kind, lambda conf: put(conf, path, removed))

    def acts_on_cluster_only(self, kind: str, path: str) -> bool:
        """Whether a field has no effect on listener and routes, and has one on the cluster."""
        return self._acts_on_cluster_only(kind, lambda conf: without(conf, path))

    def writers_over(self, kind: str, change: _Change, writers: Iterable[str]) -> tuple[str, ...]:
        """The types, of some other kinds, that write over a field, so that a change of it would not be seen."""
        served = self.outbounds[0].effective if self.outbounds else {}
        confs = served if self.backend is None else {**served, **self.backend.effective}
        present = tuple(writer for writer in writers if writer in confs)
        if not present or self._has_failed or self._is_seen(kind, change, ""):
            return ()
        seen = (writer for writer in present if self._is_seen(kind, change, writer))
        return tuple(name for writer in seen for name in types_behind(writer, confs[writer]))

    def _is_seen(self, kind: str, change: _Change, left_out: str) -> bool:
        """Whether a change of confs would be seen in what is served, without the policies of another kind."""
        changed = self._bodies_without(left_out, kind, change)
        return changed != self._bodies_without(left_out, kind, lambda conf: conf)

    def _bodies_without(self, left_out: str, kind: str, change: _Change) -> list[bytes]:
        """The bodies of both parts if the confs of one kind were changed, and those of another left out."""
        bodies: list[bytes] = []
        for result in self.outbounds:
            of_routes = {name: _without_kind(effective, left_out) for name, effective in result.of_routes.items()}
            remaining = replace(result, effective=_without_kind(result.effective, left_out), of_routes=of_routes)
            bodies += _bodies(self._changed_fragment(remaining, kind, change))
        if self.backend is not None:
            effective = _without_kind(self.backend.effective, left_out)
            bodies += self._cluster_bodies(_with_conf(effective, kind, _changed_conf(effective.get(kind), change)))
        return bodies

    def is_reached_by(self, routes: tuple[Identity, ...]) -> bool:
        """Whether some row to which these routes contribute leads to the destination itself."""
        own_cluster = cluster_name(self.destination)
        rows = (
            row
            for result in self.outbounds
            for row in result.outbound.routes
            if row.owner in result.route_rules and result.route_rules[row.owner].contributors == routes
        )
        return any(split.cluster == own_cluster for row in rows for split in row.splits)

    def _acts_on_unserved_part_only(self, kind: str, change: _Change) -> bool:
        if self.is_whole:
            return False
        if self.backend is None:
            return self._acts_on_cluster_only(kind, change)
        acts = self.cluster_differs(kind, _changed_conf(self.backend.effective.get(kind), change))
        return not acts and _acts_on_listener(self._with_outbound(), kind, change)

    def _acts_on_cluster_only(self, kind: str, change: _Change) -> bool:
        return not _acts_on_listener(self, kind, change) and self._acts_on_cluster(kind, change)

    def _acts_on_cluster(self, kind: str, change: _Change) -> bool:
        effective = self.outbounds[0].effective
        changed = _with_conf(effective, kind, _changed_conf(effective.get(kind), change))
        return self._cluster_bodies(effective) != self._cluster_bodies(changed)

    def _bodies_with_change(self, kind: str, change: _Change) -> list[bytes]:
        """The bodies of the served part if the confs of a kind of policy were changed."""
        if self.backend is not None:
            changed = _changed_conf(self.backend.effective.get(kind), change)
            return self._cluster_bodies(_with_conf(self.backend.effective, kind, changed))
        return [body for result in self.outbounds for body in _bodies(self._changed_fragment(result, kind, change))]

    def _changed_fragment(self, result: OutboundResult, kind: str, change: _Change) -> Fragment:
        route_confs = {name: _changed_conf(effective.get(kind), change) for name, effective in result.of_routes.items()}
        return self._listener_fragment(result, kind, _changed_conf(result.effective.get(kind), change), route_confs)

    def _with_outbound(self) -> DestinationParts:
        """The destination as if the proxy had an outbound for it."""
        address = OutboundAddress(*_PLACEHOLDER_ADDRESS, self.destination)
        proxy_class = self.proxy_class
        result = self.translator.outbounds.result(
            proxy_class.world,
            self.mesh,
            proxy_class.rules,
            address,
            proxy_class.caller,
            room=DestinationRoom(Room(BYTES_OF_OUTBOUNDS)),
        )
        return DestinationParts(self.translator, self.proxy_class, self.mesh, self.destination, (result,), None)

    def _listener_fragment(
        self,
        result: OutboundResult,
        kind: str,
        service_conf: MergedConf | None,
        route_confs: Mapping[str, MergedConf | None],
    ) -> Fragment:
        effective = _with_conf(result.effective, kind, service_conf)
        routes = {name: _with_conf(confs, kind, route_confs.get(name)) for name, confs in result.of_routes.items()}
        is_grpc, world = self.proxy_class.caller.is_grpc, self.proxy_class.world
        task = self.translator.outbounds.task(world, self.mesh, result.outbound, effective, routes, is_grpc=is_grpc)
        return self.translator.fragments.get(task)

    def _cluster_bodies(self, effective: Effective) -> list[bytes]:
        """The bodies of cluster and endpoints; none if they cannot be built."""
        proxy_class = self.proxy_class
        try:
            tasks: Iterable[Task] = self.translator.backends.tasks(
                proxy_class.world, self.mesh, self.destination, effective, proxy_class.caller, mark=self.mark
            )
        except Exception:  # noqa: BLE001  # the cluster is not served, so its failure matters to no proxy
            return []
        return [body for task in tasks for body in _bodies(self.translator.fragments.get(task))]


def _acts_on_listener(parts: DestinationParts, kind: str, change: _Change) -> bool:
    for result in parts.outbounds:
        service_conf = _changed_conf(result.effective.get(kind), change)
        route_confs = {name: _changed_conf(effective.get(kind), change) for name, effective in result.of_routes.items()}
        if parts.outbound_differs(result, kind, service_conf, route_confs):
            return True
    return False


def destination_parts(translator: Translator, proxy_class: ProxyClass, mesh: str) -> Iterator[DestinationParts]:
    """The parts of every destination that the proxies of a class call, or to which their routes lead."""
    outbounds: dict[BackendKey, list[OutboundResult]] = {key: [] for key in proxy_class.backends}
    for result in proxy_class.outbounds.values():
        if result.outbound.names or not proxy_class.caller.is_grpc:  # else there is nothing that it could call
            outbounds.setdefault(result.address.destination, []).append(result)
    for key, results in outbounds.items():
        backend, mark = proxy_class.backends.get(key), mark_of(key)
        yield DestinationParts(translator, proxy_class, mesh, reached(key), tuple(results), backend, mark)


def fragments_of(proxy: CompiledProxy) -> Iterator[Fragment]:
    """Everything that is built for a proxy."""
    yield from (outbound.fragment for outbound in proxy.proxy_class.outbounds.values())
    yield from (fragment for backend in proxy.proxy_class.backends.values() for fragment in backend.fragments)
    yield from (reached.fragment for reached in proxy.inbounds)
    yield proxy.sidecar.fragment
    if proxy.proxy_class.gateway is not None:
        yield from proxy.proxy_class.gateway.fragments
    if proxy.capture_result is not None:
        yield proxy.capture_result.fragment


def made_in(fragment: Fragment) -> frozenset[tuple[str, str]]:
    """The changes that a fragment has, by the kind of policy and the path: those about it that could be made."""
    return fragment.used - {(kind, path) for kind, path, _ in fragment.problems}


def _bodies(fragment: Fragment) -> list[bytes]:
    return [packed.body for packed in fragment]


def _with_conf(effective: Effective, kind: str, conf: MergedConf | None) -> Effective:
    other_confs = _without_kind(effective, kind)
    return other_confs if conf is None else {**other_confs, kind: conf}


def _without_kind(effective: Effective, kind: str) -> Effective:
    return {name: conf for name, conf in effective.items() if name != kind}


def _changed_conf(conf: MergedConf | None, change: _Change) -> MergedConf | None:
    """A conf with another value; None if there was none and it stays empty. The origin of the result is nobody's."""
    value = change({} if conf is None else conf.value)
    if conf is None and not value:
        return None
    origin = Origin(Key("", "", ""), Identity("", "", ""), "")
    return merge((Layer(dict(value), origin),))


def _labels(destinations: Iterable[Destination]) -> list[str]:
    """Destinations as operators know them; several of one service with their ports."""
    listed = list(destinations)
    count = Counter(destination.service for destination in listed)
    return [_label(destination, with_port=count[destination.service] > 1) for destination in listed]


def _label(destination: Destination, *, with_port: bool) -> str:
    tags = "".join(f" {name}={value}" for name, value in destination.tags)
    port = destination.identity.section if destination.identity is not None and with_port else ""
    return f"{destination.service}{f':{port}' if port else ''}{tags}"


def _enumeration(names: list[str]) -> str:
    return few([f"`{name}`" for name in names])
