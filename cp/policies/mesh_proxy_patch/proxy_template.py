"""ProxyTemplate: changes to what proxies are configured with, in Envoy's own terms.

imports                      not enforced: every proxy is configured as with `default-proxy`
resources                    MeshProxyPatch appendModifications, before those below
resources[].name             nothing: the resource has its own
resources[].version          nothing: a version is made of the content
resources[].resource         of a Cluster or Listener: cluster or listener, with the operation Add; others not enforced
modifications                MeshProxyPatch appendModifications
modifications[].cluster      cluster, with what follows; operations begin with a capital letter there
modifications[].cluster.operation
modifications[].cluster.match
modifications[].cluster.match.origin
modifications[].cluster.match.name
modifications[].cluster.value
modifications[].listener
modifications[].listener.operation
modifications[].listener.match
modifications[].listener.match.origin
modifications[].listener.match.name
modifications[].listener.match.tags
modifications[].listener.value
modifications[].networkFilter
modifications[].networkFilter.operation
modifications[].networkFilter.match
modifications[].networkFilter.match.origin
modifications[].networkFilter.match.name
modifications[].networkFilter.match.listenerName
modifications[].networkFilter.match.listenerTags
modifications[].networkFilter.value
modifications[].httpFilter
modifications[].httpFilter.operation
modifications[].httpFilter.match
modifications[].httpFilter.match.origin
modifications[].httpFilter.match.name
modifications[].httpFilter.match.listenerName
modifications[].httpFilter.match.listenerTags
modifications[].httpFilter.value
modifications[].virtualHost
modifications[].virtualHost.operation
modifications[].virtualHost.match
modifications[].virtualHost.match.origin
modifications[].virtualHost.match.name
modifications[].virtualHost.match.routeConfigurationName
modifications[].virtualHost.value
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

from google.protobuf import json_format

from cp.model.violation import Violation, at
from cp.policies.mesh_proxy_patch.native import NotNative, native_of_any
from cp.policies.mesh_proxy_patch.schema import ClusterMatch, FilterMatch, ListenerMatch, PatchChange, VirtualHostMatch
from cp.policies.mesh_proxy_patch.validation import NATIVE, change_violations, operations_of
from cp.resources.checks import must_be_set, one_of
from cp.resources.kinds import DocumentMeta, Kind, LegacyConf, LegacyShape, LegacySide
from cp.resources.legacy.nulls import without_nulls
from cp.resources.legacy.selectors import Selector, matched_tags
from cp.resources.schema import Schema, SensitiveText

M = TypeVar("M")


class RawResource(Schema, frozen=True):
    name: str = ""
    version: str = ""
    resource: SensitiveText = ""


class TemplateChange(Schema, Generic[M], frozen=True):
    match: M | None = None
    operation: str = ""
    value: SensitiveText | None = None


class LegacyModification(Schema, frozen=True):
    """One of these."""

    cluster: TemplateChange[ClusterMatch] | None = None
    listener: TemplateChange[ListenerMatch] | None = None
    network_filter: TemplateChange[FilterMatch] | None = None
    http_filter: TemplateChange[FilterMatch] | None = None
    virtual_host: TemplateChange[VirtualHostMatch] | None = None


class ProxyTemplateConf(Schema, frozen=True):
    imports: list[str] | None = None
    resources: list[RawResource] | None = None
    modifications: list[LegacyModification] | None = None


class ProxyTemplate(Schema, frozen=True):
    selectors: list[Selector] | None = None
    conf: ProxyTemplateConf | None = None


_PROFILES: Final = ("default-proxy", "egress-proxy", "gateway-proxy", "ingress-proxy")
_TARGETS: Final = {"Cluster": "cluster", "Listener": "listener"}


def validate(template: ProxyTemplate, _meta: DocumentMeta) -> Iterator[Violation]:
    for index, selector in enumerate(template.selectors or ()):
        yield from at(f"selectors[{index}].match", matched_tags(selector.match or {}))
    yield from at("conf", _conf(template.conf or ProxyTemplateConf()))


def _conf(conf: ProxyTemplateConf) -> Iterator[Violation]:
    for index, profile in enumerate(conf.imports or ()):
        yield from one_of(f"imports[{index}]", profile, _PROFILES)
    for index, raw in enumerate(conf.resources or ()):
        yield from at(f"resources[{index}]", _raw(raw))
    for index, modification in enumerate(conf.modifications or ()):
        yield from at(f"modifications[{index}]", _modification(modification))


def _raw(raw: RawResource) -> Iterator[Violation]:
    yield from must_be_set("name", raw.name)
    yield from must_be_set("version", raw.version, "for example `v1`")
    yield from must_be_set("resource", raw.resource, "a resource of Envoy's with its `@type`, as YAML")
    try:
        if raw.resource:
            native_of_any(raw.resource)
    except NotNative as error:
        yield Violation("resource", f"is no resource of Envoy's: {error.reason}", error.hint)


def _modification(modification: LegacyModification) -> Iterator[Violation]:
    given = modification.wire()
    if len(given) > 1:
        yield Violation("", f"changes {len(given)} things, not one", "write an item for each")
    changes: Mapping[str, TemplateChange[Any] | None] = {
        "cluster": modification.cluster,
        "listener": modification.listener,
        "networkFilter": modification.network_filter,
        "httpFilter": modification.http_filter,
        "virtualHost": modification.virtual_host,
    }
    for name in given:
        if (change := changes[name]) is not None:
            yield from at(name, _change(change, name))


def _change(change: TemplateChange[Any], target: str) -> Iterator[Violation]:
    operations = {_lower(operation): operation for operation in operations_of(target)}
    yield from one_of("operation", change.operation, operations)
    if (operation := operations.get(change.operation)) is not None:
        value = None if operation == "Remove" else change.value
        yield from change_violations(PatchChange(operation=operation, match=change.match, value=value), target)


def _lower(operation: str) -> str:
    return operation[:1].lower() + operation[1:]


def confs(data: Mapping[str, Any], _mesh: Mapping[str, Any], _protocol: str) -> Iterator[LegacyConf]:
    conf = data.get("conf") or {}
    written = [*_of_resources(conf.get("resources") or ()), *_of_modifications(conf.get("modifications") or ())]
    places = {f"appendModifications[{index}]": place for index, (_, place) in enumerate(written)}
    if written:
        yield LegacyConf("MeshProxyPatch", {"appendModifications": [change for change, _ in written]}, places)


def _of_resources(resources: Any) -> Iterator[tuple[dict[str, Any], str]]:
    for index, raw in enumerate(resources):
        resource = native_of_any(raw["resource"])
        if (target := _TARGETS.get(type(resource).__name__)) is not None and isinstance(resource, NATIVE[target]):
            change = {"operation": "Add", "value": json_format.MessageToJson(resource)}
            yield {target: change}, f"conf.resources[{index}].resource"


def _of_modifications(modifications: Any) -> Iterator[tuple[dict[str, Any], str]]:
    for index, modification in enumerate(modifications):
        for target, change in modification.items():
            operation = change["operation"][:1].upper() + change["operation"][1:]
            used = {name: value for name, value in change.items() if operation != "Remove" or name != "value"}
            yield {target: {**used, "operation": operation}}, f"conf.modifications[{index}]"


PROXY_TEMPLATE: Final = Kind(
    "ProxyTemplate",
    "proxytemplate",
    "proxytemplates",
    ProxyTemplate,
    validate,
    complete=without_nulls,
    legacy=LegacyShape(LegacySide.PROXY, confs),
)
