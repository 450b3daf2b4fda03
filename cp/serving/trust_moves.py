"""`TrustMove`: what goes on with mTLS in a mesh, which proxies it waits for and until when, and whom it passes over.

See record 0056.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from cp.identity.rotation import EnabledAuthority, ProxyReadiness
from cp.identity.trust import TrustRecord
from cp.model.names import Key
from cp.model.violation import Finding, Severity, Violation
from cp.model.wording import few
from cp.resources.parse import finding
from cp.resources.resource import Resource
from cp.serving.delivery import ProxyState

CODE: Final = "move-waits"

MOST_NAMED: Final = 10
"""Proxies that are named; the others are counted."""

_HINT: Final = "see `koguma inspect dataplane` of each; delete the Dataplane of a proxy that is gone for good"
_LACKS: Final[Mapping[ProxyState, str]] = MappingProxyType(
    {
        ProxyState.ONLINE: "has no certificate yet",
        ProxyState.OVER_LIMIT: "has no certificate yet",
        ProxyState.OUT_OF_SYNC: "has not answered",
        ProxyState.REFUSED: "refuses what it was sent",
        ProxyState.FAILED: "could not be sent everything",
        ProxyState.OFFLINE: "is away",
        ProxyState.UNKNOWN: "may be served by a control plane that does not answer",
    }
)


@dataclass(frozen=True, slots=True)
class ProxyStanding:
    """How far one proxy of a mesh is."""

    dataplane: Key
    state: ProxyState
    is_expected: bool
    """Whether it counts: it is connected, or was a moment ago."""

    is_certified: bool
    """Whether it has a certificate, or needs none."""

    serves: bool
    """Whether it has inbounds."""

    until: float | None = None
    """Until when it is expected back, if it is away; in seconds since 1970."""

    @property
    def has_all(self) -> bool:
        return self.state.is_in_sync

    def __str__(self) -> str:
        back = "" if self.until is None else f", and expected back until {_moment(self.until)}"
        return f"{self.dataplane.name} ({_LACKS[self.state]}{back})"


class TrustStep(Enum):
    """What comes next or, at the end, what has come."""

    IS_MADE = auto()
    """The control plane is about to make the authority."""

    SIGNS = auto()
    """The authority that is enabled is trusted, and signs as soon as everybody trusts it."""

    CALLERS_WAIT = auto()
    """Callers speak TLS as soon as everybody has a certificate."""

    IS_PASSED = auto()
    """All of that has come, and proxies may have come late."""


@dataclass(frozen=True, slots=True)
class TrustMove:
    """What goes on in a mesh. Times are seconds since 1970."""

    resource: Resource
    """The Mesh or MeshIdentity whose authority it is about."""

    place: str
    step: TrustStep
    backend: str = ""
    since: float = 0.0
    """Since when the authority is trusted."""

    earliest: float = 0.0
    """When the step comes if nobody holds it up."""

    until: float | None = None
    """When nobody is waited for any longer; None: there is no end."""

    proxies: tuple[ProxyStanding, ...] = ()
    """Those that are waited for."""

    absent: tuple[Key, ...] = ()
    """Those that are not connected, are not waited for, and may serve."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """What goes on, and who holds it up."""
        return tuple(filter(None, (self._course, self._absent)))

    @property
    def _course(self) -> str:
        course = {
            TrustStep.IS_MADE: "an authority is being made, and signs as soon as every proxy trusts it",
            TrustStep.SIGNS: f"the authority `{self.backend}` signs as soon as every proxy trusts it",
            TrustStep.CALLERS_WAIT: "callers speak TLS as soon as every proxy has its certificate",
            TrustStep.IS_PASSED: "",
        }[self.step]
        return f"{course}{self._wait}" if course else ""

    @property
    def _wait(self) -> str:
        if self.step is TrustStep.IS_MADE:
            return ""
        if not self.proxies:
            return f", not before {_moment(self.earliest)}"
        end = "without an end" if self.until is None else f"until {_moment(self.until)} at the latest"
        return f"; it waits for {few([str(standing) for standing in self.proxies], MOST_NAMED)}, {end}"

    @property
    def _absent(self) -> str:
        if not self.absent:
            return ""
        names = few([key.name for key in self.absent], MOST_NAMED)
        lost = "calls to them over TLS are lost, if they serve without a certificate that holds"
        return f"nobody waits for those that are not connected, {names}: {lost}"

    @property
    def mesh(self) -> str:
        return self.resource.mesh or self.resource.name

    def concerns(self, dataplane: Key) -> bool:
        return dataplane in self.absent or any(standing.dataplane == dataplane for standing in self.proxies)

    def findings(self) -> tuple[Finding, ...]:
        """About those who hold it up, or are passed over; nothing where nobody does and nobody is."""
        sentences = (self._course if self.proxies else "", self._absent)
        faults = (Violation(self.place, sentence, _HINT) for sentence in sentences if sentence)
        return tuple(finding(self.resource.document, CODE, Severity.WARNING, fault) for fault in faults)


def readiness(standings: Iterable[ProxyStanding]) -> ProxyReadiness:
    expected = [standing for standing in standings if standing.is_expected]
    has_all, are_certified = (
        all(standing.has_all for standing in expected),
        all(standing.is_certified for standing in expected),
    )
    return ProxyReadiness(trust=has_all, identities=are_certified)


def step_of(record: TrustRecord, enabled: EnabledAuthority) -> TrustStep | None:
    """What comes next, or has come last; None where nothing moves."""
    if record.signer != enabled.fingerprint:
        return TrustStep.SIGNS
    if not record.callers and enabled.is_permissive:
        return TrustStep.CALLERS_WAIT
    was_rotated = any(root.until is not None for root in record.roots)
    return TrustStep.IS_PASSED if enabled.is_permissive or was_rotated else None


def awaited(step: TrustStep, standings: Sequence[ProxyStanding]) -> tuple[ProxyStanding, ...]:
    """Who holds up a step."""
    expected = (standing for standing in standings if standing.is_expected)
    if step is TrustStep.SIGNS:
        return tuple(standing for standing in expected if not standing.has_all)
    if step is TrustStep.CALLERS_WAIT:
        return tuple(standing for standing in expected if not (standing.has_all and standing.is_certified))
    return ()


def absent(standings: Iterable[ProxyStanding]) -> tuple[Key, ...]:
    return tuple(standing.dataplane for standing in standings if not standing.is_expected and standing.serves)


def end_of(proxies: Iterable[ProxyStanding], latest: float | None) -> float | None:
    """When nobody of these is waited for any longer: all are away and do not come back, or the patience is over."""
    ends = [standing.until for standing in proxies]
    known = [end for end in ends if end is not None]
    if len(known) < len(ends) or not known:
        return latest
    return max(known) if latest is None else min(max(known), latest)


def _moment(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
