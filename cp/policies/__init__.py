"""What a policy is, and how policies are found.

A policy is one module of this package with a `POLICY`. It says what may be written (`kind`), in what order it acts
(`order`), and fills in hooks. The walk over resources is written once, in `cp.translate.fragments`; a hook receives
its effective conf, decoded, and the draft of one fragment, and writes fields. No hook sees a whole proxy.

See record 0005.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from cp.resources.core import CORE
from cp.resources.kinds import Kind, Kinds

if TYPE_CHECKING:
    from cp.model.names import Identity
    from cp.model.target import BackendRef
    from cp.resources.caller import Caller
    from cp.resources.targets import AllowedTargets
    from cp.resources.world import Table
    from cp.rules import RouteRule
    from generators.drafts import Built, ClusterDraft, EndpointsDraft, ListenerDraft, RouteDraft, SidecarDraft
    from generators.proxy import Capture, Endpoints, Outbound, Route, Split

Conf = TypeVar("Conf")


@dataclass(frozen=True, slots=True)
class ClientRule(Generic[Conf]):
    """What holds on an inbound for some of its clients: all of them where the match is empty."""

    match: Mapping[str, Any]
    """`tags` and `not`, of a `from` item; `spiffeID` and `sni`, of a `rules` item."""

    conf: Conf


class Backends(Protocol):
    """Finds what a route refers to, and sees to it that its cluster is there."""

    def split(self, reference: BackendRef, seen_from: Identity) -> Split:
        """A reference, resolved from where the resource stands that wrote it; a missing one says why."""
        ...

    def itself(self) -> Split:
        """The destination that was called."""
        ...

    def rest(self) -> Route:
        """What happens to what no route takes."""
        ...

    def owner(self, rule: RouteRule) -> str:
        """The name under which the confs of the route are found that a rule belongs to."""
        ...


class Policy(Generic[Conf]):
    """One policy. Hooks that it leaves alone do nothing."""

    kind: ClassVar[Kind]
    order: ClassVar[int]
    conf: ClassVar[type[Any]]
    """The schema of a merged conf."""

    is_route: ClassVar[bool] = False
    """Whether its conf is a table of routes; then `shape` is called, and no other hook."""

    outbound_default: ClassVar[Mapping[str, Any]] = {}
    """What holds for a destination, field by field, where no policy says anything."""

    inbound_default: ClassVar[Mapping[str, Any]] = {}
    """The same for an inbound."""

    targets: ClassVar[AllowedTargets]
    """Which kinds a targetRef may have at each level."""

    is_for_grpc_clients: ClassVar[bool] = False
    """Whether a gRPC client without a proxy does something of what it writes (`generators.grpc`)."""

    route_fields: ClassVar[tuple[str, ...]] = ()
    """The fields, by their path in the conf, that a route can carry. Others are refused under a route target."""

    tcp_route_fields: ClassVar[tuple[str, ...]] = ()
    """The same for a TCP route."""

    def shape(self, rules: Sequence[RouteRule], outbound: Outbound, backends: Backends) -> Outbound:
        """Decide what exists before anything is built: the rows of a route table. Called where there are rules."""
        del rules, backends
        return outbound

    def arrange(self, conf: Conf | None, endpoints: Endpoints, caller: Caller) -> Endpoints:
        """Decide where the endpoints of a destination are for a caller. Without a conf too: that is no order either."""
        del conf, caller
        return endpoints

    def passes(self, conf: Conf, capture: Capture) -> Capture:
        """Decide what becomes of the calls that are redirected to a proxy and are for none of its destinations."""
        del conf
        return capture

    def looks_at(self, table: Table) -> frozenset[str]:
        """The tags of a caller on which it depends how these policies arrange endpoints for it."""
        del table
        return frozenset()

    def asks(self, table: Table) -> frozenset[str]:
        """What the listener of an outbound has to say about its proxy: fields of `generators.proxy.Sidecar`.

        Proxies of which something else is said have nothing in common: so only what these policies really need.
        """
        del table
        return frozenset()

    def cluster(self, conf: Conf, draft: ClusterDraft) -> None:
        """Write what concerns one upstream cluster. `draft.is_local` tells a workload's own from a destination's."""

    def endpoints(self, conf: Conf, draft: EndpointsDraft) -> None:
        """Write what concerns the endpoints of one upstream cluster."""

    def listener(self, conf: Conf, draft: ListenerDraft) -> None:
        """Write what concerns a listener, its connection manager or TCP proxy. `draft.is_inbound` tells the side."""

    def route(self, conf: Conf, draft: RouteDraft) -> None:
        """Write what concerns one route. The conf is that of the route, falling back field by field."""

    def apart(self, routes: Sequence[tuple[RouteDraft, Conf]], draft: ListenerDraft) -> None:
        """Write what a listener does for these routes, which have confs of their own, in place of what it does."""

    def clients(self, rules: Sequence[ClientRule[Conf]], draft: ListenerDraft) -> None:
        """Write what an inbound does for some clients and not for others. The first rule that fits holds."""

    def sidecar(self, conf: Conf, draft: SidecarDraft) -> None:
        """Write what a proxy has beside its inbounds and outbounds."""

    def finish(self, conf: Conf, built: Built) -> None:
        """Change what all policies together came to. What cannot be done goes into `built.problems`."""


Policies = Sequence[Policy[Any]]


def discover() -> tuple[Policy[Any], ...]:
    """Every policy, in the order in which they act. A clash of kinds or orders is an error."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    for module in modules:
        if not isinstance(getattr(module, "POLICY", None), Policy):
            raise TypeError(f"{module.__name__} has no POLICY")
    return ordered([module.POLICY for module in modules])


def kinds(policies: Policies) -> Kinds:
    """Every kind of resource there is: those of the core, and one for each policy."""
    return Kinds(*CORE, *(policy.kind for policy in policies))


def ordered(policies: Sequence[Policy[Any]]) -> tuple[Policy[Any], ...]:
    """Policies in the order in which they act."""
    _unique(policies, lambda policy: policy.kind.name, "kind")
    _unique(policies, lambda policy: policy.order, "order")
    return tuple(sorted(policies, key=lambda policy: policy.order))


def _unique(policies: Sequence[Policy[Any]], key: Callable[[Policy[Any]], object], what: str) -> None:
    taken: dict[object, str] = {}
    for policy in policies:
        if (value := key(policy)) in taken:
            raise RuntimeError(f"{type(policy).__name__} and {taken[value]} share the {what} {value}")
        taken[value] = type(policy).__name__
