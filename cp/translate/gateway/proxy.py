"""One proxy of a builtin gateway in one World: what all of its parts are worked out from, and how they are named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cp.model.remembered import remembered
from cp.resources.caller import Caller
from cp.resources.limits import BYTES_OF_GATEWAY, Room
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.effective import ConfWriters, Effective, Rules
from cp.translate.fragments import Confs, FragmentCache
from cp.translate.gateway.policies import GatewayPolicies
from cp.translate.gateway.results import NO_GATEWAY, Earlier, GatewayResult, chain_key
from cp.translate.view.gateways import ServedGateway, ServedListener, ServedPort, served_gateway
from cp.translate.view.sidecars import sidecar_of, sidecar_of_caller
from generators.envoy import names
from generators.proxy import Sidecar


@dataclass(frozen=True, eq=False)
class GatewayProxy:
    """One proxy of a builtin gateway that is being worked out."""

    policies: GatewayPolicies
    fragments: FragmentCache
    world: World
    dataplane: Resource
    gateway: Resource
    rules: Rules
    caller: Caller
    earlier: Earlier | None
    room: Room = field(default_factory=lambda: Room(BYTES_OF_GATEWAY))
    """The room that its hostnames take in their order."""

    @property
    def before(self) -> GatewayResult:
        return NO_GATEWAY if self.earlier is None else self.earlier.result

    @remembered
    def sidecar(self) -> Sidecar:
        return sidecar_of_caller(self.caller)

    @property
    def mesh(self) -> str:
        return self.gateway.mesh

    @remembered
    def served(self) -> ServedGateway:
        return served_gateway(self.world, self.gateway)

    @remembered
    def address(self) -> str:
        return str(self.dataplane.spec.networking.address)

    @remembered
    def service(self) -> str:
        return self.dataplane.derived(sidecar_of).service

    @remembered
    def _listener_names(self) -> Mapping[int, str]:
        name = self.gateway.display_name
        return {port.port: names.gateway_listener(name, port.protocol, port.port) for port in self.served.ports}

    def listener_name(self, port: ServedPort) -> str:
        return self._listener_names[port.port]

    def table_name(self, port: ServedPort, listener: ServedListener) -> str:
        return names.gateway_table(self.listener_name(port), chain_key(port, listener).hostname)

    def confs(self, writers: ConfWriters, effective: Effective) -> Confs:
        """The effective confs of some policies, as they stand in a task."""
        return writers.confs(self.world, self.mesh, effective)
