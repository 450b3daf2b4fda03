"""What a policy is, and how policies are found.

A policy is one module of this package with a `POLICY`. It says what may be written (`kind`), in what order it acts
(`order`), declares facts about its fields, and fills in hooks. The walk over resources is written once, in
`cp.translate.fragments`: a hook gets the policy's effective conf, decoded, and the draft of one fragment, and writes
fields. No hook sees a whole proxy. Lint and explanations read the facts, and name no policy.

See record 0005.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

from cp.model.violation import Violation, at
from cp.resources.core import CORE
from cp.resources.engine import DEFAULT_ENGINE, Engine
from cp.resources.kinds import DocumentMeta, Kind, Kinds
from cp.resources.limits import DEFAULT_BUDGET, Budget
from cp.resources.mesh import MESH, mesh_kind
from cp.resources.spec import PolicySpec
from generators.proxy import Protocol as ServiceProtocol

if TYPE_CHECKING:
    from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import HttpFilter

    from cp.model.duration import Duration
    from cp.model.names import Identity
    from cp.model.target import BackendRef
    from cp.resources.caller import Caller
    from cp.resources.targets import AllowedTargets
    from cp.resources.world import Table
    from cp.rules import RouteRule
    from generators.drafts import Built, ClusterDraft, EndpointsDraft, ListenerDraft, RouteDraft, SidecarDraft
    from generators.proxy import Capture, Endpoints, Inbound, Outbound, Route, Split

HTTP_PROTOCOLS: Final = frozenset(protocol for protocol in ServiceProtocol if protocol.is_http)

Conf = TypeVar("Conf")
Spec = TypeVar("Spec", bound=PolicySpec)

Validator: TypeAlias = Callable[[Spec, DocumentMeta], Iterator[Violation]]


def in_spec(validate: Validator[Spec]) -> Validator[Spec]:
    """The validator of a document, from one whose paths begin at the `spec` of the document."""
    return lambda spec, meta: at("spec", validate(spec, meta))


@dataclass(frozen=True, slots=True)
class ClientRule(Generic[Conf]):
    """A conf that holds on an inbound for the clients that match; an empty match is for all of them."""

    match: Mapping[str, Any]
    """`tags` and `not`, of a `from` item; `spiffeID` and `sni`, of a `rules` item."""

    conf: Conf
    policy: str = ""
    """The policy that says so, as a KRI; empty where rules of several policies are merged."""


class Verdict(StrEnum):
    """What becomes of clients who want to call."""

    ALLOW = "allow"
    DENY = "deny"
    """They may not call, whoever else allows them to."""

    SHADOW_DENY = "shadow deny"
    """They may call, and it is logged that they might not."""


@dataclass(frozen=True, slots=True)
class ClientVerdict:
    """What a rule says of clients who want to call."""

    verdict: Verdict
    client: Mapping[str, Any]
    """The conditions that they meet, as in `ClientRule.match`; none: all clients do."""

    path: str
    """Where the conf of the rule says so."""

    unless: tuple[Mapping[str, Any], ...] = ()
    """Other conditions: whoever meets all of one of them is judged by another rule."""


class Backends(Protocol):
    """Resolves what routes refer to, and makes sure that there is a cluster for it."""

    def split(self, reference: BackendRef, seen_from: Identity) -> Split:
        """The backend of a reference in a resource. `seen_from` is that resource. A missing backend has a reason."""
        ...

    def called_destination(self) -> Split:
        """The destination that the caller called, as a backend."""
        ...

    def unmatched(self) -> Route:
        """The row for requests that no route takes."""
        ...

    def owner(self, rule: RouteRule) -> str:
        """The name by which the confs for the route resource of a rule are looked up."""
        ...


class LimitedTime(StrEnum):
    """What a limit is about, in the order in which explanations list limits."""

    REQUEST = "a request"
    TRY = "each try of it"
    SILENCE = "silence within it"
    HEADERS = "its headers"
    CONNECTION_SILENCE = "silence on the connection"


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """A field of a conf that limits how long something may take where one of some protocols is spoken."""

    of: LimitedTime
    field: str
    protocols: frozenset[ServiceProtocol]


class ServedRetries(Protocol):
    """When Envoy sends a request again, and how soon."""

    @property
    def on(self) -> tuple[str, ...]:
        """Envoy's names of the conditions."""
        ...

    @property
    def retries(self) -> int: ...

    @property
    def base_interval(self) -> Duration: ...

    @property
    def max_interval(self) -> Duration: ...


class ServedCall(Protocol):
    """What Envoy does with a call that goes on, read from the configuration that it is served."""

    @property
    def timeout(self) -> Duration: ...

    @property
    def idle_timeout(self) -> Duration: ...

    @property
    def retry(self) -> ServedRetries | None: ...

    @property
    def connect_attempts(self) -> int:
        """How often a TCP connection is tried."""
        ...


@dataclass(frozen=True, slots=True)
class UnsetField:
    """What holds for a field that no policy sets, nor a default of its policy."""

    path: str
    value: Any = None
    note: str = ""
    served_in: Literal["", "route", "listener"] = ""
    """The part of Envoy's configuration from which the value follows; empty: none."""

    is_built_in: bool = False
    """Whether the generator chose the value. Otherwise it is what Envoy does where nothing is configured."""


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """Where the metrics of a proxy are, at the address of the proxy."""

    port: int
    path: str
    client: str = ""
    """Which collector it is for; empty: any."""


class Policy(Generic[Conf]):
    """One policy. Hooks that it leaves alone do nothing."""

    kind: ClassVar[Kind]
    legacy_kinds: ClassVar[tuple[Kind, ...]] = ()
    """Kinds of legacy policies that only this policy can judge: they are written in Envoy's terms."""

    order: ClassVar[int]
    conf: ClassVar[type[Any]]
    """The schema of a merged conf."""

    is_route: ClassVar[bool] = False
    """Whether its conf is a table of routes; then `shape` is called, and no other hook."""

    gateway_protocols: ClassVar[frozenset[ServiceProtocol]] = frozenset()
    """The protocols of listeners of a gateway on which it has routes; of each protocol one policy alone."""

    outbound_default: ClassVar[Mapping[str, Any]] = {}
    """What holds for a destination, field by field, where no policy says anything."""

    inbound_default: ClassVar[Mapping[str, Any]] = {}
    """The same for an inbound."""

    gateway_default: ClassVar[Mapping[str, Any]] = {}
    """What holds on a gateway for what it calls, over `outbound_default`."""

    entrance_default: ClassVar[Mapping[str, Any]] = {}
    """What holds on a gateway for its clients."""

    targets: ClassVar[AllowedTargets]
    """Which kinds a targetRef may have at each level."""

    section_protocols: ClassVar[Mapping[str, frozenset[ServiceProtocol]]] = {}
    """The sections of a conf, by their paths, that act only where one of these protocols is spoken."""

    section_settings: ClassVar[frozenset[str]] = frozenset()
    """The top-level fields of a conf that only say how its sections act, and do nothing without a section that acts."""

    sections_for_all_protocols: ClassVar[frozenset[str]] = frozenset()
    """The sections that act whatever is spoken: beside them, too, the settings of sections have a meaning."""

    is_hidden_by_routes: ClassVar[bool] = False
    """Whether a value for a service holds for no request as soon as each of its routes has a value of its own.

    That is so where the `route_fields` are written into routes alone, and not into the listener as well.
    """

    time_limits: ClassVar[tuple[TimeLimit, ...]] = ()
    """Its limits. An explanation compares those of the caller's proxy with those of the proxy that is called."""

    switches: ClassVar[Mapping[str, Any]] = {}
    """The values, by the paths of their fields, beside which nothing else of their section does anything."""

    needed_list: ClassVar[str] = ""
    """A list of a conf, without an entry of which nothing of the conf does anything."""

    is_for_calls_of_gateways: ClassVar[bool] = False
    """Whether items of `to` say what gateways do, and a sidecar does nothing of it for its calls."""

    change_list: ClassVar[str] = ""
    """A list of changes that `finish` makes. It enters each that found something to change in `Built.used`."""

    writes_over: ClassVar[frozenset[str]] = frozenset()
    """The kinds of policies that write a field of Envoy's too which this policy writes, and lose as they come first.

    A policy that fills in `finish` may write over anything.
    """

    judges_every_client: ClassVar[bool] = False
    """Whether it decides who may call at all, for which callers need an identity.

    Its `clients` is called for each inbound with mTLS, also without a rule, and for no other.
    """

    is_for_grpc_clients: ClassVar[bool] = False
    """Whether a gRPC client without a proxy does something of what it writes (`generators.grpc`)."""

    @property
    def route_fields(self) -> tuple[str, ...]:
        """The fields, by their path in the conf, that an HTTP route can carry. Others are invalid for a route."""
        return self.targets.http_route

    @property
    def is_for_captured_calls(self) -> bool:
        """Whether it is about calls for none of a proxy's destinations, and does nothing where none are redirected."""
        return type(self).capture is not Policy.capture

    def shape(self, rules: Sequence[RouteRule], outbound: Outbound, backends: Backends) -> Outbound:
        """Decide what exists before anything is built: the rows of a route table. Called where there are rules."""
        del rules, backends
        return outbound

    def arrange(self, conf: Conf | None, endpoints: Endpoints, caller: Caller) -> Endpoints:
        """Decide where the endpoints of a destination are for a caller. Also called without a conf."""
        del conf, caller
        return endpoints

    def capture(self, conf: Conf, capture: Capture) -> Capture:
        """Decide what becomes of the calls that are redirected to a proxy and are for none of its destinations."""
        del conf
        return capture

    def secure(self, conf: Conf, inbound: Inbound) -> Inbound:
        """Decide how callers speak with an inbound, before anything is built."""
        del conf
        return inbound

    def caller_tags(self, table: Table) -> frozenset[str]:
        """The tags of a caller that decide how the policies of a mesh arrange endpoints for it."""
        del table
        return frozenset()

    def sidecar_fields(self, table: Table) -> frozenset[str]:
        """The fields of `generators.proxy.Sidecar` that the policies of a mesh write into listeners of outbounds.

        Proxies that differ in one of these fields share no outbound, so each field costs: name no more than needed.
        """
        del table
        return frozenset()

    def fields_of_caller(self, conf: Conf) -> frozenset[str]:
        """The same of one conf, whoever wrote it: what legacy policies come to is in none of these documents."""
        del conf
        return frozenset()

    def cluster(self, conf: Conf, draft: ClusterDraft) -> None:
        """Write into one upstream cluster. `draft.is_local`: the cluster of the proxy's own workload."""

    def endpoints(self, conf: Conf, draft: EndpointsDraft) -> None:
        """Write into the endpoints of one upstream cluster."""

    def listener(self, conf: Conf, draft: ListenerDraft) -> None:
        """Write into a listener, its connection manager or its TCP proxy. `draft.is_inbound`: that of an inbound."""

    def entrance(self, conf: Conf, draft: ListenerDraft) -> None:
        """Write into a listener of a gateway what holds for its clients: what a `from` item or a rule says."""

    def switched_filters(self, conf: Conf) -> Sequence[HttpFilter]:
        """The HTTP filters of a gateway that a row with this conf switches on, in `route`; unswitched they do nothing.

        Of filters for several confs, those for the one are the first of those for the other.
        """
        del conf
        return ()

    def route(self, conf: Conf, draft: RouteDraft) -> None:
        """Write into one route. Fields that the conf of the route leaves open come from that of the service."""

    def routes_with_own_confs(self, routes: Sequence[tuple[RouteDraft, Conf]], draft: ListenerDraft) -> None:
        """Write into a listener, for its routes with confs of their own, in place of what `listener` wrote."""

    def clients(self, rules: Sequence[ClientRule[Conf]], draft: ListenerDraft) -> None:
        """Write into an inbound what holds for some of its clients. The first rule that matches holds."""

    def verdicts(self, rules: Sequence[ClientRule[Conf]]) -> Iterator[tuple[int, ClientVerdict]]:
        """Say who may call, and who may not, each time with the rule that says so: its place among the rules.

        Only a policy that judges every client does.
        """
        del rules
        yield from ()

    def sidecar(self, conf: Conf, draft: SidecarDraft) -> None:
        """Write the resources that a proxy has beside its inbounds and outbounds."""

    def metrics_pages(self, conf: Conf) -> Iterator[MetricsPage]:
        """Say where collectors find the metrics of a proxy: what `sidecar` makes for them."""
        del conf
        yield from ()

    def finish(self, conf: Conf, built: Built) -> None:
        """Change what all policies together have written. Changes that cannot be made go into `built.problems`."""

    def fields_without_effect(self, confs: Sequence[Conf]) -> Iterator[Violation]:
        """Say which fields of a conf do nothing, and why, where one of these confs holds for each of its proxies."""
        del confs
        yield from ()

    def unset_fields(self, call: ServedCall, protocol: ServiceProtocol) -> Iterator[UnsetField]:
        """Say what holds for the fields that operators ask about, in case nothing sets them."""
        del call, protocol
        yield from ()

    def served_time(self, path: str, call: ServedCall) -> Duration | None:
        """How long Envoy waits by a field, whoever wrote that; None where it is not seen in what becomes of a call."""
        del path, call
        return None

    def value_note(self, path: str, value: Any, call: ServedCall) -> str:
        """Say what an operator has to know of a value beside the value itself; empty: nothing."""
        del path, value, call
        return ""


Policies = Sequence[Policy[Any]]


def discover() -> tuple[Policy[Any], ...]:
    """Every policy, in the order in which they act. A clash of kinds or orders is an error."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    for module in modules:
        if not isinstance(getattr(module, "POLICY", None), Policy):
            raise TypeError(f"{module.__name__} has no POLICY")
    return ordered([module.POLICY for module in modules])


def kinds(
    policies: Policies,
    engine: Engine = DEFAULT_ENGINE,
    *,
    derives_reachability: bool = False,
    budget: Budget = DEFAULT_BUDGET,
) -> Kinds:
    """Every kind of resource there is: those of the core, and one for each policy.

    A Mesh that names no engine has the one that is given. `derives_reachability` and `budget`: as in `Kinds`.
    """
    core = (mesh_kind(engine) if kind is MESH else kind for kind in CORE)
    of_policies = (kind for policy in policies for kind in (policy.kind, *policy.legacy_kinds))
    return Kinds(*core, *of_policies, derives_reachability=derives_reachability, budget=budget)


def ordered(policies: Sequence[Policy[Any]]) -> tuple[Policy[Any], ...]:
    """Policies in the order in which they act."""
    _unique(policies, lambda policy: policy.kind.name, "kind")
    _unique(policies, lambda policy: policy.order, "order")
    return tuple(sorted(policies, key=lambda policy: policy.order))


def _unique(policies: Sequence[Policy[Any]], key: Callable[[Policy[Any]], object], noun: str) -> None:
    taken: dict[object, str] = {}
    for policy in policies:
        if (value := key(policy)) in taken:
            raise RuntimeError(f"{type(policy).__name__} and {taken[value]} share the {noun} {value}")
        taken[value] = type(policy).__name__
