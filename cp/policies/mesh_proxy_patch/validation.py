"""What must hold of a MeshProxyPatch beyond its schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_components_pb2 import Filter
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import VirtualHost
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import HttpFilter
from google.protobuf.message import Message

from cp.model.violation import Violation, at
from cp.policies import in_spec
from cp.policies.mesh_proxy_patch.native import NotNative, native
from cp.policies.mesh_proxy_patch.schema import Conf, JsonPatch, Modification, PatchChange, Spec
from cp.resources.checks import absent, one_of, unwanted
from cp.resources.kinds import DocumentMeta
from cp.resources.targets import GATEWAY, AllowedTargets

TARGETS: Final = AllowedTargets(top_system=(GATEWAY,), gateway_tags=False)

NATIVE: Final[dict[str, type[Message]]] = {
    "cluster": Cluster,
    "listener": Listener,
    "networkFilter": Filter,
    "httpFilter": HttpFilter,
    "virtualHost": VirtualHost,
}

_OF_RESOURCES: Final = ("Add", "Remove", "Patch")
_OF_FILTERS: Final = ("AddFirst", "AddLast", "AddBefore", "AddAfter", "Remove", "Patch")
_FILTERS: Final = frozenset({"networkFilter", "httpFilter"})
_NEED_NAME: Final = {
    "AddBefore": "that of the filter before which this one goes",
    "AddAfter": "that of the filter after which this one goes",
    "Patch": "that of the filter which is changed",
}


_LONGEST_VALUE: Final = 32_768
_REPEATED: Final = "it is repeated for everything that matches, in every proxy"


@in_spec
def validate(spec: Spec, meta: DocumentMeta) -> Iterator[Violation]:
    yield from TARGETS.violations(spec, meta)
    modifications = (spec.default or Conf()).append_modifications
    if not modifications:
        yield absent("default.appendModifications", "must be set", "each of its items changes one thing")
    for index, modification in enumerate(modifications or ()):
        yield from at(f"default.appendModifications[{index}]", _modification(modification))


def _modification(modification: Modification) -> Iterator[Violation]:
    given = modification.wire()
    if len(given) != 1:
        choices = ", ".join(f"`{name}`" for name in NATIVE)
        yield absent("", f"changes {len(given)} things, not one", f"write an item for each; one of {choices}")
        return
    changes: dict[str, PatchChange[Any] | None] = {
        "cluster": modification.cluster,
        "listener": modification.listener,
        "networkFilter": modification.network_filter,
        "httpFilter": modification.http_filter,
        "virtualHost": modification.virtual_host,
    }
    if (change := changes[given[0]]) is not None:
        yield from at(given[0], _change(change, given[0]))


def operations_of(target: str) -> tuple[str, ...]:
    return _OF_FILTERS if target in _FILTERS else _OF_RESOURCES


def _change(change: PatchChange[Any], target: str) -> Iterator[Violation]:
    wrong = list(one_of("operation", change.operation, operations_of(target)))
    yield from wrong or change_violations(change, target)


def change_violations(change: PatchChange[Any], target: str) -> Iterator[Violation]:
    """The faults of a change whose operation there is."""
    yield from _match(change, target)
    if change.operation == "Remove":
        if change.value is not None:
            yield unwanted("value", "has no meaning for Remove", "remove it; `match` says what goes")
    elif change.operation == "Patch":
        yield from _patch(change, NATIVE[target])
    elif change.value is None:
        yield absent("value", f"must be set for {change.operation}", f"a {NATIVE[target].__name__}, as YAML")
    else:
        yield from _value(change.value, NATIVE[target])


def _match(change: PatchChange[Any], target: str) -> Iterator[Violation]:
    if change.operation == "Add" and change.match is not None:
        if target != "virtualHost":
            yield unwanted("match", "has no meaning for Add", "remove it")
        elif change.match.name is not None:
            yield unwanted("match.name", "has no meaning for Add", "remove it; the name is in `value`")
    if target in _FILTERS and change.operation in _NEED_NAME and (change.match is None or change.match.name is None):
        yield absent("match.name", f"must be set for {change.operation}", _NEED_NAME[change.operation])


def _patch(change: PatchChange[Any], kind: type[Message]) -> Iterator[Violation]:
    patches = change.json_patches or []
    if change.value is not None and patches:
        yield Violation("", "`value` and `jsonPatches` exclude each other", "keep one of them")
    elif change.value is not None:
        yield from _value(change.value, kind)
    elif not patches:
        yield absent("", "changes nothing", "give it `value` or `jsonPatches`")
    for index, patch in enumerate(patches if change.value is None else ()):
        yield from at(f"jsonPatches[{index}]", _json_patch(patch))


def _value(value: str, kind: type[Message]) -> Iterator[Violation]:
    if len(value) > _LONGEST_VALUE:
        yield Violation("value", f"has {len(value)} characters: {_LONGEST_VALUE} are the most", _REPEATED)
        return
    try:
        native(value, kind)
    except NotNative as error:
        yield Violation("value", f"is no {kind.__name__} of Envoy's: {error.reason}", error.hint)


def _json_patch(patch: JsonPatch) -> Iterator[Violation]:
    yield from one_of("op", patch.op, ("add", "remove", "replace", "move", "copy"))
    moves, writes = patch.op in {"move", "copy"}, patch.op in {"add", "replace"}
    if moves and patch.from_ is None:
        yield absent("from", f"must be set for {patch.op}")
    if not moves and patch.from_ is not None:
        yield Violation("from", "has a meaning for move and copy alone", "remove it")
    if writes and patch.value is msgspec.UNSET:
        yield absent("value", f"must be set for {patch.op}")
    if not writes and patch.value is not msgspec.UNSET:
        yield Violation("value", "has a meaning for add and replace alone", "remove it")
    if patch.path is None:
        yield absent("path", "must be set", "for example `/connectTimeout`")
    elif patch.op == "remove" and patch.path in {"", "/"}:
        yield Violation("path", "the whole cannot be removed so", "write `operation: Remove`")
