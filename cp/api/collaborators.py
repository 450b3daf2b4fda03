"""What the HTTP API needs of the rest of the control plane, and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from cp.model.document import Document
from cp.resources.kinds import Kinds
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.snapshot import Snapshot
from cp.store.port import Store


class State(Protocol):
    """What is in force right now."""

    @property
    def world(self) -> World:
        """The newest World."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether the first World is there, and proxies are served."""
        ...

    @property
    def is_stopping(self) -> bool:
        """Whether proxies are being sent elsewhere, because this is the end."""
        ...

    async def snapshot(self, dataplane: Resource) -> Snapshot:
        """What a proxy is served now or, while it is not connected, would be served."""
        ...


@dataclass(frozen=True, slots=True)
class About:
    """Which control plane this is."""

    hostname: str
    version: str
    instance: str
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class ForProxies:
    """What bootstrap configurations say of this control plane. An empty host is the one it was asked at."""

    port: int
    host: str
    admin_address: str
    admin_port: int
    admin_unix_socket: bool


def _nothing(_document: Document) -> Iterable[Document]:
    return ()


@dataclass(frozen=True, slots=True)
class Collaborators:
    """Everything that the API is given."""

    store: Store
    kinds: Kinds
    state: State
    about: About
    for_proxies: ForProxies
    body_limit: int
    read_only: bool = False
    config: Mapping[str, Any] = field(default_factory=dict)
    companions: Callable[[Document], Iterable[Document]] = _nothing
    """What is stored together with a document that is new, such as the default policies of a Mesh."""
