"""The hostnames of a port: which listener each belongs to, which are kept, and what stands for one that fails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain as chained
from typing import Final, TypeAlias

from cp.model.dependency import ChangeScope
from cp.model.failure import Failure, OverLimit, failure
from cp.model.memo import ByIdentity
from cp.resources.limits import PARTS_OF_GATEWAY, ROWS_OF_GATEWAY, Room, parts_of, rows_of
from cp.rules.changes import scope_of_policies
from cp.rules.combined import CombinedConf
from cp.rules.gateways import HostRoutes, RoutesByHost, hosts_of_listener, patterns_of_listeners
from cp.translate.failed import failure_of_part
from cp.translate.fragments import NO_TASK, Fragment, Task
from cp.translate.gateway.hostname import HostBuilder
from cp.translate.gateway.listener_rules import RulesOfListeners
from cp.translate.gateway.proxy import GatewayProxy
from cp.translate.gateway.results import HostBasis, HostKey, HostResult, PoliciesByKind
from cp.translate.view.gateways import ServedListener, ServedPort
from generators.proxy import GatewayHost, Route

_LIMITS: Final = (ROWS_OF_GATEWAY, PARTS_OF_GATEWAY)

_Host: TypeAlias = tuple[ServedPort, ServedListener, HostBasis]


@dataclass(frozen=True, slots=True)
class HostnamesBuilder:
    """Works out the hostnames of a proxy's ports, and keeps those that nothing has changed."""

    proxy: GatewayProxy
    rules: RulesOfListeners
    policy_scopes: dict[tuple[ByIdentity[PoliciesByKind], ByIdentity[PoliciesByKind]], ChangeScope] = field(
        default_factory=dict
    )
    """The scopes of the changes between two sets of policies, by their identities."""

    def of_ports(self, ports: Iterable[ServedPort]) -> Mapping[int, list[HostResult]]:
        """The hostnames of each port. Those whose rows exceed a limit are known before any row is built."""
        hosts: dict[int, list[HostResult]] = {}
        entries = [entry for served_port in ports for entry in self._of_port(served_port)]
        for port, listener, basis in _limited(entries):
            hosts.setdefault(port.port, []).append(self._host(port, listener, basis))
        return hosts

    def _of_port(self, port: ServedPort) -> Iterator[_Host]:
        """The hostnames of a port. One for which several listeners have routes is that of the narrowest of them."""
        listeners = {listener.hostname: listener for listener in port.listeners}
        all_rules = dict.fromkeys(map(self.rules.of, port.listeners))
        differ = len({rules.policies for rules in all_rules}) > 1 and not port.tells_names
        patterns: dict[ByIdentity[RoutesByHost], Mapping[str, list[str]]] = {}
        for hostname, listener in listeners.items():
            mark, routes = f"@{hostname}" if differ else "", self.rules.routes(port, listener)
            key = ByIdentity(routes)
            if key not in patterns:
                patterns[key] = patterns_of_listeners(listeners, routes)
            for of_host in hosts_of_listener(hostname, patterns[key].get(hostname, ()), routes):
                yield port, listener, self._basis(port, listener, of_host, mark)

    def _basis(self, port: ServedPort, listener: ServedListener, routes: HostRoutes, row_mark: str) -> HostBasis:
        rules, proxy = self.rules.of(listener), self.proxy
        table = proxy.table_name(port, listener) if port.is_http else ""
        return HostBasis(routes, rules.policies, proxy.sidecar, proxy.service, table, rules.mark, row_mark)

    def _host(self, port: ServedPort, listener: ServedListener, basis: HostBasis) -> HostResult:
        last = self.proxy.before.hosts.get(HostKey(port.port, basis.routes.hostname))
        if last is not None and self._holds(last, basis) and self._fits(last):
            is_same = last.port is port and last.listener is listener
            return last if is_same else replace(last, port=port, listener=listener)
        part = f"{basis.routes.hostname} at port {port.port}"
        result = self._attempt(port, listener, basis, part)
        if result.fragment.failure is None:
            return result
        cause = failure_of_part(result.fragment.failure, part, self.rules.of(listener).rules, result.effective)
        if cause.is_limit:
            about_gateway = replace(cause, policies=cause.policies or (self.proxy.gateway.key,))
            return replace(result, fragment=self._answer_of_500(result, about_gateway))
        return _with_last_good(result, last, cause) or replace(result, fragment=self._answer_of_500(result, cause))

    def _fits(self, last: HostResult) -> bool:
        """Take the room of a hostname that is kept. Returns False if there is none."""
        try:
            self.proxy.room.take(last.size)
        except OverLimit:
            return False
        return True

    def _holds(self, last: HostResult, basis: HostBasis) -> bool:
        """Whether a hostname is still what it was."""
        if self.proxy.earlier is None or last.basis != basis or not last.fragment.is_made:
            return False
        changed = (self.proxy.earlier.scope, self._scope_of_policies(last.basis.policies, basis.policies))
        return not any(scope.concerns(last.depends_on) for scope in changed)

    def _scope_of_policies(self, before: PoliciesByKind, now: PoliciesByKind) -> ChangeScope:
        """What is concerned where other policies hold than before: found out once for all hostnames of a listener."""
        key = ByIdentity(before), ByIdentity(now)
        if key not in self.policy_scopes:
            changed = set(chained.from_iterable(before)) ^ set(chained.from_iterable(now))
            targets = () if self.proxy.earlier is None else self.proxy.earlier.targets
            self.policy_scopes[key] = scope_of_policies(changed, targets)
        return self.policy_scopes[key]

    def _attempt(self, port: ServedPort, listener: ServedListener, basis: HostBasis, part: str) -> HostResult:
        if basis.over is not None:
            return _failed_host(port, listener, basis, failure(basis.over, part))
        try:
            return HostBuilder(self.proxy, self.rules, port, listener, basis).result()
        except Exception as error:  # noqa: BLE001  # whatever it is, all other hostnames are served
            return _failed_host(port, listener, basis, failure(error, part))

    def _answer_of_500(self, result: HostResult, cause: Failure) -> Fragment:
        """A virtual host that answers with 500 and the reason."""
        if not isinstance(result.task.site, GatewayHost):
            return Fragment((), failure=cause)
        route = Route("failed", unavailable_reason=f"{cause.kind or 'koguma'}: {cause.reason}")
        built = self.proxy.fragments.get(Task(replace(result.task.site, routes=(route,))))
        return Fragment(built.resources, failure=replace(cause, instead="an answer of 500"))


def _limited(hosts: Sequence[_Host]) -> Iterator[_Host]:
    """The hostnames of a gateway, with the limit that the rows of some exceed.

    The room is taken in the order of ports, listeners and hostnames. A hostname that does not fit takes none.
    """
    of_routes = _Counts()
    counts = [of_routes.of(basis.routes) for _, _, basis in hosts]
    rooms = [Room(limit, needed=sum(count[index] for count in counts)) for index, limit in enumerate(_LIMITS)]
    for (port, listener, basis), count in zip(hosts, counts, strict=True):
        try:
            for room, of_limit in zip(rooms, count, strict=True):
                room.take(of_limit)
            yield port, listener, basis
        except OverLimit as over:
            yield port, listener, replace(basis, over=over)


class _Counts(dict[CombinedConf, tuple[int, int]]):
    """The rows of routes, and the conditions, filters and backends of all of them: counted once for all hostnames."""

    def of(self, routes: HostRoutes) -> tuple[int, int]:
        """One row is for what no route takes."""
        of_levels = [self._of_level(level) for level in routes.levels]
        return 1 + sum(rows for rows, _ in of_levels), sum(parts for _, parts in of_levels)

    def _of_level(self, level: CombinedConf) -> tuple[int, int]:
        if level not in self:
            rules = level.conf.value.get("rules") or ()
            self[level] = sum(map(rows_of, rules)), sum(map(parts_of, rules))
        return self[level]


def _with_last_good(result: HostResult, last: HostResult | None, cause: Failure) -> HostResult | None:
    """A hostname that failed, as it was last; None if it was not, or stood in another table."""
    if last is None or not last.fragment.is_servable or last.table != result.table:
        return None
    kept = last.fragment.in_place_of(Fragment((), failure=cause))
    return replace(result, fragment=kept).with_uses_of(last)


def _failed_host(port: ServedPort, listener: ServedListener, basis: HostBasis, cause: Failure) -> HostResult:
    host = GatewayHost(basis.table, basis.routes.hostname, (Route("failed", unavailable_reason=cause.reason),))
    return HostResult(
        port=port,
        listener=listener,
        hostname=basis.routes.hostname,
        table=basis.table,
        routes=host.routes,
        effective={},
        of_routes={},
        route_rules={},
        confs=(),
        own_confs=(),
        filters={},
        task=Task(host) if port.is_http else NO_TASK,
        fragment=Fragment((), failure=cause),
        uses=(),
        depends_on=frozenset(),
        basis=basis,
    )
