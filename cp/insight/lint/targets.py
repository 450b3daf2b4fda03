"""References: those to nothing, and those to ports that are not there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cp.insight.lint.codes import FindingReason, finding_about
from cp.insight.lint.decisions import item_of
from cp.insight.lint.survey import MeshSurvey, items_of
from cp.insight.lint.walk import ROUTES, TCP_ROUTE
from cp.model.names import Destination, Identity
from cp.model.paths import step
from cp.model.target import BackendRef
from cp.model.violation import Finding
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.resource import Resource
from cp.resources.schema import near
from cp.resources.world import World
from cp.rules import PolicyItem
from cp.rules.item_index import resources_meant, section_meant
from cp.rules.items import ItemReference, items, reference, tags_of
from cp.rules.targets import TargetTables
from cp.translate.view.backends import BackendResolver
from cp.translate.view.services import destination_of, exists


def targets(survey: MeshSurvey) -> Iterator[Finding]:
    """Items for what is not there, unless it is told already why they have no effect.

    An item for a section that is not there can have an effect on destinations by tags, which have no sections.
    """
    for policy in survey.world:
        if policy.kind.policy is not None:
            not_judged = (item for item in items_of(policy) if not _is_judged(survey, item))
            reasons = (missing(survey.world, item) for item in not_judged)
            yield from (finding_about(policy, why) for why in reasons if why is not None)


def backends(survey: MeshSurvey) -> Iterator[Finding]:
    """Backends and mirrors of routes that lead nowhere."""
    called = _called_by_tag(survey)
    for kind in ROUTES:
        for policy in _of_type(survey.world, kind):
            for item in items(policy).to:
                yield from _of_item(survey.world, policy, item, called)


def _called_by_tag(survey: MeshSurvey) -> tuple[Destination, ...]:
    results = (result for outbounds in survey.outbounds for result in outbounds.callable_outbounds)
    called = (result.address.destination for result in results)
    return tuple(dict.fromkeys(destination for destination in called if not destination.is_real))


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


def _of_type(world: World, kind: str) -> Iterator[Resource]:
    return (resource for resource in world if resource.type == kind)


def _of_item(world: World, policy: Resource, item: PolicyItem, called: Iterable[Destination]) -> Iterator[Finding]:
    to: Mapping[str, Any] = policy.data["to"][item.index]
    by_tag = [destination for destination in called if (SERVICE_TAG, destination.service) in (tags_of(item) or ())]
    calls = [*_destinations(world, item), *by_tag] or [Destination(item.target.name or "")]
    for index, rule in enumerate(to.get("rules") or ()):
        default = step(step(step(item.origin.path, "rules"), index), "default")
        yield from _weights(policy, rule, default)
        for path, reference_ in _references(rule, default):
            if why := _lost(world, policy, calls, reference_):
                yield finding_about(policy, _to_nothing(why, path, reference_))


def _to_nothing(why: str, path: str, reference_: Mapping[str, Any]) -> FindingReason:
    if ".requestMirror." in path:
        return FindingReason("refers-to-nothing", f"{why}: no copies are sent", path, "correct the reference")
    if reference_.get("weight") == 0:
        hint = "create it before you raise the weight"
        return FindingReason("target-missing", f"{why}, which gets nothing yet", path, hint)
    return FindingReason("refers-to-nothing", f"{why}: its share of the calls fails", path, "correct the reference")


def _references(rule: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    default = rule.get("default") or {}
    for index, backend in enumerate(default.get("backendRefs") or ()):
        yield step(step(path, "backendRefs"), index), backend
    for index, filter_ in enumerate(default.get("filters") or ()):
        mirror = filter_.get("requestMirror")
        if mirror is not None:
            yield f"{step(step(path, 'filters'), index)}.requestMirror.backendRef", mirror.get("backendRef") or {}


def _weights(policy: Resource, rule: Mapping[str, Any], path: str) -> Iterator[Finding]:
    default = rule.get("default") or {}
    weights = [element.get("weight", 1) for element in default.get("backendRefs") or ()]
    redirects = any(element.get("type") == "RequestRedirect" for element in default.get("filters") or ())
    if weights and not any(weights) and not redirects:
        effect = "connection is closed" if policy.type == TCP_ROUTE else "request is answered with 500"
        text = f"all weights are 0: every {effect}"
        yield finding_about(
            policy, FindingReason("zero-weights", text, step(path, "backendRefs"), "give one of them a weight")
        )


def _lost(world: World, policy: Resource, calls: Iterable[Destination], data: Mapping[str, Any]) -> str:
    """Why a reference leads nowhere, for some port that can be called; empty if it always leads somewhere."""
    backend_ref = _decoded(data)
    splits = (
        BackendResolver(world, policy.mesh, destination).split(backend_ref, policy.identity) for destination in calls
    )
    return next((split.reason for split in splits if split.missing), "")


def _decoded(data: Mapping[str, Any]) -> BackendRef:
    names = {"sectionName": "section_name", "proxyTypes": "proxy_types"}
    return BackendRef(**{names.get(name, name): value for name, value in data.items()})


def _destinations(world: World, item: PolicyItem) -> Iterator[Destination]:
    """The ports of the services that an item is for."""
    to = reference(item)
    for service in () if to is None else resources_meant(TargetTables.of(world, item.policy.mesh), to):
        for port in getattr(service.spec, "ports", None) or ():
            destination = destination_of(service, port)
            section = section_meant(service, to) if to is not None else ""
            if not section or _section_name(destination.identity) == section:
                yield destination


def _section_name(identity: Identity | None) -> str:
    return "" if identity is None else identity.section
