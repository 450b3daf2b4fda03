"""Items of permissions for clients by their tags, whose certificates have no tags."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cp.insight.lint.codes import FindingReason, finding_about
from cp.insight.lint.survey import MeshSurvey
from cp.insight.tagged_clients import Names, clients_by_name, meant_by_tags, workload_name
from cp.model.violation import Finding
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules import PolicyItem
from cp.rules.items import items
from cp.rules.matching import is_shadow

_CONSEQUENCES: Final = {"Deny": "so it denies nobody of them", "Allow": "so it lets nobody of them in"}


def unknown(survey: MeshSurvey) -> Iterator[Finding]:
    """Items of `from` that do not know clients whom they mean, as a MeshIdentity names those."""
    names: dict[str, Names] = {}
    for policy in _permissions(survey):
        of_mesh = names.setdefault(policy.mesh, clients_by_name(survey.world, policy.mesh))
        for item in items(policy).from_:
            if (reason := _reason(survey.world, item, of_mesh)) is not None:
                yield finding_about(policy, reason)


def _permissions(survey: MeshSurvey) -> Iterator[Resource]:
    for mesh in survey.world.table("Mesh"):
        if len(survey.world.table("MeshIdentity", mesh.name)):
            for kind, policy in survey.policies.items():
                if policy.judges_every_client:
                    yield from (one for one in survey.world.table(kind, mesh.name) if not is_shadow(one))


def _reason(world: World, item: PolicyItem, names: Names) -> FindingReason | None:
    named = {client: workload_name(world, client) for client in meant_by_tags(item, names)}
    unknown_ones = [client for client, (identity, _) in named.items() if identity]
    if not unknown_ones:
        return None
    identity, spiffe_id = named[unknown_ones[0]]
    action = "Deny" if item.layer.conf.get("action") == "Deny" else "Allow"
    text = (
        f"does not know {_listed(unknown_ones)} by tags: certificates by MeshIdentity {identity} have"
        f" a SPIFFE ID alone, {_CONSEQUENCES[action]}"
    )
    hint = f"write `rules` with `spiffeID`, such as {spiffe_id}"
    return FindingReason("unknown-by-tags", text, item.origin.path, hint)


def _listed(clients: Sequence[Resource]) -> str:
    return clients[0].name if len(clients) == 1 else f"{clients[0].name} and {len(clients) - 1} more"
