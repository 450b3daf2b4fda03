"""What an Envoy should have beside what it says that it has, resource by resource and field by field.

Both sides are read as the same messages, so neither the order of fields nor the way in which they are written counts.

See record 0085.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf import json_format

from cp.api.envoy_json import as_data, message_of
from cp.insight.fields import ABSENT, ChangedField, differing_fields
from cp.model.checkpoint import Checkpoint, checked
from cp.model.envoy_dumps import redacted_error
from cp.model.secret_data import redacted, without_secret_fields
from cp.serving.delivery.nacks import without_dump
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET, SHORT
from cp.translate.snapshot import Snapshot

_COMPARED: Final = (CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET)
_WITH_OTHERS: Final = frozenset({ENDPOINTS, SECRET})
"""Types of which Envoy tells more than it should have: endpoints that a cluster has in itself, and the certificate of
the proxy, which whoever serves it has issued and nobody else knows."""

_MOST_FIELDS: Final = 100
"""Fields of a resource that are told."""


class NoConfigDump(Exception):
    """What is said to be an Envoy's dump is none."""


@dataclass(frozen=True, slots=True)
class HeldResource:
    """A resource in an Envoy's dump. `data` is None where the Envoy has none that is active."""

    data: Mapping[str, Any] | None
    is_warming: bool = False
    fault: str = ""
    """Why Envoy has not taken the newest, in its words."""


@dataclass(frozen=True, slots=True)
class ResourceDifference:
    """A resource that is not as it should be."""

    type_url: str
    name: str
    state: str
    fields: tuple[ChangedField, ...] = ()
    reason: str = ""

    @property
    def data(self) -> dict[str, Any]:
        fields = [_field(changed) for changed in self.fields[:_MOST_FIELDS]]
        more = {"moreFields": len(self.fields) - _MOST_FIELDS} if len(self.fields) > _MOST_FIELDS else {}
        given = {"fields": fields, "reason": self.reason}
        shown = {name: value for name, value in given.items() if value}
        return {"type": SHORT[self.type_url], "name": self.name, "state": self.state, **shown, **more}


@dataclass(frozen=True, slots=True)
class EnvoyComparison:
    """How what an Envoy has differs from what it should have."""

    counts: Mapping[str, int]
    differences: tuple[ResourceDifference, ...]

    @property
    def data(self) -> dict[str, Any]:
        return {"compared": dict(self.counts), "differences": [difference.data for difference in self.differences]}


@dataclass(slots=True)
class _Dump:
    """The resources of a config dump, by their types and names."""

    resources: dict[str, dict[str, HeldResource]] = field(default_factory=lambda: {url: {} for url in _COMPARED})

    def add(self, type_url: str, name: str, held: HeldResource) -> None:
        """One that is active goes before one that is warming."""
        before = self.resources[type_url].get(name)
        if before is None:
            self.resources[type_url][name] = held
        else:
            data = before.data if before.data is not None else held.data
            is_warming, fault = before.is_warming or held.is_warming, before.fault or held.fault
            self.resources[type_url][name] = HeldResource(data, is_warming, fault)


def compared_with_envoy(
    snapshot: Snapshot,
    dump: Mapping[str, Any],
    refusals: Mapping[tuple[str, str], str],
    draining: Container[tuple[str, str]],
    checkpoint: Checkpoint,
) -> EnvoyComparison:
    """`refusals` has what the Envoy has said when it refused a resource, by its type and name.

    `draining` are the types and names of what it is served only for draining listeners. It is no difference.

    Raises `NoConfigDump`.
    """
    try:
        held = resources_of(dump)
    except (AttributeError, TypeError):
        raise NoConfigDump from None
    wanted = as_data(snapshot, _COMPARED, checkpoint)
    differences = (
        _difference(type_url, name, (wanted[type_url].get(name), held[type_url].get(name)), refusals)
        for type_url in _COMPARED
        for name in checked(sorted(wanted[type_url].keys() | held[type_url].keys()), checkpoint)
        if (type_url, name) not in draining
    )
    counts = {SHORT[url]: len(wanted[url]) for url in _COMPARED}
    return EnvoyComparison(counts, tuple(difference for difference in differences if difference is not None))


def _difference(
    type_url: str,
    name: str,
    sides: tuple[Mapping[str, Any] | None, HeldResource | None],
    refusals: Mapping[tuple[str, str], str],
) -> ResourceDifference | None:
    """How what an Envoy has of a resource differs from what it is served; None if it does not."""
    wanted, held = sides
    reason = without_dump(refusals.get((type_url, name)) or (held.fault if held is not None else ""))
    if wanted is None:
        return None if type_url in _WITH_OTHERS else ResourceDifference(type_url, name, "extra", reason=reason)
    if held is None or (held.data is None and not held.is_warming):
        return ResourceDifference(type_url, name, "missing", reason=reason)
    changed = () if held.data is None else tuple(_changed(type_url, wanted, held.data))
    if held.is_warming:
        return ResourceDifference(type_url, name, "warming", changed, reason)
    if changed:
        return ResourceDifference(type_url, name, "different", changed, reason)
    return ResourceDifference(type_url, name, "refused", reason=reason) if reason else None


def _changed(type_url: str, wanted: Mapping[str, Any], held: Mapping[str, Any]) -> Iterator[ChangedField]:
    try:
        message = message_of(type_url, without_secret_fields(held))
    except (json_format.ParseError, ValueError, TypeError, RecursionError) as error:
        yield ChangedField("", "a resource", f"something that cannot be read: {error}"[:300])
        return
    form = _FORMS.get(type_url, _as_it_is)
    yield from differing_fields(
        form(redacted(without_secret_fields(wanted))), form(redacted(without_secret_fields(message)))
    )


def _as_it_is(resource: Mapping[str, Any]) -> Mapping[str, Any]:
    return resource


def _assignment(resource: Mapping[str, Any]) -> Mapping[str, Any]:
    """The endpoints of a cluster in the form in which Envoy tells them: it keeps hosts, and not the message."""
    hosts: dict[str, Any] = {}
    for group in resource.get("endpoints", ()):
        locality, priority = group.get("locality", {}), group.get("priority", 0)
        for host in group.get("lbEndpoints", ()):
            endpoint = host.get("endpoint", {})
            place = "/".join(locality.get(part, "") for part in ("region", "zone", "subZone")).strip("/")
            hosts[_address(endpoint.get("address", {}))] = {
                "locality": place,
                "priority": priority,
                "weight": host.get("loadBalancingWeight", 1),
                "metadata": host.get("metadata", {}),
            }
    return {"clusterName": resource.get("clusterName", ""), "hosts": hosts}


def _address(address: Mapping[str, Any]) -> str:
    place = address.get("socketAddress", {})
    return f"{place.get('address', '')}:{place.get('portValue', '')}" if place else str(address)


_FORMS: Final[Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]]] = {ENDPOINTS: _assignment}


@dataclass(frozen=True, slots=True)
class _DumpedList:
    """A list in a dump: where it has the resources, and these their names."""

    name: str
    type_url: str
    resource: str
    key: str = "name"
    is_warming: bool = False


_LISTS: Final = (
    _DumpedList("dynamic_active_clusters", CLUSTER, "cluster"),
    _DumpedList("dynamic_warming_clusters", CLUSTER, "cluster", is_warming=True),
    _DumpedList("dynamic_endpoint_configs", ENDPOINTS, "endpoint_config", "cluster_name"),
    _DumpedList("dynamic_route_configs", ROUTES, "route_config"),
    _DumpedList("dynamic_active_secrets", SECRET, "secret"),
    _DumpedList("dynamic_warming_secrets", SECRET, "secret", is_warming=True),
)


def resources_of(dump: Mapping[str, Any]) -> Mapping[str, Mapping[str, HeldResource]]:
    """The resources that an Envoy has from its control plane, in a dump of all its configuration."""
    resources = _Dump()
    for config in dump.get("configs", ()):
        for dumped in _LISTS:
            for entry in config.get(dumped.name, ()):
                _add(resources, dumped, entry)
        for entry in config.get("dynamic_listeners", ()):
            _add_listener(resources, entry)
    return resources.resources


def _add(dump: _Dump, dumped: _DumpedList, entry: Mapping[str, Any]) -> None:
    resource = _without_type(_mapping(entry.get(dumped.resource)))
    name = str(resource.get(dumped.key) or entry.get("name", ""))
    dump.add(
        dumped.type_url, name, HeldResource(None if dumped.is_warming else resource, dumped.is_warming, _fault(entry))
    )


def _add_listener(dump: _Dump, entry: Mapping[str, Any]) -> None:
    active, warming = entry.get("active_state"), entry.get("warming_state")
    if active is None and warming is None and "draining_state" in entry:
        return
    data = None if active is None else _without_type(_mapping(_mapping(active).get("listener")))
    dump.add(LISTENER, str(entry.get("name", "")), HeldResource(data, warming is not None, _fault(entry)))


def _mapping(value: Any) -> Mapping[str, Any]:
    """A value if it is a mapping, else an empty one: an agent may say anything."""
    return value if isinstance(value, Mapping) else {}


def _without_type(resource: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in resource.items() if name != "@type"}


def _fault(entry: Mapping[str, Any]) -> str:
    return redacted_error(str(_mapping(entry.get("error_state")).get("details", "")))


def _field(changed: ChangedField) -> dict[str, Any]:
    sides = {"wanted": changed.before, "envoy": changed.after}
    return {"path": changed.path} | {side: value for side, value in sides.items() if value is not ABSENT}
