"""What is put together from finished parts: listeners from chains, and route tables from virtual hosts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cp.rules.matching.profile import listener_tags, profile
from cp.rules.matching.profile import listeners as listeners_written
from cp.translate.effective import of_proxy
from cp.translate.failed import with_cause
from cp.translate.fragments import Confs, Fragment, Task
from cp.translate.gateway.chains import needs_the_same, server_names
from cp.translate.gateway.proxy import GatewayProxy
from cp.translate.gateway.results import ChainResult, HostKey, HostResult, JoinedResult, chain_key
from cp.translate.packing import CLUSTER, LISTENER, ROUTES
from cp.translate.view.gateways import ServedPort
from generators.envoy import names
from generators.proxy import GatewayPort, GatewayTable, Tags


@dataclass(frozen=True, slots=True)
class JoinBuilder:
    """Puts the listeners and tables of a proxy together, and keeps those of which no part has changed."""

    proxy: GatewayProxy
    finish: Confs
    """What policies do with whatever is finished."""

    @classmethod
    def of(cls, proxy: GatewayProxy) -> JoinBuilder:
        return cls(proxy, proxy.confs(proxy.policies.finishers, of_proxy(proxy.rules)))

    def listener(self, port: ServedPort, chains: Mapping[HostKey, ChainResult]) -> JoinedResult:
        """The listener of a port. `chains` are those of all ports."""
        of_port = {key.hostname: chain.fragment for key, chain in chains.items() if key.port == port.port}
        basis = (self.proxy.gateway, self.proxy.dataplane, self.finish, *of_port.items())
        last = self.proxy.before.listeners.get(port.port)
        if last is not None and last.basis == basis and last.fragment.is_made:
            return last
        bodies = tuple(_bodies(of_port.values(), LISTENER))
        clusters = tuple(dict.fromkeys(_bodies(of_port.values(), CLUSTER)))
        of_listeners = self._tags(port)
        tags = tuple((names.gateway_chain(server_names(hostname)), of_listeners[hostname]) for hostname in of_port)
        site = GatewayPort(self.proxy.listener_name(port), bodies, clusters, self.proxy.service, tags)
        return self._joined(Task(site, self.finish), basis, bodies, last if self._is_known(port, chains) else None)

    def tables(self, port: ServedPort, hosts: Iterable[HostResult]) -> Iterator[tuple[str, JoinedResult]]:
        """The route tables of a port, by name."""
        of_table: dict[str, list[HostResult]] = {}
        for host in hosts:
            if host.table:
                of_table.setdefault(host.table, []).append(host)
        for name, in_table in of_table.items():
            yield name, self._table(name, in_table, port.elsewhere.get(in_table[0].listener.hostname, ()))

    def _table(self, name: str, hosts: list[HostResult], elsewhere: tuple[str, ...]) -> JoinedResult:
        service = self.proxy.service
        basis = (elsewhere, self.finish, service, *(host.fragment for host in hosts))
        last = self.proxy.before.tables.get(name)
        if last is not None and last.basis == basis and last.fragment.is_made:
            return last
        bodies = tuple(_bodies((host.fragment for host in hosts), ROUTES))
        return self._joined(Task(GatewayTable(name, bodies, elsewhere, service), self.finish), basis, bodies, last)

    def _is_known(self, port: ServedPort, chains: Mapping[HostKey, ChainResult]) -> bool:
        """Whether a port has the chains that it had, so that its last listener needs nothing that is not served."""
        before = self.proxy.before.chains
        olds, news = ({key: of[key] for key in of if key.port == port.port} for of in (before, chains))
        return olds.keys() == news.keys() and all(needs_the_same(olds[key], news[key]) for key in news)

    def _tags(self, port: ServedPort) -> Mapping[str, tuple[Tags, ...]]:
        """The tags of the listeners for which each chain is, by its hostname."""
        gateway = self.proxy.gateway
        written, own = listeners_written(gateway), profile(self.proxy.dataplane)
        tags: dict[str, list[Tags]] = {}
        for listener in port.listeners:
            carried = listener_tags(own, gateway, written[listener.index])
            tags.setdefault(chain_key(port, listener).hostname, []).append(tuple(sorted(carried.items())))
        return {hostname: tuple(of_chain) for hostname, of_chain in tags.items()}

    def _joined(
        self, task: Task, basis: tuple[object, ...], bodies: tuple[bytes, ...], last: JoinedResult | None
    ) -> JoinedResult:
        """What is put together. If it cannot be, by a fault of ours, it stays as it was."""
        fragment = self.proxy.fragments.get(task) if bodies else Fragment(())
        if fragment.failure is not None:
            part = task.site.name if isinstance(task.site, GatewayPort | GatewayTable) else ""
            fragment = with_cause(fragment, part, self.proxy.rules, {})
            if last is not None and last.fragment.is_servable:
                fragment = last.fragment.in_place_of(fragment)
        return JoinedResult(task, fragment, basis)


def _bodies(fragments: Iterable[Fragment], type_url: str) -> Iterator[bytes]:
    return (packed.body for fragment in fragments for packed in fragment if packed.type_url == type_url)
