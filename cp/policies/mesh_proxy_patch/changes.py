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
from cp.resources.dataplane import SERVICE_TAG
from generators.drafts import Built
from generators.envoy.edit import pack

M = TypeVar("M", bound=Message)

_ANY_VALUE: Final = "*"
_NEED_NOTHING: Final = frozenset({"Add", "AddFirst", "AddLast"})


@dataclass(slots=True)
class Attempt:
    """The result of one modification."""

    fits: bool = False
    """Whether it found anything to change."""

    problems: list[str] = field(default_factory=list)
    """Why some of what it found could not be changed, and stays as it was."""


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


def _resources(patch: PatchChange[Any], kind: type[Message], built: Built, attempt: Attempt) -> None:
    """Change whole resources. An added one is added once for the proxy, and replaces a resource of the same name."""
    if patch.operation == "Add":
        added = written(patch.value or "", kind)
        if not _name(added):
            raise DoesNotApply("what is added has no name")
        replaced = {
            id(resource)
            for resource in built.resources
            if isinstance(resource, kind) and _name(resource) == _name(added)
        }
        built.resources = [resource for resource in built.resources if id(resource) not in replaced]
        attempt.fits = True
        if built.is_of_proxy:
            built.resources.append(_copy(added))
        return
    fits = partial(_fits_resource, patch.match, built)
    of_other_kinds = [resource for resource in built.resources if not isinstance(resource, kind)]
    of_kind = [resource for resource in built.resources if isinstance(resource, kind)]
    built.resources = [*of_other_kinds, *_changed(patch, of_kind, kind, fits, attempt)]


def _network_filters(patch: PatchChange[FilterMatch], built: Built, attempt: Attempt) -> None:
    for chain in _chains(patch.match, built):
        _write(chain.filters, _changed(patch, list(chain.filters), Filter, _named(patch), attempt))


def _http_filters(patch: PatchChange[FilterMatch], built: Built, attempt: Attempt) -> None:
    for chain in _chains(patch.match, built):
        for manager in _managers(chain):
            changed = _changed(patch, list(manager.http_filters), HttpFilter, _named(patch), attempt)
            _write(manager.http_filters, changed)


def _virtual_hosts(patch: PatchChange[VirtualHostMatch], built: Built, attempt: Attempt) -> None:
    if not _fits_origin(patch.match, built):
        return
    name = None if patch.match is None else patch.match.route_configuration_name
    for table in _tables(built):
        if name is None or table.name == name:
            changed = _changed(patch, list(table.virtual_hosts), VirtualHost, _named(patch), attempt)
            _write(table.virtual_hosts, changed)


def _changed(
    patch: PatchChange[Any], messages: list[M], kind: type[M], fits: Callable[[M], bool], attempt: Attempt
) -> list[M]:
    """A list with one modification made."""
    attempt.fits |= patch.operation in _NEED_NOTHING or any(map(fits, messages))
    if patch.operation == "Remove":
        return [message for message in messages if not fits(message)]
    if patch.operation == "Patch":
        return [_patched(patch, message, kind, attempt) if fits(message) else message for message in messages]
    at = _place(patch.operation, messages, fits)
    return messages if at is None else [*messages[:at], _copy(written(patch.value or "", kind)), *messages[at:]]


def _place(operation: str, messages: list[M], fits: Callable[[M], bool]) -> int | None:
    """The index of a new filter or virtual host. Envoy NACKs a filter behind the one that ends a chain."""
    last = len(messages) - 1 if messages and _ends_a_chain(messages[-1]) else len(messages)
    if operation == "AddFirst":
        return 0
    if operation in {"Add", "AddLast"}:
        return last
    place = next((index for index, message in enumerate(messages) if fits(message)), None)
    if place is None:
        return None
    return place if operation == "AddBefore" else min(place + 1, last)


_ENDS: Final = frozenset(kind.DESCRIPTOR.full_name for kind in (Router, HttpConnectionManager, TcpProxy))


def _ends_a_chain(message: Message) -> bool:
    return isinstance(message, Filter | HttpFilter) and message.typed_config.TypeName() in _ENDS


def _patched(patch: PatchChange[Any], message: M, kind: type[M], attempt: Attempt) -> M:
    try:
        if isinstance(message, Filter | HttpFilter):
            return _with_config(patch, message, kind)
        return _same_name(message, _rewritten(patch, message, kind))
    except DoesNotApply as error:
        attempt.problems.append(f"{_name(message)}: {error}")
        return message


def _rewritten(patch: PatchChange[Any], message: M, kind: type[M]) -> M:
    if patch.json_patches:
        return with_patches(message, patch.json_patches)
    return merged(message, written(patch.value or "", kind))


def _same_name(before: M, after: M) -> M:
    """The patched message, if it kept its name: other resources refer to it by that name."""
    if _name(after) != _name(before):
        raise DoesNotApply(f"cannot be named `{_name(after)}`: a name stays what it is")
    return after


def _with_config(patch: PatchChange[Any], message: Any, kind: type[M]) -> M:
    """A filter whose configuration is patched."""
    patched = kind()
    patched.CopyFrom(message)
    if patch.json_patches:
        config = with_patches(unpacked(message.typed_config), patch.json_patches)
        patched.typed_config.CopyFrom(pack(config))  # type: ignore[attr-defined]
    else:
        value: Any = written(patch.value or "", kind)
        patched.typed_config.CopyFrom(merged_any(message.typed_config, value.typed_config))  # type: ignore[attr-defined]
    return patched


def _chains(match: FilterMatch | None, built: Built) -> Iterator[FilterChain]:
    """The filter chains of the listeners that match."""
    if not _fits_origin(match, built):
        return
    for listener in (resource for resource in built.resources if isinstance(resource, Listener)):
        if match is None or match.listener_name in {None, listener.name}:
            chains = [*listener.filter_chains]
            chains += [listener.default_filter_chain] if listener.HasField("default_filter_chain") else []
            tags = None if match is None else match.listener_tags
            yield from (chain for chain in chains if _fits_tags(tags, built, chain.name))


def _managers(chain: FilterChain) -> Iterator[HttpConnectionManager]:
    """The connection managers of a chain. Each is packed again into its filter after the caller has changed it."""
    for network_filter in chain.filters:
        if network_filter.typed_config.Is(HttpConnectionManager.DESCRIPTOR):
            manager = HttpConnectionManager.FromString(network_filter.typed_config.value)
            yield manager
            network_filter.typed_config.CopyFrom(pack(manager))


def _tables(built: Built) -> Iterator[RouteConfiguration]:
    """Route tables, served by themselves or inside of a connection manager."""
    yield from (resource for resource in built.resources if isinstance(resource, RouteConfiguration))
    for chain in _chains(None, built):
        for manager in _managers(chain):
            if manager.HasField("route_config"):
                yield manager.route_config


def _fits_resource(match: Any, built: Built, resource: Any) -> bool:
    if match is None:
        return True
    fits = match.name in {None, resource.name} and _fits_origin(match, built)
    return fits and _fits_tags(getattr(match, "tags", None), built)


def _fits_origin(match: Any, built: Built) -> bool:
    return match is None or match.origin in {None, built.origin}


def _fits_tags(tags: Mapping[str, str] | None, built: Built, chain: str | None = None) -> bool:
    """Whether a listener, or one of its chains, is for something with these tags."""
    return not tags or any(_has_tags(tags, {SERVICE_TAG: built.service, **dict(of)}) for of in built.tags(chain))


def _has_tags(tags: Mapping[str, str], has: Mapping[str, str]) -> bool:
    return all(has.get(name) == value or (value == _ANY_VALUE and name in has) for name, value in tags.items())


def _named(patch: PatchChange[Any]) -> Callable[[Any], bool]:
    name = None if patch.match is None else patch.match.name
    return lambda message: name in {None, message.name}


def _name(message: Any) -> str:
    return str(message.name)


def _write(container: Any, messages: list[Any]) -> None:
    copies = [_copy(message) for message in messages]
    del container[:]
    container.extend(copies)


def _copy(message: M) -> M:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy
