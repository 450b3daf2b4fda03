"""Items of policies for what is not there, or for ports that are not there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cp.insight.lint.codes import FindingReason, finding_about
from cp.insight.lint.decisions import item_of
from cp.insight.lint.survey import MeshSurvey, items_of
from cp.model.names import Destination
from cp.model.paths import step
from cp.model.violation import Finding
from cp.resources.dataplane import PROTOCOL_TAG, SERVICE_TAG
from cp.resources.resource import Resource
from cp.resources.schema import near
from cp.resources.world import World
from cp.rules import PolicyItem
from cp.rules.item_index import resources_meant, section_meant
from cp.rules.items import ItemReference, reference, tags_of
from cp.rules.targets import TargetTables
from cp.translate.view.outside import EXTERNAL
from cp.translate.view.services import exists


def targets(survey: MeshSurvey) -> Iterator[Finding]:
    """Items for what is not there, unless it is told already why they have no effect.

    An item for a section that is not there can have an effect on destinations by tags, which have no sections.
    """
    for policy in survey.world:
        if policy.kind.policy is not None:
            not_judged = (item for item in items_of(policy) if not _is_judged(survey, item))
            reasons = (missing(survey.world, item) for item in not_judged)
            yield from (finding_about(policy, why) for why in reasons if why is not None)


def missing(world: World, item: PolicyItem) -> FindingReason | None:
    """The reason for an item of `to` whose target does not exist."""
    if item.origin.part != "to":
        return None
    path, to = step(item.origin.path, "targetRef"), reference(item)
    if item.target.kind == "Mesh":
        return None
    resources = () if to is None else resources_meant(TargetTables.of(world, item.policy.mesh), to)
    if resources:
        return None if to is None else _section(resources, to, path)
    if _is_tagged(world, item):
        return _namespace(item, path) if item.target.namespace else None
    name = item.target.name or " ".join(f"{k}={v}" for k, v in sorted((item.target.labels or {}).items()))
    text = f"there is no {item.target.kind} {name}"
    return FindingReason("target-missing", text, path, _meant(world, item, name))


def _meant(world: World, item: PolicyItem, name: str) -> str:
    """The hint for a name that is not found; what has exactly this name is in another namespace or zone."""
    names = [resource.display_name for resource in world.table(item.target.kind, item.policy.mesh)]
    if name in names:
        return "what has this name is in another namespace or zone; choose it by `labels`"
    return near(name, names) or "create it, or correct the name"


def _is_judged(survey: MeshSurvey, item: PolicyItem) -> bool:
    """Whether the item has no effect, so that another rule gives the reason."""
    return item.policy in survey.judged_set and item_of(item.origin) not in survey.effective_items


def destination_name(destination: Destination) -> str:
    identity = destination.identity
    return f"the service {destination.service}" if identity is None else f"{identity.type} {identity.name}"


def where_protocol_is_said(destination: Destination) -> str:
    """The field by which it is known what is spoken with a destination."""
    if destination.identity is None:
        return f"the tag `{PROTOCOL_TAG}` of its inbounds"
    return "its `match.protocol`" if destination.identity.type == EXTERNAL else "`appProtocol` of its port"


def _section(resources: Iterable[Resource], to: ItemReference, path: str) -> FindingReason | None:
    if any(section_meant(candidate, to) is not None for candidate in resources):
        return None
    resource = next(iter(resources))
    ports = ", ".join(str(port.get("name") or port.get("port")) for port in resource.data.get("ports") or ()) or "none"
    text = f"{resource.type} {resource.display_name} has no port {to.identity.section}"
    return FindingReason("target-missing", text, step(path, "sectionName"), f"it has {ports}")


def _namespace(item: PolicyItem, path: str) -> FindingReason:
    """Tags have no namespace, so an item for a service of another namespace is for the tag of that name."""
    service = f"{item.target.kind} {item.target.name} in the namespace {item.target.namespace}"
    text = f"there is no {service}: the item is for what is called by `{SERVICE_TAG}`"
    return FindingReason("target-missing", text, step(path, "namespace"), "correct the namespace, or leave it out")


def _is_tagged(world: World, item: PolicyItem) -> bool:
    """Whether some inbound has the tags by which a target chooses."""
    tags = dict(tags_of(item) or {})
    service = tags.pop(SERVICE_TAG, "")
    destination = Destination(service, tags=tuple(sorted(tags.items())))
    return bool(service) and exists(world, item.policy.mesh, destination)
