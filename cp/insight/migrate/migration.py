"""`Migration`: a mesh without its legacy policies, and what is different for its proxies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from cp.insight.comparison import (
    ChangedResource,
    Decode,
    changed_fields,
    changed_resources,
    differs_in_names_alone,
)
from cp.insight.fields import ChangedField
from cp.insight.migrate.facts import MeshFacts, facts_of
from cp.insight.migrate.gateway_routes import routes_of_proxy
from cp.insight.migrate.translation import Translation, translations
from cp.model.document import Document
from cp.model.failure import Failure
from cp.model.names import Identity, Key, kri
from cp.policies import Policies
from cp.resources.world import World
from cp.rules.legacy import legacy_matches
from cp.rules.legacy.gateway_routes import GATEWAY_ROUTE
from cp.rules.matching import match
from cp.translate.compiler import CompiledProxy, Compiler

_SIDES: Final = 2
"""Resources that are compared at a time; each is read for several questions."""

_SHORT: Final = {"MeshTrafficPermission": "mtp"}
Translate: TypeAlias = Callable[[MeshFacts], Iterable[Translation]]
"""Which policies are written in another way: legacy ones, if nothing else is said."""

_Change: TypeAlias = tuple[Key, str, str]
"""A proxy, and the type and name of a resource of it that changes."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A resource that is not served as before, to all proxies for which it changes in the same way."""

    causes: tuple[Key, ...]
    """The legacy policies that decide over these proxies and whose translation alone makes such a difference.

    If none does by itself, all that were translated.
    """

    resource: ChangedResource
    fields: tuple[ChangedField, ...]
    proxies: tuple[Key, ...]
    in_names_alone: bool
    """Whether Envoy does the same as before, and calls policies or routes by other names."""


@dataclass(frozen=True, slots=True)
class Migration:
    """A mesh without its legacy policies, and what is different for its proxies."""

    mesh: str
    translations: tuple[Translation, ...]
    proxies: tuple[Key, ...]
    """All that were compared."""

    differences: tuple[Difference, ...]
    failures: Mapping[Key, tuple[Failure, ...]] = field(default_factory=dict)
    """The faults of ours met in a proxy, before or after: what it is served then says nothing of the policies.

    A proxy of which nothing could be made at all was not compared, and what it calls is not known.
    """

    @property
    def documents(self) -> tuple[Document, ...]:
        return tuple(document for translation in self._done for document in translation.documents)

    @property
    def removed(self) -> tuple[Key, ...]:
        """The legacy policies that are replaced."""
        return tuple(policy.key for translation in self._done for policy in translation.policies)

    @property
    def kept(self) -> tuple[Translation, ...]:
        """The kinds that could not be translated."""
        return tuple(translation for translation in self.translations if not translation.is_done)

    @property
    def is_equal(self) -> bool:
        """Whether every proxy is served the same bytes as before, and there is one."""
        return self.is_comparable and not self.differences and not self.failures

    @property
    def is_comparable(self) -> bool:
        """Whether there is a proxy that shows what changes, if anything does."""
        return bool(self.proxies) or not self._done

    @property
    def is_safe(self) -> bool:
        """Whether nothing stays or is lost, and every Envoy does the same as before, as can be seen."""
        is_whole = self.is_comparable and not self.kept and not any(translation.lost for translation in self._done)
        return is_whole and not self.failures and all(difference.in_names_alone for difference in self.differences)

    @property
    def _done(self) -> tuple[Translation, ...]:
        return tuple(translation for translation in self.translations if translation.is_done)


def migration(
    world: World, mesh: str, policies: Policies, decode: Decode, translate: Translate = translations
) -> Migration:
    """How a mesh can be moved to other policies, and what proxies would be served then that is different."""
    before = _Side.of(world, mesh, policies)
    of_kinds = tuple(translate(facts_of(world, mesh, policies, before.proxies.values())))
    done = [translation for translation in of_kinds if translation.is_done]
    after = _Side.of(moved(world, done), mesh, policies)
    changes = dict(_changes(before, after))
    alone: dict[str, Mapping[_Change, ChangedResource]] = {}
    for translation in done if changes else ():
        alone[translation.kind] = dict(_changes(before, _Side.of(moved(world, [translation]), mesh, policies)))
    causes = {change: tuple(_causes(world, change, done, alone)) for change in changes}
    return Migration(
        mesh,
        of_kinds,
        tuple(key for key in before.proxies if key in after.proxies),
        tuple(_differences(changes, causes, _Reading(lru_cache(_SIDES)(decode), _names(done)))),
        _together(before.failures, after.failures),
    )


def _together(
    before: Mapping[Key, tuple[Failure, ...]], after: Mapping[Key, tuple[Failure, ...]]
) -> dict[Key, tuple[Failure, ...]]:
    return {key: tuple(dict.fromkeys((*before.get(key, ()), *after.get(key, ())))) for key in {**before, **after}}


@dataclass(frozen=True, slots=True)
class _Side:
    """The proxies of a mesh before something is moved, or after."""

    proxies: Mapping[Key, CompiledProxy]
    failures: Mapping[Key, tuple[Failure, ...]]

    @classmethod
    def of(cls, world: World, mesh: str, policies: Policies) -> _Side:
        compiler = Compiler(policies)
        dataplanes = world.table("Dataplane", mesh)
        outcomes = {dataplane.key: compiler.proxy_or_failure(world, dataplane) for dataplane in dataplanes}
        failures = {key: _failures(outcome) for key, outcome in outcomes.items()}
        return cls(
            {key: outcome for key, outcome in outcomes.items() if isinstance(outcome, CompiledProxy)},
            {key: of_proxy for key, of_proxy in failures.items() if of_proxy},
        )


def _failures(outcome: CompiledProxy | Failure) -> tuple[Failure, ...]:
    return (outcome,) if isinstance(outcome, Failure) else outcome.failures


class _Reading(NamedTuple):
    """What is needed to say how resources differ."""

    decode: Decode
    names: Mapping[str, str]


def _names(done: Iterable[Translation]) -> dict[str, str]:
    """The names of new policies in Envoy's configuration, each with that of the legacy policy."""
    return {
        _kri(document.key, short): _kri(translation.origins[document.key])
        for translation in done
        for document in translation.documents
        for short in (_SHORT.get(document.key.type, ""),)
    }


def _kri(key: Key, short: str = "") -> str:
    return kri(Identity(key.type, key.mesh, key.name), short)


def _differences(
    changes: Mapping[_Change, ChangedResource], causes: Mapping[_Change, tuple[Key, ...]], reading: _Reading
) -> Iterator[Difference]:
    """The same change with the same cause is one difference, whomever it is for."""
    together: dict[tuple[tuple[Key, ...], ChangedResource], list[Key]] = {}
    for change, resource in changes.items():
        together.setdefault((causes[change], resource), []).append(change[0])
    for (of_policies, resource), proxies in sorted(together.items(), key=lambda entry: entry[0][0]):
        fields = tuple(changed_fields(resource, reading.decode))
        in_names_alone = differs_in_names_alone(resource, reading.decode, reading.names)
        yield Difference(of_policies, resource, fields, tuple(proxies), in_names_alone)


def moved(world: World, done: Iterable[Translation]) -> World:
    """The same World with translations in place of what they replace."""
    changes: dict[Key, Document | None] = {}
    for translation in done:
        changes |= {policy.key: None for policy in translation.policies}
        changes |= {document.key: document for document in translation.documents}
    return world.next(changes, world.revision)


def _changes(before: _Side, after: _Side) -> Iterator[tuple[_Change, ChangedResource]]:
    for key, proxy in before.proxies.items():
        for resource in changed_resources(proxy.snapshot, after.proxies[key].snapshot) if key in after.proxies else ():
            yield (key, resource.type_url, resource.name), resource


def _causes(
    world: World,
    change: _Change,
    done: Sequence[Translation],
    alone: Mapping[str, Mapping[_Change, ChangedResource]],
) -> Iterator[Key]:
    kinds = [translation.kind for translation in done]
    of_kinds = [kind for kind in kinds if change in alone[kind]] or kinds
    replaced = {policy.key for translation in done for policy in translation.policies}
    dataplane = world.get(change[0])
    assert dataplane is not None  # noqa: S101  # narrows the type
    for legacy in legacy_matches(world, dataplane):
        if legacy.policy.type in of_kinds:
            yield legacy.policy.key
    if GATEWAY_ROUTE in of_kinds:
        yield from (route.key for route in routes_of_proxy(world, dataplane))
    yield from (key for key in replaced if key.type == "Mesh" and key.type in of_kinds)
    selecting = (matched.policy for kind in of_kinds for matched in match(world, dataplane).get(kind, ()))
    yield from (policy.key for policy in selecting if policy.key in replaced)
