"""What each modification does to the finished resources of one inbound, outbound or proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_components_pb2 import Filter, FilterChain
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import VirtualHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.http.router.v3.router_pb2 import Router
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
    HttpFilter,
)
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy
from google.protobuf.message import Message

from cp.policies.mesh_proxy_patch.json_patch import DoesNotApply
from cp.policies.mesh_proxy_patch.messages import merged, merged_any, unpacked, with_patches, written
from cp.policies.mesh_proxy_patch.schema import FilterMatch, Modification, PatchChange, VirtualHostMatch
from generators.drafts import Built
from generators.envoy.edit import pack

M = TypeVar("M", bound=Message)

_SERVICE_TAG: Final = "kuma.io/service"
_ANY_VALUE: Final = "*"
_NEED_NOTHING: Final = frozenset({"Add", "AddFirst", "AddLast"})


@dataclass(slots=True)
class Attempt:
    """What came of one modification."""

    fits: bool = False
    """Whether there was anything that it is about."""

    problems: list[str] = field(default_factory=list)
    """Why it could not be made to some of that, which then is as it was."""


def change(modification: Modification, built: Built) -> Attempt:
    """Make one modification, as far as it can be made."""
    attempt = Attempt()
    try:
        _change(modification, built, attempt)
    except DoesNotApply as error:
        attempt.problems.append(str(error))
    return attempt


def _change(modification: Modification, built: Built, attempt: Attempt) -> None:
    if modification.cluster is not None:
        _resources(modification.cluster, Cluster, built, attempt)
    if modification.listener is not None:
        _resources(modification.listener, Listener, built, attempt)
    if modification.network_filter is not None:
        _network_filters(modification.network_filter, built, attempt)
    if modification.http_filter is not None:
        _http_filters(modification.http_filter, built, attempt)
    if modification.virtual_host is not None:
        _virtual_hosts(modification.virtual_host, built, attempt)


def _resources(asked: PatchChange[Any], kind: type[Message], built: Built, attempt: Attempt) -> None:
    """Whole resources. One that is added belongs to the proxy, and takes the place of one with its name."""
    if asked.operation == "Add":
        added = written(asked.value or "", kind)
        if not _name(added):
            raise DoesNotApply("what is added has no name")
        replaced = {id(one) for one in built.resources if isinstance(one, kind) and _name(one) == _name(added)}
        built.resources = [one for one in built.resources if id(one) not in replaced]
        attempt.fits = True
        if built.is_of_proxy:
            built.resources.append(_copy(added))
        return
    fits = partial(_fits_resource, asked.match, built)
    others = [one for one in built.resources if not isinstance(one, kind)]
    ours = [one for one in built.resources if isinstance(one, kind)]
    built.resources = [*others, *_changed(asked, ours, kind, fits, attempt)]


def _network_filters(asked: PatchChange[FilterMatch], built: Built, attempt: Attempt) -> None:
    for chain in _chains(asked.match, built):
        _write(chain.filters, _changed(asked, list(chain.filters), Filter, _named(asked), attempt))


def _http_filters(asked: PatchChange[FilterMatch], built: Built, attempt: Attempt) -> None:
    for chain in _chains(asked.match, built):
        for manager in _managers(chain):
            found = _changed(asked, list(manager.http_filters), HttpFilter, _named(asked), attempt)
            _write(manager.http_filters, found)


def _virtual_hosts(asked: PatchChange[VirtualHostMatch], built: Built, attempt: Attempt) -> None:
    if not _fits_origin(asked.match, built):
        return
    wanted = None if asked.match is None else asked.match.route_configuration_name
    for table in _tables(built):
        if wanted is None or table.name == wanted:
            found = _changed(asked, list(table.virtual_hosts), VirtualHost, _named(asked), attempt)
            _write(table.virtual_hosts, found)


def _changed(
    asked: PatchChange[Any], there: list[M], kind: type[M], fits: Callable[[M], bool], attempt: Attempt
) -> list[M]:
    """A list with one modification made."""
    attempt.fits |= asked.operation in _NEED_NOTHING or any(map(fits, there))
    if asked.operation == "Remove":
        return [one for one in there if not fits(one)]
    if asked.operation == "Patch":
        return [_patched(asked, one, kind, attempt) if fits(one) else one for one in there]
    at = _place(asked.operation, there, fits)
    return there if at is None else [*there[:at], _copy(written(asked.value or "", kind)), *there[at:]]


def _place(operation: str, there: list[M], fits: Callable[[M], bool]) -> int | None:
    """Where to put a new one. Envoy refuses whatever comes behind the filter that ends a chain."""
    last = len(there) - 1 if there and _ends_a_chain(there[-1]) else len(there)
    if operation == "AddFirst":
        return 0
    if operation in {"Add", "AddLast"}:
        return last
    found = next((index for index, one in enumerate(there) if fits(one)), None)
    if found is None:
        return None
    return found if operation == "AddBefore" else min(found + 1, last)


_ENDS: Final = frozenset(kind.DESCRIPTOR.full_name for kind in (Router, HttpConnectionManager, TcpProxy))


def _ends_a_chain(one: Message) -> bool:
    return isinstance(one, Filter | HttpFilter) and one.typed_config.TypeName() in _ENDS


def _patched(asked: PatchChange[Any], one: M, kind: type[M], attempt: Attempt) -> M:
    try:
        if isinstance(one, Filter | HttpFilter):
            return _with_config(asked, one, kind)
        return _same_name(one, _rewritten(asked, one, kind))
    except DoesNotApply as error:
        attempt.problems.append(f"{_name(one)}: {error}")
        return one


def _rewritten(asked: PatchChange[Any], one: M, kind: type[M]) -> M:
    if asked.json_patches:
        return with_patches(one, asked.json_patches)
    return merged(one, written(asked.value or "", kind))


def _same_name(before: M, after: M) -> M:
    """By its name others refer to it, and no two may have one."""
    if _name(after) != _name(before):
        raise DoesNotApply(f"cannot be named `{_name(after)}`: a name stays what it is")
    return after


def _with_config(asked: PatchChange[Any], one: Any, kind: type[M]) -> M:
    """Of a filter, what it is configured with is patched."""
    found = kind()
    found.CopyFrom(one)
    if asked.json_patches:
        config = with_patches(unpacked(one.typed_config), asked.json_patches)
        found.typed_config.CopyFrom(pack(config))  # type: ignore[attr-defined]
    else:
        value: Any = written(asked.value or "", kind)
        found.typed_config.CopyFrom(merged_any(one.typed_config, value.typed_config))  # type: ignore[attr-defined]
    return found


def _chains(match: FilterMatch | None, built: Built) -> Iterator[FilterChain]:
    """The filter chains of the listeners that match."""
    if not _fits_origin(match, built):
        return
    for listener in (one for one in built.resources if isinstance(one, Listener)):
        if match is None or (match.listener_name in {None, listener.name} and _fits_tags(match.listener_tags, built)):
            yield from listener.filter_chains
            if listener.HasField("default_filter_chain"):
                yield listener.default_filter_chain


def _managers(chain: FilterChain) -> Iterator[HttpConnectionManager]:
    """The connection managers of a chain; what is done to one is written back."""
    for one in chain.filters:
        if one.typed_config.Is(HttpConnectionManager.DESCRIPTOR):
            manager = HttpConnectionManager.FromString(one.typed_config.value)
            yield manager
            one.typed_config.CopyFrom(pack(manager))


def _tables(built: Built) -> Iterator[RouteConfiguration]:
    """Route tables, served by themselves or inside of a connection manager."""
    yield from (one for one in built.resources if isinstance(one, RouteConfiguration))
    for chain in _chains(None, built):
        for manager in _managers(chain):
            if manager.HasField("route_config"):
                yield manager.route_config


def _fits_resource(match: Any, built: Built, one: Any) -> bool:
    if match is None:
        return True
    fits = match.name in {None, one.name} and _fits_origin(match, built)
    return fits and _fits_tags(getattr(match, "tags", None), built)


def _fits_origin(match: Any, built: Built) -> bool:
    return match is None or match.origin in {None, built.origin}


def _fits_tags(wanted: Mapping[str, str] | None, built: Built) -> bool:
    has = {_SERVICE_TAG: built.service, **dict(built.tags)}
    return all(
        has.get(name) == value or (value == _ANY_VALUE and name in has) for name, value in (wanted or {}).items()
    )


def _named(asked: PatchChange[Any]) -> Callable[[Any], bool]:
    name = None if asked.match is None else asked.match.name
    return lambda one: name in {None, one.name}


def _name(one: Any) -> str:
    return str(one.name)


def _write(container: Any, found: list[Any]) -> None:
    copies = [_copy(one) for one in found]
    del container[:]
    container.extend(copies)


def _copy(message: M) -> M:
    found = type(message)()
    found.CopyFrom(message)
    return found
