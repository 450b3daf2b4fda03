"""`Reader`: decodes responses, each distinct run of resources once for all proxies.

A thousand proxies are sent mostly the same resources. A run of resources that was decoded before is recognised by
comparing bytes, so that only new resources are decoded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.base_pb2 import TransportSocket
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import CommonTlsContext, DownstreamTlsContext, UpstreamTlsContext
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryResponse, DiscoveryResponse
from google.protobuf.any_pb2 import Any as AnyMessage

from cp.translate.packing import CLUSTER, LISTENER, text_field

_RESOURCES = b"\x12"  # how field 2 begins
_KEY = 48  # bytes by which runs are found
_RUN = 8  # fewer resources in a row are looked up one by one
_MANAGER = HttpConnectionManager.DESCRIPTOR.full_name
_TLS = (UpstreamTlsContext, DownstreamTlsContext)


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Consecutive resources of a response: their bytes, and what they contain."""

    data: bytes = field(repr=False)
    ends: tuple[int, ...] = field(repr=False)
    versions: Mapping[str, str]
    refers: frozenset[str]
    """The assignments that its clusters ask for, or the route tables that its listeners do."""

    asks: bytes = field(repr=False)
    """The same names as bytes of a request, each as field 3."""

    secrets: frozenset[str] = frozenset()
    """The secrets that its clusters or listeners ask for."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A response: its own fields, and the runs of its resources."""

    type_url: str
    version: str
    nonce: str
    removed: tuple[str, ...]
    runs: tuple[Run, ...]
    around: bytes = field(repr=False)
    """The bytes of all fields but the resources."""

    @property
    def resources(self) -> int:
        return sum(len(run.ends) for run in self.runs)


class Reader:
    """Reads the responses of one kind of stream."""

    def __init__(self, *, delta: bool) -> None:
        self._delta = delta
        self._runs: dict[bytes, list[Run]] = {}
        self._single: dict[bytes, Run] = {}
        self._around: dict[bytes, tuple[str, str, str, tuple[str, ...]]] = {}

    def read(self, body: bytearray, at: int) -> Heard:
        """Read the response that begins at an offset of a buffer and goes to its end."""
        around = bytearray()
        runs: list[Run] = []
        loose: list[Run] = []  # resources in a row that are of no known run
        end = len(body)
        while at < end:
            if not body.startswith(_RESOURCES, at):
                until = _after_field(body, at)
                around += body[at:until]
            elif (run := self._known_run(body, at)) is not None:
                runs += self._joined(loose)
                runs.append(run)
                loose, until = [], at + len(run.data)
            else:
                until = _after_field(body, at)
                loose.append(self._single_run(bytes(body[at:until])))
            at = until
        runs += self._joined(loose)
        envelope = bytes(around)
        if envelope not in self._around:
            self._around[envelope] = self._envelope_fields(envelope)
        return Heard(*self._around[envelope], tuple(runs), envelope)

    def _known_run(self, body: bytearray, at: int) -> Run | None:
        candidates = self._runs.get(bytes(body[at : at + _KEY]), ())
        for run in candidates:
            if body.startswith(run.data, at):
                return run
        for run in candidates:
            if (same := _in_common(run, body, at)) >= _RUN:
                return self._add(list(self._each(run, same)))
        return None

    def _joined(self, loose: list[Run]) -> list[Run]:
        return [self._add(loose)] if len(loose) >= _RUN else loose

    def _add(self, singles: list[Run]) -> Run:
        run = _run([single.data for single in singles], singles)
        self._runs.setdefault(run.data[:_KEY], []).append(run)
        self._runs[run.data[:_KEY]].sort(key=lambda candidate: len(candidate.data), reverse=True)
        return run

    def _each(self, run: Run, count: int) -> Iterator[Run]:
        begin = 0
        for end in run.ends[:count]:
            yield self._single_run(run.data[begin:end])
            begin = end

    def _single_run(self, frame: bytes) -> Run:
        if frame not in self._single:
            self._single[frame] = self._decoded(frame)
        return self._single[frame]

    def _decoded(self, frame: bytes) -> Run:
        if self._delta:
            (resource,) = DeltaDiscoveryResponse.FromString(frame).resources
            content, version, named = resource.resource, resource.version, resource.name
        else:
            (content,) = DiscoveryResponse.FromString(frame).resources
            version, named = hashlib.sha256(content.value).hexdigest()[:16], ""
        refers = frozenset(_refers(content))
        versions = {named or _name(content): version}
        return Run(frame, (len(frame),), versions, refers, asking(refers), frozenset(_secrets(content)))

    def _envelope_fields(self, around: bytes) -> tuple[str, str, str, tuple[str, ...]]:
        if self._delta:
            delta = DeltaDiscoveryResponse.FromString(around)
            return delta.type_url, delta.system_version_info, delta.nonce, tuple(delta.removed_resources)
        message = DiscoveryResponse.FromString(around)
        return message.type_url, message.version_info, message.nonce, ()


def _run(frames: list[bytes], singles: list[Run]) -> Run:
    ends, end = [], 0
    for frame in frames:
        end += len(frame)
        ends.append(end)
    versions = {name: version for single in singles for name, version in single.versions.items()}
    refers = frozenset[str]().union(*(single.refers for single in singles))
    secrets = frozenset[str]().union(*(single.secrets for single in singles))
    return Run(b"".join(frames), tuple(ends), versions, refers, asking(refers), secrets)


def asking(names: frozenset[str]) -> bytes:
    return b"".join(text_field(3, name) for name in sorted(names))


def _in_common(run: Run, body: bytearray, at: int) -> int:
    """How many of a run's resources a response contains from an offset on."""
    view = memoryview(run.data)
    low, high = 0, len(run.ends)
    while low < high:
        middle = (low + high + 1) // 2
        if body.startswith(view[: run.ends[middle - 1]], at):
            low = middle
        else:
            high = middle - 1
    return low


def _after_field(body: bytearray, at: int) -> int:
    """The offset at which a length-delimited field ends; a response has no others."""
    length, shift, at = 0, 0, at + 1
    while True:
        byte = body[at]
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return at + length


def _name(content: AnyMessage) -> str:
    """The name of a resource: field 1, a string, in each of Envoy's types."""
    data = bytearray(content.value)
    until = _after_field(data, 0)
    begin = next(at for at in range(1, until) if data[at] < 0x80) + 1
    return data[begin:until].decode()


def _refers(content: AnyMessage) -> Iterator[str]:
    if content.type_url == CLUSTER:
        cluster = Cluster.FromString(content.value)
        if cluster.type == Cluster.EDS:
            yield cluster.eds_cluster_config.service_name or cluster.name
    elif content.type_url == LISTENER:
        listener = Listener.FromString(content.value)
        for chain in (*listener.filter_chains, listener.default_filter_chain):
            for network_filter in chain.filters:
                if network_filter.typed_config.type_url.endswith(_MANAGER):
                    manager = HttpConnectionManager.FromString(network_filter.typed_config.value)
                    if manager.HasField("rds"):
                        yield manager.rds.route_config_name


def _secrets(content: AnyMessage) -> Iterator[str]:
    """The secrets that a cluster or a listener names."""
    for tls in map(_tls, _transport_sockets(content)):
        yield from (secret.name for secret in tls.tls_certificate_sds_secret_configs)
        for validation in (tls, tls.combined_validation_context):
            if validation.HasField("validation_context_sds_secret_config"):
                yield validation.validation_context_sds_secret_config.name


def _transport_sockets(content: AnyMessage) -> Iterator[TransportSocket]:
    if content.type_url == CLUSTER:
        cluster = Cluster.FromString(content.value)
        yield cluster.transport_socket
        yield from (match.transport_socket for match in cluster.transport_socket_matches)
    elif content.type_url == LISTENER:
        listener = Listener.FromString(content.value)
        yield from (chain.transport_socket for chain in (*listener.filter_chains, listener.default_filter_chain))


def _tls(transport_socket: TransportSocket) -> CommonTlsContext:
    packed = transport_socket.typed_config
    kinds = (kind for kind in _TLS if packed.Is(kind.DESCRIPTOR))
    return next((kind.FromString(packed.value).common_tls_context for kind in kinds), CommonTlsContext())
