"""The filter chains of a port: what takes the connections of some clients, for all hostnames that they can ask for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from cp.model.checkpoint import checked, pass_checkpoint
from cp.model.failure import failure
from cp.model.hosts import ANY_HOST
from cp.translate.failed import with_cause
from cp.translate.fragments import NO_TASK, Confs, Fragment, Task
from cp.translate.gateway.listener_rules import RulesOfListeners
from cp.translate.gateway.proxy import GatewayProxy
from cp.translate.gateway.results import ChainResult, HostKey, HostResult, chain_key, hosts_by_listener
from cp.translate.view.gateways import ServedListener, ServedPort
from generators.proxy import GatewayChain, Protocol, Route, ServerTls, Sidecar

_ALPN: Final = ("h2", "http/1.1")


@dataclass(frozen=True, slots=True)
class ChainsBuilder:
    """Works out the chains of a proxy's ports, and keeps those that nothing has changed."""

    proxy: GatewayProxy
    rules: RulesOfListeners

    def of_port(self, port: ServedPort, hosts: list[HostResult]) -> Iterator[tuple[HostKey, ChainResult]]:
        if not port.tells_names:
            yield self._chain(port, port.listeners, hosts)
            return
        of_listener = hosts_by_listener(hosts)
        for listener in port.listeners:
            yield self._chain(port, (listener,), of_listener.get(listener.index, []))

    def _chain(
        self, port: ServedPort, listeners: tuple[ServedListener, ...], hosts: list[HostResult]
    ) -> tuple[HostKey, ChainResult]:
        key = chain_key(port, listeners[0])
        last = self.proxy.before.chains.get(key)
        return key, _with_last_good(self._attempt(port, listeners, hosts, last), last)

    def _attempt(
        self,
        port: ServedPort,
        listeners: tuple[ServedListener, ...],
        hosts: list[HostResult],
        last: ChainResult | None,
    ) -> ChainResult:
        part = f"port {port.port}"
        try:
            result = self._kept_or_built(port, listeners, hosts, last)
        except Exception as error:  # noqa: BLE001  # whatever it is, all other chains are served
            result = ChainResult({}, NO_TASK, Fragment((), failure=failure(error, part)))
        return replace(result, fragment=with_cause(result.fragment, part, self.proxy.rules, result.entrance))

    def _kept_or_built(
        self,
        port: ServedPort,
        listeners: tuple[ServedListener, ...],
        hosts: list[HostResult],
        last: ChainResult | None,
    ) -> ChainResult:
        entrance, downstream = self.rules.of_clients(listeners)
        basis = (*self._basis(port, listeners, hosts), downstream)
        if last is not None and last.basis == basis and last.fragment.is_made:
            return last if last.entrance is entrance else replace(last, entrance=entrance)
        task = self._task(port, listeners, hosts, downstream)
        return ChainResult(entrance, task, self.proxy.fragments.get(task), basis)

    def _basis(
        self, port: ServedPort, listeners: tuple[ServedListener, ...], hosts: list[HostResult]
    ) -> tuple[object, ...]:
        proxy = self.proxy
        of_hosts = tuple(_read_by_chain(host) for host in hosts)
        of_listeners = tuple((listener.hostname, listener.certificates) for listener in listeners)
        of_port = (port.protocol, proxy.listener_name(port), proxy.address, proxy.service, proxy.sidecar)
        return of_hosts, of_listeners, of_port

    def _task(
        self, port: ServedPort, listeners: tuple[ServedListener, ...], hosts: list[HostResult], downstream: Confs
    ) -> Task:
        """The task of a chain: what all of its hostnames have in common is for all of it, the others' for rows."""
        policies = self.proxy.policies
        common = _common(_confs_of_chain(host) for host in hosts)
        own = self._own_of_rows(hosts, common) if port.is_http else {}
        routes = tuple(own) if port.is_http else _tcp_routes(hosts)
        site = replace(self._site(port, listeners), routes=routes, filters=policies.needed_filters(hosts))
        of_owners = tuple((row.owner, confs) for row, confs in own.items())
        return Task(site, policies.chain_writers.among(common), of_owners, downstream=downstream)

    def _own_of_rows(self, hosts: list[HostResult], common: Confs) -> dict[Route, Confs]:
        """The rows for which something else holds than for the chain, of what a chain has to know."""
        writers = self.proxy.policies.row_writers
        of_rows = {row: writers.among(confs) for host in hosts for row, confs in _own_of_host(host, common)}
        return {row: confs for row, confs in sorted(of_rows.items(), key=lambda entry: entry[0].owner) if confs}

    def _site(self, port: ServedPort, listeners: tuple[ServedListener, ...]) -> GatewayChain:
        proxy = self.proxy
        return GatewayChain(
            listener=proxy.listener_name(port),
            address=proxy.address,
            port=port.port,
            protocol=Protocol.HTTP if port.is_http else Protocol.TCP,
            service=proxy.service,
            table=proxy.table_name(port, listeners[0]) if port.is_http else "",
            is_over_tls=port.tells_names,
            server_names=_server_names(listeners) if port.tells_names else (),
            tls=_server_tls(port, listeners[0]),
            sidecar=proxy.sidecar,
        )


def _with_last_good(chain: ChainResult, last: ChainResult | None) -> ChainResult:
    """A chain that cannot be made stays as it was, unless it needs another table or certificate now."""
    if last is None or chain.fragment.is_made or not last.fragment.is_servable or not needs_the_same(last, chain):
        return chain
    return replace(chain, fragment=last.fragment.in_place_of(chain.fragment))


def needs_the_same(last: ChainResult, chain: ChainResult) -> bool:
    """Whether two chains are for the same clients, and need the same table and certificates."""
    earlier, site = last.task.site, chain.task.site
    if not (isinstance(earlier, GatewayChain) and isinstance(site, GatewayChain)):
        return False
    return _by_itself(earlier) == _by_itself(site)


def _by_itself(chain: GatewayChain) -> GatewayChain:
    """A chain without what policies and routes make of it."""
    return replace(chain, routes=(), sidecar=Sidecar())


def server_names(hostname: str) -> tuple[str, ...]:
    """The server name for which clients have to ask; none where any will do."""
    return () if hostname == ANY_HOST else (hostname,)


def _server_names(listeners: Iterable[ServedListener]) -> tuple[str, ...]:
    return tuple(name for listener in listeners for name in server_names(listener.hostname))


def _server_tls(port: ServedPort, listener: ServedListener) -> ServerTls | None:
    if not listener.certificates:
        return None
    return ServerTls(tuple(certificate.name for certificate in listener.certificates), _ALPN if port.is_http else ())


def _tcp_routes(hosts: Iterable[HostResult]) -> tuple[Route, ...]:
    return next((host.routes for host in hosts), ())


def _common(all_confs: Iterable[Confs]) -> Confs:
    """The confs that hold for each of several hostnames."""
    distinct = list(dict.fromkeys(all_confs))
    return tuple(conf for conf in distinct[0] if all(conf in confs for confs in distinct)) if distinct else ()


def _own_of_host(host: HostResult, common: Confs) -> Iterator[tuple[Route, Confs]]:
    """The rows of a host for which something else holds than for its chain.

    What holds for all rows of its listener stands for them once, so that the chain stays as it is when rows come or go.
    """
    if mark := host.basis.row_mark:
        yield Route(mark, mark, is_every=True), tuple(conf for conf in host.confs if conf not in common)
    own_confs = dict(host.own_confs)
    for row in checked(host.routes, pass_checkpoint):
        if row.owner in own_confs:
            yield Route(row.name, row.owner), own_confs[row.owner]


def _confs_of_chain(host: HostResult) -> Confs:
    """A TCP listener has one route, and TCP policies write into the listener: so it gets the conf of the route."""
    own = dict(host.own_confs).get(host.routes[0].owner, ()) if not host.port.is_http else ()
    return tuple(sorted((dict(host.confs) | dict(own)).items()))


def _read_by_chain(host: HostResult) -> tuple[object, ...]:
    """All of a hostname that its chain has to know."""
    return host.listener.hostname, host.basis.row_mark, host.routes, host.confs, host.own_confs
