"""`AllowedTargets`: the kinds that a targetRef may have at each level of a policy, and the checks by them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cp.model.paths import entry
from cp.model.target import TargetRef
from cp.model.violation import Violation, ViolationSort, at
from cp.resources.checks import absent, must_be_set, one_of, unwanted
from cp.resources.kinds import DocumentMeta
from cp.resources.schema import Schema, near
from cp.resources.spec import PolicySpec

HTTP_ROUTE: Final = "MeshHTTPRoute"
TCP_ROUTE: Final = "MeshTCPRoute"
GATEWAY: Final = "MeshGateway"
ROUTE_KINDS: Final = (HTTP_ROUTE, TCP_ROUTE)
"""In the order in which they decide over what speaks HTTP."""

PROXIES: Final = ("Mesh", "Dataplane", "MeshSubset", "MeshService", "MeshServiceSubset")
"""The kinds by which every policy may select proxies."""

SERVICES: Final = ("MeshService", "MeshExternalService", "MeshMultiZoneService")
SUBSETS: Final = ("Mesh", "MeshSubset", "MeshService", "MeshServiceSubset")
"""The kinds by which `from` selects clients."""

_NAMED: Final = ("name", "namespace", "labels")
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "Mesh": ("proxyTypes",),
    "Dataplane": (*_NAMED, "sectionName"),
    "MeshSubset": ("tags", "proxyTypes"),
    GATEWAY: ("name", "tags"),
    "MeshService": (*_NAMED, "sectionName"),
    "MeshExternalService": _NAMED,
    "MeshMultiZoneService": (*_NAMED, "sectionName"),
    "MeshServiceSubset": ("name", "tags"),
    HTTP_ROUTE: _NAMED,
    TCP_ROUTE: _NAMED,
}
"""The fields that each kind of targetRef may have beside `kind`."""

_NAME_NEEDED: Final = frozenset({GATEWAY, "MeshServiceSubset"})
_NAME_OR_LABELS_NEEDED: Final = frozenset({*SERVICES, HTTP_ROUTE, TCP_ROUTE})

_NAME: Final = re.compile(r"[0-9a-z.\-_]*")
_TAG: Final = re.compile(r"[a-zA-Z0-9.\-_:/]+")
_VALUE: Final = re.compile(r"[a-zA-Z0-9.\-_:]+")
_SELECTED_VALUE: Final = re.compile(r"[a-zA-Z0-9.\-_:/]+|\*")
_MESH_TAGS: Final = (
    "kuma.io/service",
    "kuma.io/protocol",
    "kuma.io/zone",
    "kuma.io/instance",
    "kuma.io/region",
)


@dataclass(frozen=True, slots=True)
class AllowedTargets:
    """The kinds that one policy takes, level by level."""

    top: tuple[str, ...] = PROXIES
    top_system: tuple[str, ...] = ()
    """Further kinds for a policy with the role `system`, as all have on Universal."""

    gateway_tags: bool = True
    """Whether a target of kind MeshGateway may select listeners by tags."""

    to: tuple[str, ...] = ()
    to_gateway: tuple[str, ...] | None = None
    """The kinds in `to` where the target at the top is a gateway or, in the old way, a route; None: the same as `to`.

    In a policy for one route, no item can be for another route.
    """

    from_: tuple[str, ...] = ()
    http_route: tuple[str, ...] = ()
    """The paths of the fields of a conf that an HTTP route can carry."""

    tcp_route: tuple[str, ...] = ()
    """The paths of the fields of a conf that a TCP route can carry."""

    def at_top(self, meta: DocumentMeta) -> tuple[str, ...]:
        return (*self.top, *self.top_system) if meta.role == "system" else self.top

    def at_to(self, top: TargetRef) -> tuple[str, ...]:
        return self.to_gateway if self.to_gateway is not None and top.kind in {GATEWAY, HTTP_ROUTE} else self.to

    def violations(self, spec: PolicySpec, meta: DocumentMeta) -> Iterator[Violation]:
        """The faults of every targetRef of a policy, and of confs that their route cannot carry."""
        yield from self.top_violations(spec, meta)
        yield from self.to_violations(spec)
        yield from self.from_violations(spec)

    def top_violations(self, spec: PolicySpec, meta: DocumentMeta) -> Iterator[Violation]:
        if spec.target_ref is None:
            return
        faults = target(spec.target_ref, self.at_top(meta), gateway_tags=self.gateway_tags)
        yield from at("targetRef", faults)
        if spec.top.kind == "Dataplane" and spec.top.section_name and not spec.affects_inbounds:
            hint = "a section of a Dataplane is one of its inbounds; remove it"
            yield Violation("targetRef.sectionName", "has no meaning for a policy without `rules`", hint)

    def to_violations(self, spec: PolicySpec) -> Iterator[Violation]:
        for index, item in enumerate(spec.items("to")):
            yield from at(f"to[{index}].targetRef", self._of_item(item.target_ref, spec.top))
            beyond_route = self._beyond_route(item.target_ref, spec.top, getattr(item, "default", None))
            yield from at(f"to[{index}].default", beyond_route)

    def from_violations(self, spec: PolicySpec) -> Iterator[Violation]:
        for index, item in enumerate(spec.items("from")):
            yield from at(f"from[{index}].targetRef", target(item.target_ref, self.from_))

    def _of_item(self, ref: TargetRef, top: TargetRef) -> Iterator[Violation]:
        kinds = self.at_to(top)
        if top.kind != HTTP_ROUTE:
            yield from target(ref, kinds)
        elif ref.kind in kinds and ref.kind in ROUTE_KINDS:
            message = f"cannot be a {ref.kind} where `targetRef` at the top is a {HTTP_ROUTE}"
            yield Violation("kind", message, "remove the `targetRef` at the top, and give each route an item of `to`")
        else:
            yield from target(ref, tuple(kind for kind in kinds if kind not in ROUTE_KINDS))

    def _beyond_route(self, ref: TargetRef, top: TargetRef, conf: Schema | None) -> Iterator[Violation]:
        kind = top.kind if top.kind == HTTP_ROUTE else ref.kind
        carried = {HTTP_ROUTE: self.http_route, TCP_ROUTE: self.tcp_route}.get(kind, ())
        if not carried or conf is None:
            return
        where = "a policy for the proxies" if kind == top.kind else "an item for the service"
        for path in beyond(conf, carried):
            hint = f"write it in {where}; a {kind} can have {', '.join(f'`{field}`' for field in carried)}"
            yield Violation(path, f"cannot be different for each {kind}", hint, path, ViolationSort.UNWANTED)


def includes_gateways(top: TargetRef) -> bool:
    """Whether a policy selects gateways, alone or beside sidecars."""
    of_both = top.kind in {"Mesh", "MeshSubset"} and (not top.proxy_types or "Gateway" in top.proxy_types)
    return of_both or top.kind in {GATEWAY, HTTP_ROUTE}


def only_without_gateways(spec: PolicySpec, *levels: str) -> Iterator[Violation]:
    """The faults of lists for inbounds, which gateways do not have, in a policy that selects gateways too."""
    for level in levels:
        if spec.items(level):
            hint = "write `proxyTypes: [Sidecar]` in `targetRef`"
            yield unwanted(level, "has no meaning for gateways, and this policy is for gateways too", hint)


def only_with_gateways(spec: PolicySpec, *levels: str) -> Iterator[Violation]:
    """The faults of lists that only gateways can obey, in a policy that selects none."""
    for level in levels:
        if spec.items(level):
            hint = "what is called does it, not the caller: write `rules` in a policy for those proxies"
            yield unwanted(level, "has a meaning for gateways alone, and this policy is for none", hint)


def beyond(conf: Schema, carried: tuple[str, ...]) -> Iterator[str]:
    """The paths of the fields of a conf that are set and that a route cannot carry."""
    for field, name in zip(conf.__struct_fields__, conf.__struct_encode_fields__, strict=True):
        value = getattr(conf, field)
        if value is None or name in carried:
            continue
        inside = tuple(path.removeprefix(f"{name}.") for path in carried if path.startswith(f"{name}."))
        if inside and isinstance(value, Schema):
            yield from (f"{name}.{path}" for path in beyond(value, inside))
        else:
            yield name


def target(ref: TargetRef, kinds: tuple[str, ...], *, gateway_tags: bool = False) -> Iterator[Violation]:
    """The faults of one targetRef that may be of these kinds."""
    if ref.kind not in kinds:
        yield _wrong_kind(ref.kind, kinds)
        return
    allowed = _FIELDS[ref.kind]
    for name, value in _set_fields(ref):
        if name not in allowed or (name == "tags" and ref.kind == GATEWAY and not gateway_tags):
            yield Violation(name, f"has no meaning with the kind {ref.kind}", _instead(ref.kind, name))
        elif name == "tags":
            yield from at("tags", _tags(value, anything=ref.kind != "MeshSubset"))
    if "name" in allowed:
        yield from _name(ref)
    yield from _proxy_types(ref)


def _set_fields(ref: TargetRef) -> Iterator[tuple[str, Any]]:
    for field, name in (
        ("name", "name"),
        ("mesh", "mesh"),
        ("namespace", "namespace"),
        ("section_name", "sectionName"),
        ("tags", "tags"),
        ("labels", "labels"),
        ("proxy_types", "proxyTypes"),
    ):
        if value := getattr(ref, field):
            yield name, value


def _wrong_kind(kind: str, kinds: tuple[str, ...]) -> Violation:
    choices = ", ".join(kinds) or "nothing at all"
    if not kind:
        return absent("kind", "must be set", f"one of {choices}")
    if kind in _FIELDS:
        return Violation("kind", f"the kind {kind} cannot stand here", f"one of {choices} can")
    if meant := near(kind, kinds):
        return Violation("kind", f"there is no kind `{kind}`", meant)
    return Violation("kind", f"there is no kind `{kind}`", f"one of {choices} can stand here")


def _instead(kind: str, field: str) -> str:
    if kind == "Mesh" and field == "tags":
        return "write `kind: MeshSubset`"
    if kind == "Mesh" and field in {"name", "mesh"}:
        return "remove it: a policy is for the mesh that it is in"
    fields = " and ".join(f"`{name}`" for name in _FIELDS[kind])
    return f"it may have {fields}"


def _name(ref: TargetRef) -> Iterator[Violation]:
    if ref.kind in _NAME_NEEDED:
        yield from must_be_set("name", ref.name)
    elif ref.kind in _NAME_OR_LABELS_NEEDED and not ref.name and not ref.labels:
        yield absent("", f"does not say which {ref.kind}", "give it `name` or `labels`")
    if ref.name and _NAME.fullmatch(ref.name) is None and ref.kind != "Dataplane":
        yield Violation("name", f"`{ref.name}` is not a name", "use lower case letters, digits, `-`, `.` and `_`")
    if ref.labels and (ref.name or ref.namespace) and "labels" in _FIELDS[ref.kind]:
        yield Violation("labels", "cannot stand beside `name` or `namespace`", "choose by the one or by the other")


def _proxy_types(ref: TargetRef) -> Iterator[Violation]:
    """Without a type, all are meant (docs/concepts/matching-and-merging.md#which-proxies)."""
    for index, proxy_type in enumerate(ref.proxy_types or ()):
        yield from one_of(f"proxyTypes[{index}]", proxy_type, ("Sidecar", "Gateway"))


def _tags(tags: Mapping[str, str], *, anything: bool) -> Iterator[Violation]:
    for name, value in tags.items():
        yield from tag(name, value, anything=anything)


def tag(name: str, value: str, *, anything: bool = False) -> Iterator[Violation]:
    """The faults of a tag, with paths that begin at its tags."""
    if not name:
        yield Violation("", "a tag has no name")
    elif _TAG.fullmatch(name) is None:
        yield Violation(entry(name), f"`{name}` is not a tag", "use letters, digits, `-`, `_`, `.`, `:` and `/`")
    if not value:
        yield Violation(entry(name), "must have a value")
    elif (_SELECTED_VALUE if anything else _VALUE).fullmatch(value) is None:
        hint = f"use letters, digits, `-`, `_`, `.`{', `:` and `/`, or `*` alone' if anything else ' and `:`'}"
        yield Violation(entry(name), f"`{value}` is not the value of a tag", hint)


def misspelt_tags(tags: Mapping[str, str] | None) -> Iterator[Violation]:
    """Warnings about tags that are similar to one of Kuma's own tags, and are none."""
    for name in tags or ():
        if name.lower().startswith("kuma.io/") and name not in _MESH_TAGS and (meant := near(name, _MESH_TAGS)):
            yield Violation(entry(name), f"no proxy has the tag `{name}` from the mesh", meant)
