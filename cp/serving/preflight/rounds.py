"""In which order an Envoy is shown what proxies would be served: in few rounds, and each new resource once.

What several proxies are served is shown together, as if one proxy were served all of it. Where two of them have
different resources of one name, or listeners at one address, they are shown one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Final, TypeAlias

from cp.identity.authority import KeyPair
from cp.identity.security import security_of
from cp.insight.plan import ChangedProxy
from cp.model.checkpoint import Checkpoint, checked, never_stopped
from cp.model.names import Key
from cp.serving.preflight.harmless import NotShown, addresses, harmless, unjudged_part
from cp.serving.preflight.stand_ins import stand_ins
from cp.translate.packing import RUNTIME, PackedResource
from cp.translate.snapshot import Snapshot
from generators.envoy.names import mesh_authority, mesh_identity

_AT_START_ALONE: Final = "Envoy asks for it at its start alone"
_UNSERVED: Final = "no proxy is served it, though something new refers to it; Envoy was shown a stand-in"

ShownName: TypeAlias = tuple[str, str]
"""The type and the name of a resource."""


@dataclass(slots=True)
class NewResource:
    """A resource that is new to proxies."""

    packed: PackedResource
    owners: dict[str, ChangedProxy] = field(default_factory=dict)
    """In each mesh one of these proxies."""

    proxies: set[Key] = field(default_factory=set)
    """All of them."""

    unjudged_part: str = ""
    """A part of it that no Envoy judges; empty if there is none."""

    @property
    def name(self) -> ShownName:
        return _name(self.packed)


@dataclass(frozen=True, slots=True)
class _Copy:
    """A copy that does nothing, where it says to listen, and what can stand in for that to which it refers."""

    packed: PackedResource
    addresses: frozenset[str]
    stand_ins: tuple[PackedResource, ...]

    @property
    def name(self) -> ShownName:
        return _name(self.packed)


@dataclass(slots=True)
class ShownRound:
    """Resources that are shown together."""

    copies: dict[ShownName, PackedResource] = field(default_factory=dict)
    new: dict[ShownName, NewResource] = field(default_factory=dict)
    """Those of them that are new to proxies."""

    listeners: dict[str, str] = field(default_factory=dict)
    """The listener at each address."""

    stand_ins: dict[ShownName, PackedResource] = field(default_factory=dict)
    """For all to which the copies refer, though most of that is among them."""

    @property
    def resources(self) -> tuple[PackedResource, ...]:
        """The copies, and what stands in for that to which they refer and which is not among them."""
        return tuple((self.stand_ins | self.copies).values())

    def takes(self, copies: Iterable[_Copy]) -> bool:
        """Whether resources can be shown together with those that are in it."""
        return all(self._fits(copy) for copy in copies)

    def _fits(self, copy: _Copy) -> bool:
        known = self.copies.get(copy.name)
        if known is not None:
            return known == copy.packed
        return all(self.listeners.get(address, copy.packed.name) == copy.packed.name for address in copy.addresses)

    def add(self, copies: Iterable[_Copy], new: Iterable[NewResource]) -> None:
        for copy in copies:
            self.copies[copy.name] = copy.packed
            self.listeners |= dict.fromkeys(copy.addresses, copy.packed.name)
            self.stand_ins |= {_name(stand_in): stand_in for stand_in in copy.stand_ins}
        self.new = {resource.name: resource for resource in new} | self.new


@dataclass(frozen=True, slots=True)
class ShownRounds:
    """All that is to be shown, and what of the new is not, with the reason."""

    rounds: tuple[ShownRound, ...]
    left_out: tuple[tuple[NewResource, str], ...]


class Rounds:
    """Puts the resources of proxies into rounds. Each resource is copied once."""

    def __init__(self, leaf: KeyPair, checkpoint: Checkpoint = never_stopped) -> None:
        self._leaf, self._checkpoint = leaf, checkpoint
        self._copies: dict[PackedResource, _Copy | str] = {}
        self._new: dict[PackedResource, NewResource] = {}
        self._rounds: list[ShownRound] = []

    def of(self, proxies: Iterable[ChangedProxy]) -> ShownRounds:
        left_out: list[tuple[NewResource, str]] = []
        for proxy in checked(proxies, self._checkpoint):
            shown: list[NewResource] = []
            for resource in self._not_known(proxy):
                copy = self._copy(resource.packed)
                if isinstance(copy, str):
                    left_out.append((resource, copy))
                else:
                    resource.unjudged_part = unjudged_part(copy.packed)
                    shown.append(resource)
            if shown:
                self._place(proxy, shown)
        return ShownRounds(tuple(self._rounds), (*left_out, *((resource, _UNSERVED) for resource in self._unserved())))

    def _not_known(self, proxy: ChangedProxy) -> Iterator[NewResource]:
        """What is new to a proxy and was new to no other one before. Of all else it is noted that it has it too."""
        for resource in proxy.new:
            known = self._new.get(resource.packed)
            if known is None:
                known = self._new[resource.packed] = NewResource(resource.packed)
                yield known
            known.owners.setdefault(proxy.mesh, proxy)
            known.proxies.update(resource.proxies)

    def _place(self, proxy: ChangedProxy, new: Iterable[NewResource]) -> None:
        """Put all that a proxy is served into the first round that takes it: what is new refers to what is not."""
        copies = list(self._copies_of(proxy.compiled.snapshot))
        shown = next((round_ for round_ in self._rounds if round_.takes(copies)), None)
        if shown is None:
            self._rounds.append(shown := ShownRound())
        shown.add(copies, new)

    def _copies_of(self, snapshot: Snapshot) -> Iterator[_Copy]:
        for part in snapshot.parts:
            for packed in part:
                copy = self._copy(packed)
                if isinstance(copy, _Copy):
                    yield copy

    def _copy(self, packed: PackedResource) -> _Copy | str:
        """A copy that does nothing, or why there is none."""
        if packed not in self._copies:
            self._copies[packed] = self._copied(packed)
        return self._copies[packed]

    def _copied(self, packed: PackedResource) -> _Copy | str:
        if packed.type_url == RUNTIME:
            return _AT_START_ALONE
        try:
            copy = harmless(packed, self._leaf)
        except NotShown as reason:
            return str(reason)
        return _Copy(copy, addresses(copy), tuple(stand_ins(copy, self._leaf)))

    def _unserved(self) -> Iterator[NewResource]:
        """What something new refers to, and no proxy is served: who connects would wait for it in vain."""
        unserved: dict[ShownName, NewResource] = {}
        for stand_in, owner in self._references():
            if not _comes_later(stand_in, owner):
                resource = unserved.setdefault(_name(stand_in), NewResource(stand_in))
                resource.owners.setdefault(owner.mesh, owner)
        return iter(unserved.values())

    def _references(self) -> Iterator[tuple[PackedResource, ChangedProxy]]:
        """Each stand-in to which something new has led, and who would be served that."""
        for shown in checked(self._rounds, self._checkpoint):
            for resource in shown.new.values():
                copy = self._copies[resource.packed]
                if isinstance(copy, _Copy):
                    missing = [stand_in for stand_in in copy.stand_ins if _name(stand_in) not in shown.copies]
                    yield from product(missing, resource.owners.values())


def _comes_later(stand_in: PackedResource, proxy: ChangedProxy) -> bool:
    """Whether it is of the mTLS of a mesh: the certificate of a proxy that connects, and the roots."""
    is_of_mesh = stand_in.name in {mesh_identity(proxy.mesh), mesh_authority(proxy.mesh)}
    return is_of_mesh and security_of(proxy.world, proxy.mesh) is not None


def _name(packed: PackedResource) -> ShownName:
    return packed.type_url, packed.name
