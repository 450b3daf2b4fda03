"""Fields without a meaning for what is spoken wherever they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

from cp.insight.lint.codes import FindingReason, found
from cp.insight.lint.sites import ClientSite, PartSite, PolicySite, RouteTableSite
from cp.insight.lint.survey import MeshSurvey
from cp.insight.lint.targets import called
from cp.model.names import Key
from cp.model.violation import Finding
from cp.rules.merging import Setting
from cp.translate.effective import BUILT_IN
from generators.proxy import Protocol

_ANY_HTTP: Final = frozenset({Protocol.HTTP, Protocol.HTTP2, Protocol.GRPC})
_NOT_GRPC: Final = frozenset({Protocol.HTTP, Protocol.HTTP2})
_GRPC: Final = frozenset({Protocol.GRPC})
_TCP: Final = frozenset({Protocol.TCP})

MEANS: Final[Mapping[str, Mapping[str, frozenset[Protocol]]]] = MappingProxyType(
    {
        "MeshTimeout": {"http": _ANY_HTTP},
        "MeshRetry": {"http": _NOT_GRPC, "grpc": _GRPC, "tcp": _TCP},
        "MeshHealthCheck": {"http": _NOT_GRPC, "grpc": _GRPC},
        "MeshFaultInjection": {"http": _ANY_HTTP},
        "MeshRateLimit": {"local.http": _ANY_HTTP, "local.tcp": _TCP},
    }
)
"""The sections of confs that are for some protocols only. A test compares them with what is generated."""

_BESIDE: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {"MeshHealthCheck": frozenset({"tcp", "healthyPanicThreshold", "failTrafficOnPanic"})}
)
"""Where most fields say how something else is done: those that have a meaning of their own, whatever is spoken."""

_Item: TypeAlias = tuple[Key, str, int]


@dataclass(slots=True)
class _Section:
    """A section that an item sets: where, and whether it says something at any place at which it holds."""

    setting: Setting
    spot: PolicySite | ClientSite
    has_meaning: bool = False


@dataclass(slots=True)
class _Seen:
    """What an item sets that holds somewhere."""

    is_general: bool
    """Whether it is for services, or clients, of all sorts: then not everything in it needs to have a meaning."""

    sections: dict[str, _Section] = field(default_factory=dict)
    has_more: bool = False
    """Whether it also sets what has a meaning whatever is spoken."""

    @property
    def pointless(self) -> Iterator[tuple[str, _Section]]:
        some = self.has_more or any(one.has_meaning for one in self.sections.values())
        if not (self.is_general and some):
            yield from ((name, one) for name, one in self.sections.items() if not one.has_meaning)


def protocols(scene: MeshSurvey) -> Iterator[Finding]:
    """Sections that somebody set, and that say something at no place at which they hold."""
    seen: dict[_Item, _Seen] = {}
    for spot in _spots(scene):
        if spot.protocol is not None and spot.kind.name in MEANS:
            _look(spot, seen)
    for (key, _, _), one in seen.items():
        policy = scene.world.get(key)
        if policy is not None:
            yield from (found(policy, _reason(name, section)) for name, section in one.pointless)


def _spots(scene: MeshSurvey) -> Iterator[PolicySite | ClientSite]:
    for spot in scene.spots:
        if isinstance(spot, PartSite):
            yield from spot.spots
        elif not isinstance(spot, RouteTableSite):
            yield spot


def _look(spot: PolicySite | ClientSite, seen: dict[_Item, _Seen]) -> None:
    means = MEANS[spot.kind.name]
    for path, one in spot.merged.fields.items():
        origin = one.winner.origin
        if origin.part == BUILT_IN:
            continue
        is_general = origin.part != "to" or origin.level == "mesh"
        item = seen.setdefault((origin.policy, origin.part, origin.index), _Seen(is_general))
        name = next((name for name in means if path == name or path.startswith((f"{name}.", f"{name}["))), None)
        if name is None:
            item.has_more |= _acts_alone(spot.kind.name, path)
        else:
            section = item.sections.setdefault(name, _Section(one.winner, spot))
            section.has_meaning |= spot.protocol in means[name]


def _acts_alone(kind: str, path: str) -> bool:
    """Whether a field has a meaning without any of the sections: how often to check has none without a check."""
    return kind not in _BESIDE or path.partition(".")[0] in _BESIDE[kind]


def _reason(name: str, section: _Section) -> FindingReason:
    spot = section.spot
    whom = "the inbounds of its proxies" if spot.destination is None else called(spot.destination)
    text = f"`{name}` has no meaning where {spot.protocol} is spoken, as with {whom}; and it holds nowhere else"
    meant = " or ".join(sorted(MEANS[spot.kind.name][name]))
    where = "the tag kuma.io/protocol of the inbound" if spot.destination is None else "`appProtocol` of the port"
    return FindingReason(
        "no-meaning", text, _upto(section.setting.path, name), f"if {meant} is spoken, say so in {where}"
    )


def _upto(path: str, name: str) -> str:
    """The path of the section in which a setting stands."""
    head, found_, _ = path.partition(f".{name}")
    return f"{head}{found_}"
