"""What all policies together build of the parts of a call, where one of them may write over what others write.

What a policy builds by itself does not show that: a MeshProxyPatch changes what is finished, and two policies can write
one field of Envoy's.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

from envoy.config.route.v3.route_pb2 import RouteConfiguration

from cp.insight.effects import Build, arranged_tasks, with_another
from cp.model.canonical import canonical_json
from cp.policies import Policies, Policy
from cp.resources.caller import Caller
from cp.rules.merging import Conf
from cp.translate.backend import BackendResult
from cp.translate.effective import Effective, has_hook, types_behind
from cp.translate.fragments import Confs, Fragment, Task, build
from cp.translate.inbound import InboundResult
from cp.translate.outbound import OutboundResult
from cp.translate.packing import ROUTES
from generators.proxy import Endpoints

NOBODY: Final = ""
WRITTEN_OVER: Final = "writes another value in its place"
"""How the reason ends why a field has no effect over which others write."""


@dataclass(frozen=True, slots=True)
class WholeBuild:
    """What is built of a part of a call when one policy has some conf there, and all others have theirs."""

    writers: Mapping[str, tuple[str, ...]]
    """The kinds of policies that may write over what the policy writes, with the types of those that do."""

    make: Callable[[Conf, str], object]
    """For a conf of the policy, and the kind of another one that is left out."""

    def without(self, left_out: str) -> Build:
        return lambda conf: self.make(conf, left_out)

    def reaches(self, conf: Conf, path: str, left_out: str = NOBODY) -> bool:
        """Whether another value of a field would be seen. A patch may replace nothing but a value, so one stays."""
        make = self.without(left_out)
        return make(with_another(conf, path)) != make(conf)

    def writers_over(self, conf: Conf, path: str) -> tuple[str, ...]:
        """The types without which a field would be seen that is not; nothing where it is, or never was."""
        if not self.writers or self.reaches(conf, path):
            return ()
        return tuple(chain.from_iterable(of for kind, of in self.writers.items() if self.reaches(conf, path, kind)))


@dataclass(frozen=True, slots=True)
class ServedRow:
    """A row of a route table, by its place in what is served."""

    virtual_host: str
    index: int


def writers_over(policies: Policies, policy: Policy[Any], kinds: Container[str]) -> Iterator[Policy[Any]]:
    """The policies of some kinds that may write over what a policy writes; a patch changes what it wrote itself."""
    for other in policies:
        if other.kind.name in kinds and (has_hook(other, "finish") or policy.kind.name in other.writes_over):
            yield other


def written_over(writers: Iterable[str]) -> str:
    """Why a field has no effect over which policies of some types write."""
    return f"has no effect: {' and '.join(f'a {name}' for name in dict.fromkeys(writers))} {WRITTEN_OVER}"


def of_row(  # noqa: PLR0913  # all on which it depends
    policies: Policies,
    policy: Policy[Any],
    entry: OutboundResult,
    served: ServedRow | None,
    owner: str,
    *,
    is_own: bool,
) -> WholeBuild | None:
    """Of a row of a route table. `is_own`: a conf of its own alone is changed, and not that of its listener."""
    if served is None:
        return None

    def make(conf: Conf, left_out: str) -> object:
        task = _without(entry.task, left_out)
        routes = tuple((of, _replaced(confs, policy, conf) if of == owner else confs) for of, confs in task.routes)
        confs = task.confs if is_own else _with_conf(task.confs, policy, conf)
        return _row(build(replace(task, confs=confs, routes=routes), policies), served)

    return _whole(policies, policy, entry.effective, make)


def of_listener(policies: Policies, policy: Policy[Any], entry: OutboundResult) -> WholeBuild | None:
    """Of a listener without its rows."""

    def make(conf: Conf, left_out: str) -> object:
        task = _without(entry.task, left_out)
        fragment = build(replace(task, confs=_with_conf(task.confs, policy, conf)), policies)
        return [packed.body for packed in fragment if packed.type_url != ROUTES]

    return _whole(policies, policy, entry.effective, make)


def of_cluster(
    policies: Policies, policy: Policy[Any], upstream: BackendResult, endpoints: Endpoints, caller: Caller
) -> WholeBuild | None:
    """Of a cluster and its endpoints. The endpoints are those before `Policy.arrange`."""

    def make(conf: Conf, left_out: str) -> object:
        left = (_without(task, left_out) for task in upstream.tasks)
        tasks = tuple(replace(task, confs=_with_conf(task.confs, policy, conf)) for task in left)
        if has_hook(policy, "arrange"):
            tasks = arranged_tasks(policy, conf, tasks, endpoints, caller)
        return [packed.body for task in tasks for packed in build(task, policies)]

    return _whole(policies, policy, upstream.effective, make)


def of_inbound(policies: Policies, policy: Policy[Any], reached: InboundResult) -> WholeBuild | None:
    def make(conf: Conf, left_out: str) -> object:
        task = _without(reached.task, left_out)
        fragment = build(replace(task, confs=_with_conf(task.confs, policy, conf)), policies)
        return [packed.body for packed in fragment]

    return _whole(policies, policy, reached.effective, make)


def _whole(
    policies: Policies, policy: Policy[Any], effective: Effective, make: Callable[[Conf, str], object]
) -> WholeBuild | None:
    """None where nobody writes over what the policy writes: what it builds by itself tells all then."""
    writers = list(writers_over(policies, policy, effective))
    kinds = [other.kind.name for other in writers if other is not policy]
    return WholeBuild({kind: types_behind(kind, effective[kind]) for kind in kinds}, make) if writers else None


def _without(task: Task, left_out: str) -> Task:
    confs = tuple((kind, conf) for kind, conf in task.confs if kind != left_out)
    return replace(task, confs=confs)


def _with_conf(confs: Confs, policy: Policy[Any], conf: Conf) -> Confs:
    kind = policy.kind.name
    return (*((other, of_other) for other, of_other in confs if other != kind), (kind, canonical_json(conf)))


def _replaced(confs: Confs, policy: Policy[Any], conf: Conf) -> Confs:
    """A row that has no conf of its own for a policy has that of its listener."""
    return _with_conf(confs, policy, conf) if any(kind == policy.kind.name for kind, _ in confs) else confs


def _row(fragment: Fragment, served: ServedRow) -> object:
    """A row, with what its virtual host says for all rows."""
    for packed in fragment:
        hosts = RouteConfiguration.FromString(packed.body).virtual_hosts if packed.type_url == ROUTES else ()
        for host in hosts:
            if host.name == served.virtual_host and served.index < len(host.routes):
                row = host.routes[served.index].SerializeToString(deterministic=True)
                host.ClearField("routes")
                return host.SerializeToString(deterministic=True), row
    return None
