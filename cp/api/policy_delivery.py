"""Whether proxies have the values of a policy that are in force by what is stored, or refuse them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cp.insight.inspect import AffectedProxy
from cp.model.names import Key
from cp.serving.delivery import NackReport, Presence, ProxyState


class ProxyStandings(Protocol):
    """How proxies are, and what they refuse."""

    async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]: ...

    async def nack_reports(self) -> Iterable[NackReport]: ...


@dataclass(frozen=True, slots=True)
class PolicyDelivery:
    """How some proxies are, and what they refuse in which a policy has a say."""

    policy: Key
    presences: Mapping[Key, Presence]
    nack_reports: Mapping[Key, tuple[NackReport, ...]]

    def data(self, proxy: AffectedProxy) -> dict[str, Any]:
        """The effects of the policy on a proxy, with the state of the proxy and what it refuses of them."""
        data, reports = proxy.data, self.nack_reports.get(proxy.dataplane, ())
        for effect, effect_data in zip(proxy.effects_in_force, data["survives"], strict=True):
            refused = [report.refused for report in reports if report.holds_back(self.policy, effect.setting.path)]
            if refused:
                effect_data["refused"] = list(dict.fromkeys(refused))
        presence = self.presences.get(proxy.dataplane)
        return data if presence is None else {**data, "status": str(presence.state)}


async def policy_delivery(observed: ProxyStandings, policy: Key, dataplanes: Iterable[Key]) -> PolicyDelivery:
    presences = await observed.presences(dataplanes)
    refusing = {key for key, presence in presences.items() if presence.state is ProxyState.REFUSED}
    reports: dict[Key, list[NackReport]] = {}
    for report in await observed.nack_reports() if refusing else ():
        if report.dataplane in refusing:
            reports.setdefault(report.dataplane, []).append(report)
    return PolicyDelivery(policy, presences, {key: tuple(of_proxy) for key, of_proxy in reports.items()})
