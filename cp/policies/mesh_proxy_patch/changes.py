"""What each modification does to the finished resources of one inbound, outbound or proxy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class OpenManager:
    """A connection manager of a filter chain, read so that it can be changed."""

    listener: Listener
    chain: FilterChain
    packed: Filter
    """The filter that it was read from."""

    manager: HttpConnectionManager


class Changes:
    """Makes modifications, one after the other, in the finished resources of one input of a build.

    Connection managers stay open from one modification to the next: reading and writing one each time would cost the
    square of the number of modifications.
    """

    def __init__(self, built: Built) -> None:
        self._built = built
        self._open: list[OpenManager] | None = None

    def make(self, modification: Modification) -> Attempt:
        """Make one modification, as far as it can be made."""
        attempt = Attempt()
        try:
            self._make(modification, attempt)
        except DoesNotApply as error:
            attempt.problems.append(str(error))
        return attempt

    def close(self) -> None:
        """Write open connection managers into their filters."""
        for opened in self._open or ():
            opened.packed.typed_config.CopyFrom(pack(opened.manager))
        self._open = None

    def _make(self, modification: Modification, attempt: Attempt) -> None:
        if modification.cluster is not None:
            _change_resources(modification.cluster, Cluster, self._built, attempt)
        if modification.listener is not None:
            self.close()
            _change_resources(modification.listener, Listener, self._built, attempt)
        if modification.network_filter is not None:
            self.close()
            self._change_network_filters(modification.network_filter, attempt)
        if modification.http_filter is not None:
            self._change_http_filters(modification.http_filter, attempt)
        if modification.virtual_host is not None:
            self._change_virtual_hosts(modification.virtual_host, attempt)

    def _change_network_filters(self, patch: PatchChange[FilterMatch], attempt: Attempt) -> None:
        for listener, chain in _chains(self._built):
            if _fits_chain(patch.match, self._built, listener, chain):
                _change(patch, chain.filters, Filter, attempt)

    def _change_http_filters(self, patch: PatchChange[FilterMatch], attempt: Attempt) -> None:
        for opened in self._managers():
            if _fits_chain(patch.match, self._built, opened.listener, opened.chain):
                _change(patch, opened.manager.http_filters, HttpFilter, attempt)

    def _change_virtual_hosts(self, patch: PatchChange[VirtualHostMatch], attempt: Attempt) -> None:
        if not _fits_origin(patch.match, self._built):
            return
        name = None if patch.match is None else patch.match.route_configuration_name
        for table in self._tables():
            if name is None or table.name == name:
                _change(patch, table.virtual_hosts, VirtualHost, attempt)

    def _managers(self) -> list[OpenManager]:
        if self._open is None:
            self._open = [
                OpenManager(listener, chain, packed, HttpConnectionManager.FromString(packed.typed_config.value))
                for listener, chain in _chains(self._built)
                for packed in chain.filters
                if packed.typed_config.Is(HttpConnectionManager.DESCRIPTOR)
            ]
        return self._open

    def _tables(self) -> Iterator[RouteConfiguration]:
        """Route tables, served by themselves or inside of a connection manager."""
        yield from (resource for resource in self._built.resources if isinstance(resource, RouteConfiguration))
        for opened in self._managers():
            if opened.manager.HasField("route_config"):
                yield opened.manager.route_config


def _change_resources(patch: PatchChange[Any], kind: type[Message], built: Built, attempt: Attempt) -> None:
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
    resources = [resource for resource in built.resources if not isinstance(resource, kind)]
    for resource in built.resources:
        if not isinstance(resource, kind):
            continue
        if not _fits_resource(patch.match, built, resource):
            resources.append(resource)
            continue
        attempt.fits = True
        if patch.operation == "Patch":
            resources.append(_patched(patch, resource, kind, attempt))
    built.resources = resources


def _change(patch: PatchChange[Any], messages: Any, kind: type[Message], attempt: Attempt) -> None:
    """Make one modification in a list of filters or virtual hosts."""
    fits = [index for index, message in enumerate(messages) if _is_named(patch, message)]
    attempt.fits |= patch.operation in _NEED_NOTHING or bool(fits)
    if patch.operation == "Remove":
        for index in reversed(fits):
            del messages[index]
    elif patch.operation == "Patch":
        for index in fits:
            patched = _patched(patch, messages[index], kind, attempt)
            if patched is not messages[index]:
                messages[index].CopyFrom(patched)
    elif (place := _place(patch.operation, messages, fits)) is not None:
        messages.insert(place, written(patch.value or "", kind))


def _place(operation: str, messages: Any, fits: Sequence[int]) -> int | None:
    """The index of a new filter or virtual host. Envoy NACKs a filter behind the one that ends a chain."""
    last = len(messages) - 1 if messages and _ends_a_chain(messages[-1]) else len(messages)
    if operation == "AddFirst":
        return 0
    if operation in {"Add", "AddLast"}:
        return last
    if not fits:
        return None
    return fits[0] if operation == "AddBefore" else min(fits[0] + 1, last)


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


def _chains(built: Built) -> Iterator[tuple[Listener, FilterChain]]:
    """The filter chains, each with its listener."""
    for listener in built.resources:
        if isinstance(listener, Listener):
            yield from ((listener, chain) for chain in listener.filter_chains)
            if listener.HasField("default_filter_chain"):
                yield listener, listener.default_filter_chain


def _fits_chain(match: FilterMatch | None, built: Built, listener: Listener, chain: FilterChain) -> bool:
    if match is None:
        return True
    fits = _fits_origin(match, built) and match.listener_name in {None, listener.name}
    return fits and _fits_tags(match.listener_tags, built, chain.name)


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


def _is_named(patch: PatchChange[Any], message: Any) -> bool:
    return patch.match is None or patch.match.name in {None, message.name}


def _name(message: Any) -> str:
    return str(message.name)


def _copy(message: M) -> M:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy
