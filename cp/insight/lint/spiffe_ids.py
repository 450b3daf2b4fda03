"""SPIFFE IDs in permissions that are in a trust domain of the mesh, and that none of its proxies has."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Final, TypeAlias

from cp.identity.identities import names_by_tags
from cp.identity.workloads import spiffe_id, workload_identities
from cp.insight.lint.codes import FindingReason, finding_about
from cp.insight.lint.mtls import judging
from cp.insight.lint.survey import MeshSurvey
from cp.model.paths import step
from cp.model.violation import Finding
from cp.resources.resource import Resource
from cp.resources.spiffe import SCHEME
from cp.resources.world import World
from cp.rules import PolicyItem
from cp.rules.items import items

_COMPARED: Final = 100
"""The most names that are looked at to find a similar one."""

_MOST_LETTERS: Final = 3
"""By how many letters a name that was meant is longer or shorter at most."""

_COMPARE: Final = "compare it with the names of proxies, in `koguma explain`; it stays if such a proxy is still to come"

Names: TypeAlias = Mapping[str, Collection[str]]
"""The SPIFFE IDs of the proxies of a mesh, by each of its own trust domains."""


def of_nobody(survey: MeshSurvey) -> Iterator[Finding]:
    for mesh in survey.meshes:
        names: Names | None = None
        for kind in judging(survey):
            for policy in survey.world.table(kind, mesh):
                for path, value in _exact(policy):
                    names = _names(survey.world, mesh) if names is None else names
                    of_domain = names.get(_domain(value))
                    if of_domain is not None and value not in of_domain:
                        yield finding_about(policy, _reason(path, value, of_domain))


def _exact(policy: Resource) -> Iterator[tuple[str, str]]:
    """Each SPIFFE ID that a policy names as a whole, with its path."""
    return (name for item in items(policy).rules if item.origin.part == "rules" for name in _exact_of(item))


def _exact_of(item: PolicyItem) -> Iterator[tuple[str, str]]:
    for name, clients in item.layer.conf.items():
        for index, client in enumerate(clients or ()):
            spiffe = client.get("spiffeID") or {}
            if spiffe.get("type") == "Exact":
                yield f"{step(step(item.layer.path, name), index)}.spiffeID.value", spiffe["value"]


def _names(world: World, mesh: str) -> Names:
    """A domain for which others may sign too is not told of: who has names there is not known."""
    names: dict[str, set[str]] = {}
    resource, identities = world.mesh(mesh), workload_identities(world, mesh)
    if resource is not None and resource.spec.authority is not None:
        names[mesh] = set()
    names |= {identity.domain: set() for identity in identities.identities if identity.spec.authority is not None}
    for dataplane in world.table("Dataplane", mesh):
        given = (spiffe_id(identity.resource, dataplane) for identity in identities.selecting(dataplane))
        for name in (*names_by_tags(dataplane), *given):
            if isinstance(name, str) and (of_domain := names.get(_domain(name))) is not None:
                of_domain.add(name)
    own = {identity.name for identity in identities.identities}  # the control plane writes a MeshTrust for each
    of_others = {trust.spec.trust_domain for trust in world.table("MeshTrust", mesh) if trust.name not in own}
    return {domain: of_domain for domain, of_domain in names.items() if domain not in of_others}


def _domain(name: str) -> str:
    return name.removeprefix(SCHEME).partition("/")[0] if name.startswith(SCHEME) else ""


def _reason(path: str, value: str, names: Collection[str]) -> FindingReason:
    text = f"is for {value}, and no proxy of this mesh has that name"
    near = _near(value, names)
    return FindingReason("names-no-proxy", text, path, f"did you mean `{near}`?" if near else _COMPARE)


def _near(value: str, names: Collection[str]) -> str:
    """A name with a similar path; empty if none is."""
    start = len(f"{SCHEME}{_domain(value)}/")
    similar = (name[start:] for name in sorted(names) if abs(len(name) - len(value)) <= _MOST_LETTERS)
    near = difflib.get_close_matches(value[start:], islice(similar, _COMPARED), n=1)
    return value[:start] + near[0] if near else ""
