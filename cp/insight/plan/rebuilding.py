"""A resource as it is, built once more with one value as it would be after a change, and all else as before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from cp.insight.plan.changed_values import UNDIVIDED, ConfField
from cp.insight.sources import ENTRANCE, WHOLE, ResourceSource
from cp.model.canonical import canonical_json
from cp.model.paths import steps
from cp.rules.merging import Conf, put, without
from cp.translate.fragments import Confs, Fragment, FragmentCache, Task
from cp.translate.packing import PackedResource
from generators.proxy import GatewayPort, GatewayTable, Outbound


@dataclass(frozen=True, slots=True)
class Rebuilding:
    """A resource that is there before and after a change, and what makes it anew."""

    fragments: FragmentCache
    type_url: str
    before: ResourceSource
    after: ResourceSource

    def with_value(self, conf_field: ConfField) -> Iterable[PackedResource]:
        """What is built with one value as it would be. Nothing, where the part with it comes or goes."""
        if conf_field.part == UNDIVIDED:
            return self.fragments.get(_with_value(self.before.task, self.after.task, conf_field))
        old, new = (side.parts.get(conf_field.part) for side in (self.before, self.after))
        return () if old is None or new is None else self._with_part(old, new, conf_field)

    def _with_part(self, old: ResourceSource, new: ResourceSource, conf_field: ConfField) -> Fragment:
        """What is put together with the value in one of its parts."""
        part = self.fragments.get(_with_value(old.task, new.task, conf_field))
        bodies = zip(self._bodies(old.fragment), self._bodies(part), strict=False)
        return self.fragments.get(_with_bodies(self.before.task, dict(bodies)))

    def _bodies(self, resources: Iterable[PackedResource]) -> tuple[bytes, ...]:
        return tuple(packed.body for packed in resources if packed.type_url == self.type_url)


def _with_value(before: Task, after: Task, conf_field: ConfField) -> Task:
    """The task as it is, with one value as it would be."""
    route, kind = conf_field.route, conf_field.kind
    conf = _with_field(_conf(before, route, kind), _conf(after, route, kind), conf_field.name)
    if route == ENTRANCE:
        return replace(before, downstream=_with_conf(before.downstream, kind, conf))
    if route == WHOLE or _is_of_tcp(before):
        return replace(before, confs=_with_conf(before.confs, kind, conf))
    of_routes = dict(before.routes)
    own = _with_conf(of_routes.get(route, ()), kind, conf)
    return replace(before, routes=tuple(sorted({**of_routes, route: own}.items())))


def _with_bodies(task: Task, changed: Mapping[bytes, bytes]) -> Task:
    """What is put together for a gateway, with other contents of parts."""
    site = task.site
    if isinstance(site, GatewayTable):
        site = replace(site, hosts=tuple(changed.get(body, body) for body in site.hosts))
    elif isinstance(site, GatewayPort):
        site = replace(site, chains=tuple(changed.get(body, body) for body in site.chains))
    return replace(task, site=site)


def _is_of_tcp(task: Task) -> bool:
    """Whether it is for a listener that has the conf of its one route as that of the whole."""
    return isinstance(task.site, Outbound) and not task.site.protocol.is_http


def _conf(task: Task, route: str, kind: str) -> Conf | None:
    """What a task says of a policy for a route, or else for the whole."""
    own = dict(task.downstream) if route == ENTRANCE else dict(dict(task.routes).get(route, ()))
    text = own.get(kind, dict(task.confs).get(kind))
    return None if text is None else msgspec.json.decode(text)


def _with_field(before: Conf | None, after: Conf | None, name: str) -> Conf | None:
    """A conf with one field as another conf has it. None: with that field gone the policy says nothing any more."""
    value: Any = after
    for step in steps(name):
        value = value.get(step) if isinstance(value, Mapping) else None
    if value is not None:
        return put(before or {}, name, value)
    cut = without(before or {}, name)
    return cut if cut or after is not None else None


def _with_conf(confs: Confs, kind: str, conf: Conf | None) -> Confs:
    changed = dict(confs)
    if conf is None:
        changed.pop(kind, None)
    else:
        changed[kind] = canonical_json(conf)
    return tuple(sorted(changed.items()))
