"""Fields without a meaning for what is spoken wherever they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from cp.lint.codes import Reason, found
from cp.lint.scene import Scene
from cp.lint.spots import Spot
from cp.lint.targets import called
from cp.merging import Setting
from cp.model.names import Key
from cp.model.violation import Finding
from cp.stages import BUILT_IN
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

_Part: TypeAlias = tuple[Key, str, int, str]


@dataclass(slots=True)
class _Seen:
    setting: Setting
    spot: Spot
    has_meaning: bool = False


def protocols(scene: Scene) -> Iterator[Finding]:
    """Sections that somebody set, and that say something at no place at which they hold."""
    seen: dict[_Part, _Seen] = {}
    for spot in scene.spots:
        if isinstance(spot, Spot) and spot.protocol is not None and spot.kind.name in MEANS:
            _look(spot, seen)
    for (key, _, _, section), one in seen.items():
        policy = scene.world.get(key)
        if policy is not None and not one.has_meaning:
            yield found(policy, _reason(section, one))


def _look(spot: Spot, seen: dict[_Part, _Seen]) -> None:
    for path, field in spot.merged.fields.items():
        origin = field.winner.origin
        section = next((one for one in MEANS[spot.kind.name] if f"{path}.".startswith((f"{one}.", f"{one}["))), None)
        if section is None or origin.part == BUILT_IN:
            continue
        one = seen.setdefault((origin.policy, origin.part, origin.index, section), _Seen(field.winner, spot))
        one.has_meaning |= spot.protocol in MEANS[spot.kind.name][section]


def _reason(section: str, one: _Seen) -> Reason:
    protocol = one.spot.protocol
    whom = "the inbounds" if one.spot.destination is None else called(one.spot.destination)
    text = f"`{section}` has no meaning where {protocol} is spoken, as with {whom}, and nothing else is where it holds"
    meant = " or ".join(sorted(MEANS[one.spot.kind.name][section]))
    hint = f"if that is {meant}, say so: in `appProtocol` of the MeshService's port, or in the tag kuma.io/protocol"
    return Reason("no-meaning", text, _upto(one.setting.path, section), hint)


def _upto(path: str, section: str) -> str:
    """The path of the section in which a setting stands."""
    head, found_, _ = path.partition(f".{section}")
    return f"{head}{found_}"
