"""Fragments: the finished Envoy resources of one destination, backend or inbound, built once for equal tasks.

A fragment is a pure function of its task, which is its key as well: what it is for, and the effective conf of each
policy. So no part of the key can be forgotten, and proxies with equal tasks share the bytes (record 0003).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

import msgspec
from envoy.config.listener.v3.listener_pb2 import Listener

from cp.model.canonical import canonical_json
from cp.model.checkpoint import pass_checkpoint
from cp.model.failure import Failure, OverLimit, failure
from cp.policies import ClientRule, Policies, Policy
from cp.resources.limits import DestinationRoom, Room
from cp.resources.schema import decode
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES, RUNTIME, SECRET, PackedResource
from generators.build.clusters import backend_cluster, local_cluster
from generators.build.endpoints import assignment
from generators.build.listeners import beside_tls, inbound_listener, permissive
from generators.build.sites import ListenerSite, listener_draft, without_drafts
from generators.drafts import Built, ClusterDraft, EndpointsDraft, Finished, ListenerDraft, SidecarDraft, Site
from generators.grpc import for_grpc
from generators.proxy import Backend, Endpoint, Endpoints, Inbound, Outbound, Route, Sidecar

Confs: TypeAlias = tuple[tuple[str, bytes], ...]
"""The effective conf of each policy that has one: its kind, and the conf as canonical JSON."""

RouteConfs: TypeAlias = tuple[tuple[str, Confs], ...]
"""The effective confs of routes that have some of their own, by `Route.owner`."""

ClientConf: TypeAlias = tuple[bytes, bytes, str]
"""Which clients of an inbound get which conf, and the policy that says so where it is a single one."""

ClientConfs: TypeAlias = tuple[tuple[str, tuple[ClientConf, ...]], ...]
"""The confs of each policy that tells the clients of an inbound apart: its kind, and who gets which conf, in order."""

Problem: TypeAlias = tuple[str, str, str]
"""What a policy could not do: its kind, the path in its conf, and why."""


_NOTHING_USED: Final[frozenset[tuple[str, str]]] = frozenset()
"""One set for all fragments without any: each empty set takes 216 bytes."""


class Fragment:
    """The finished resources of one task. Equal only to itself: equal tasks have the same fragment."""

    __slots__ = ("__weakref__", "failure", "problems", "resources", "task", "used")

    def __init__(
        self,
        resources: Iterable[PackedResource],
        problems: Iterable[Problem] = (),
        used: Iterable[tuple[str, str]] = (),
        failure: Failure | None = None,
    ) -> None:
        self.failure = failure
        """Why these are not the resources of the task, but earlier ones or none."""

        self.resources = tuple(resources)
        self.problems = tuple(problems)
        """What policies could not do of what they say."""

        self.used = frozenset(used) or _NOTHING_USED
        """Where a policy says which of its parts are about something here: its kind, and the path in its conf."""

        self.task: Task | None = None
        """The task under which it is kept. Results keep this one, and not one that is equal to it."""

    def __iter__(self) -> Iterator[PackedResource]:
        return iter(self.resources)

    @property
    def is_made(self) -> bool:
        return self.failure is None

    @property
    def is_over_limit(self) -> bool:
        """True if it is left out because documents exceed a limit: no earlier fragment takes its place."""
        return self.failure is not None and self.failure.is_limit

    @property
    def is_servable(self) -> bool:
        """Whether it was made for its task, now or earlier, and is not only the placeholder of a failure."""
        return self.failure is None or self.failure.is_kept

    @property
    def content_bytes(self) -> int:
        """The bytes that the contents of its resources take."""
        return _COPIES * sum(len(packed.body) for packed in self.resources)

    def in_place_of(self, failed: Fragment) -> Fragment:
        """This fragment, to be served for as long as its successor cannot be made."""
        if failed.failure is None or failed.failure.is_limit or not self.resources:
            return failed
        why = failed.failure.keeping()
        return self if why == self.failure else Fragment(self.resources, self.problems, self.used, why)


NO_FRAGMENT: Final = Fragment(())

_OF_ROW: Final = 600
_OF_PART: Final = 230
_OF_ENDPOINT: Final = 400
"""The bytes that a row, a part of a row (a backend, a filter) and an endpoint take before they are built."""

_COPIES: Final = 2
"""How often the content of a packed resource is kept: as it is, and in the message to proxies."""

_OF_ENTRY: Final = 100
"""The bytes of a row, a filter, a backend of a row, an endpoint or a name that a certificate may have."""


def failures_of(fragments: Iterable[Fragment]) -> tuple[Failure, ...]:
    return tuple(fragment.failure for fragment in fragments if fragment.failure is not None)


def resources_of(fragments: Iterable[Fragment]) -> Iterator[PackedResource]:
    return (packed for fragment in fragments for packed in fragment)


_TYPE_URLS = {
    "Cluster": CLUSTER,
    "ClusterLoadAssignment": ENDPOINTS,
    "Listener": LISTENER,
    "RouteConfiguration": ROUTES,
    "Secret": SECRET,
    "Runtime": RUNTIME,
}


def confs(effective: Mapping[str, Mapping[str, Any]]) -> Confs:
    """Effective confs as a key: the order of fields, and of policies, does not matter."""
    return tuple((kind, canonical_json(conf)) for kind, conf in sorted(effective.items()))


@dataclass(frozen=True, slots=True)
class Task:
    """The arguments of a fragment, and so its key."""

    site: Site
    """What the resources are for."""

    confs: Confs = ()
    """The confs for the site as a whole."""

    routes: RouteConfs = ()
    """The confs of an outbound's routes where they differ from `confs`, by `Route.owner`."""

    clients: ClientConfs = ()
    downstream: Confs = ()
    """The confs for the clients of a gateway; `confs` are then for those that it calls."""

    is_grpc: bool = False
    """Whether it is for a gRPC client without a proxy, and not for an Envoy."""


NO_TASK: Final = Task(Sidecar())
"""In place of a task that cannot be made."""


class FragmentCache:
    """Every fragment that is in use, by its task. A fragment that nobody holds any more is forgotten."""

    def __init__(self, policies: Policies) -> None:
        self._policies = policies
        self._of_rows = frozenset(policy.kind.name for policy in policies if type(policy).route is not Policy.route)
        self._kept: WeakValueDictionary[Task, Fragment] = WeakValueDictionary()
        self.built = 0
        self.reused = 0

    def get(self, task: Task) -> Fragment:
        """The fragment for these arguments, built now if nobody needed it before. One that cannot be built says so."""
        pass_checkpoint()
        fragment = self._kept.get(task)
        if fragment is None:
            fragment = self._kept[task] = _attempt(task, self._policies)
            fragment.task = task
            self.built += 1
        else:
            self.reused += 1
        return fragment

    def get_within(self, room: DestinationRoom, *tasks: Task, fixed: int = 0) -> tuple[tuple[Fragment, ...], int]:
        """The fragments for some tasks, and the bytes that they take of the room. Raises `OverLimit`.

        The room for what is known of a fragment is taken before it is built, and the room for its contents after that.
        """
        before = fixed + sum(map(_bytes_of_entries, tasks))
        room.keep(before)
        fragments = tuple(map(self.get, tasks))
        contents = sum(fragment.content_bytes for fragment in fragments)
        try:
            room.keep(contents)
        except OverLimit:
            room.give_back(before)
            raise
        return fragments, before + contents

    def take(self, room: Room | DestinationRoom, *tasks: Task) -> int:
        """Take the room for the fragments of some tasks, and return its size. Raises `OverLimit`."""
        size = sum(map(self._size, tasks))
        try:
            room.take(size)
        except OverLimit as over:
            sizes = ((len(conf), kind) for task in tasks for kind, conf in _all_confs(task))
            over.kind = max(sizes, default=(0, ""))[1]
            raise
        return size

    def _size(self, task: Task) -> int:
        """The bytes that a fragment has at least, estimated from its task, before anything of it is built."""
        rows = getattr(task.site, "routes", ())
        times = max(1, len(rows))
        of_confs = sum(len(conf) * (times if kind in self._of_rows else 1) for kind, conf in task.confs)
        of_routes = sum(len(conf) for _, confs in task.routes for _, conf in confs)
        of_clients = sum(len(conf) for _, conf in _confs_of_clients(task))
        return of_confs + of_routes + of_clients + _size_of_site(task.site, rows)

    def __len__(self) -> int:
        return len(self._kept)


def _all_confs(task: Task) -> Iterator[tuple[str, bytes]]:
    yield from task.confs
    yield from (conf for _, confs in task.routes for conf in confs)
    yield from _confs_of_clients(task)


def _confs_of_clients(task: Task) -> Iterator[tuple[str, bytes]]:
    """The kind of each policy for clients, with all that it says of them."""
    for kind, clients in task.clients:
        yield kind, b"".join(text for match, conf, _ in clients for text in (match, conf))


def _size_of_site(site: Site, rows: Sequence[Route]) -> int:
    entries = sum(1 + len(row.splits) + len(row.filters) for row in rows)
    endpoints = _endpoints_of(site)
    tags = sum(len(name) + len(value) for endpoint in endpoints for name, value in endpoint.tags)
    names = site.mesh_tls.names if isinstance(site, Backend) and site.mesh_tls is not None else ()
    return _OF_ENTRY * (entries + len(endpoints) + len(names)) + tags


def _bytes_of_entries(task: Task) -> int:
    """The bytes that the rows and endpoints of a task take, beside the contents of its resources."""
    rows = getattr(task.site, "routes", ())
    parts = sum(len(row.splits) + len(row.filters) for row in rows)
    return _OF_ROW * len(rows) + _OF_PART * parts + _OF_ENDPOINT * len(_endpoints_of(task.site))


def _endpoints_of(site: Site) -> Sequence[Endpoint]:
    return site.external if isinstance(site, Backend) else site.endpoints if isinstance(site, Endpoints) else ()


class _PolicyAtWork:
    """The policies in their order, and the kind of the one whose hooks are being called: a fault is said of it."""

    def __init__(self, policies: Policies) -> None:
        self._policies = policies
        self.kind = ""

    def __iter__(self) -> Iterator[Policy[Any]]:
        for policy in self._policies:
            self.kind = policy.kind.name
            yield policy
        self.kind = ""


def _attempt(task: Task, policies: Policies) -> Fragment:
    """A fault in one fragment is a fault of that fragment alone."""
    at_work = _PolicyAtWork(policies)
    try:
        return build(task, at_work)
    except Exception as error:  # noqa: BLE001  # whatever it is, all other fragments are served
        return Fragment((), failure=failure(error, kind=at_work.kind))


def build(task: Task, policies: Iterable[Policy[Any]]) -> Fragment:
    """Draft, let each policy write, serialise."""
    pass_checkpoint()
    problems: list[Problem] = []
    built = Built(task.site, [message for draft in _drafts(task, policies, problems) for _, message in draft])
    used: list[tuple[str, str]] = []
    of_policy = _decoder(task.confs)
    for policy in policies:
        if type(policy).finish is not Policy.finish and (conf := of_policy(policy)) is not None:
            policy.finish(conf, built)
            problems += ((policy.kind.name, path, reason) for path, reason in built.problems)
            used += ((policy.kind.name, path) for path in built.used)
            built.problems, built.used = [], []
    finished = built.finish()
    if task.is_grpc:
        finished = for_grpc(task.site.names if isinstance(task.site, Outbound) else (), finished)
    return Fragment((_packed(name, message) for name, message in finished), problems, used)


def _packed(name: str, message: Any) -> PackedResource:
    type_url = _TYPE_URLS[message.DESCRIPTOR.name]
    return PackedResource.of(type_url, name, message.SerializeToString(deterministic=True))


def _drafts(task: Task, policies: Iterable[Policy[Any]], problems: list[Problem]) -> Iterator[Iterator[Finished]]:
    of_policy = _decoder(task.confs)
    site = task.site
    if isinstance(site, Backend):
        yield _cluster(backend_cluster(site), policies, of_policy)
    elif isinstance(site, Endpoints):
        yield _endpoints(assignment(site), policies, of_policy)
    elif isinstance(site, ListenerSite):
        yield _listener(listener_draft(site), policies, task)
    elif isinstance(site, Sidecar):
        yield _sidecar(SidecarDraft(site), policies, of_policy, problems)
    elif isinstance(site, Inbound):
        yield _cluster(local_cluster(site), policies, of_policy)
        yield _inbound(site, policies, task)
    else:
        yield without_drafts(site)


Decoder: TypeAlias = Callable[[Policy[Any]], Any]


def _decoder(of_kinds: Confs) -> Decoder:
    """Finds the conf of a policy, decoded; None where it has none."""
    by_kind = dict(of_kinds)

    def find(policy: Policy[Any]) -> Any:
        text = by_kind.get(policy.kind.name)
        return None if text is None else decode(policy.conf, msgspec.json.decode(text))

    return find


def _cluster(draft: ClusterDraft, policies: Iterable[Policy[Any]], of_policy: Decoder) -> Iterator[Finished]:
    for policy in policies:
        if (conf := of_policy(policy)) is not None:
            policy.cluster(conf, draft)
    return draft.finish()


def _endpoints(draft: EndpointsDraft, policies: Iterable[Policy[Any]], of_policy: Decoder) -> Iterator[Finished]:
    for policy in policies:
        if (conf := of_policy(policy)) is not None:
            policy.endpoints(conf, draft)
    return draft.finish()


def _sidecar(
    draft: SidecarDraft, policies: Iterable[Policy[Any]], of_policy: Decoder, problems: list[Problem]
) -> Iterator[Finished]:
    for policy in policies:
        if (conf := of_policy(policy)) is not None:
            policy.sidecar(conf, draft)
            problems += ((policy.kind.name, path, reason) for path, reason in draft.problems)
            draft.problems.clear()
    return draft.finish()


def _inbound(site: Inbound, policies: Iterable[Policy[Any]], task: Task) -> Iterator[Finished]:
    """An inbound that takes TLS and plain text is built as one for either: what policies write differs."""
    if site.tls is None or not site.is_permissive:
        yield from _listener(inbound_listener(site), policies, task)
        return
    in_plain_text = _listener(beside_tls(replace(site, tls=None, is_permissive=False)), policies, task)
    over_tls = _listener(inbound_listener(replace(site, is_permissive=False)), policies, task)
    plain = next(message for _, message in in_plain_text if isinstance(message, Listener))
    for name, message in over_tls:
        yield name, permissive(site, message, plain) if isinstance(message, Listener) else message


def _listener(draft: ListenerDraft, policies: Iterable[Policy[Any]], task: Task) -> Iterator[Finished]:
    """A route whose resource has an effective conf of its own gets that, every other one the service's."""
    of_policy, of_downstream = _decoder(task.confs), _decoder(task.downstream)
    of_owner = {owner: _decoder(of_kinds) for owner, of_kinds in task.routes}
    clients = dict(task.clients)
    for policy in policies:
        conf = of_policy(policy)
        _whole_listener(policy, conf, of_downstream(policy), draft)
        own_confs = []
        for route in draft.routes:
            pass_checkpoint()
            own = of_owner.get(route.site.owner)
            of_route = None if own is None else own(policy)
            effective = conf if of_route is None else of_route
            if effective is not None:
                policy.route(effective, route)
            if of_route is not None:
                own_confs.append((route, of_route))
        if own_confs:
            policy.routes_with_own_confs(own_confs, draft)
        if (rules := clients.get(policy.kind.name)) is not None:
            policy.clients([_client_rule(policy, *rule) for rule in rules], draft)
    return draft.finish()


def _whole_listener(policy: Policy[Any], conf: Any, of_clients: Any, draft: ListenerDraft) -> None:
    if conf is not None:
        policy.listener(conf, draft)
    if of_clients is not None:
        policy.entrance(of_clients, draft)


def _client_rule(policy: Policy[Any], match: bytes, conf: bytes, origin: str) -> ClientRule[Any]:
    return ClientRule(msgspec.json.decode(match), decode(policy.conf, msgspec.json.decode(conf)), origin)
