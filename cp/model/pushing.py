"""Where a proxy's metrics are pushed to, as the agent that started its Envoy reads it in Envoy's own configuration.

Envoy itself takes a collector only when it starts. So the orders are the metadata of a cluster that nobody calls: they
arrive and change as all configuration does.

See record 0033.
"""

from __future__ import annotations

from typing import Final

import msgspec

CLUSTER: Final = "koguma:metrics"
METADATA: Final = "koguma.metrics"
FIELD: Final = "orders"
"""The field of the metadata. The orders in it are JSON, which keeps whole numbers; metadata has only doubles."""


class MetricSelection(msgspec.Struct, frozen=True):
    """Names of metrics: `Prefix`, `Exact`, `Contains` or `Regex`, and what it compares with."""

    how: str
    text: str

    def is_of(self, name: str) -> bool:
        if self.how == "Prefix":
            return name.startswith(self.text)
        if self.how == "Contains":
            return self.text in name
        return _occurs(self.text, name) if self.how == "Regex" else name == self.text


class PushedApplication(msgspec.Struct, frozen=True):
    """An application on the proxy's machine that has metrics of its own."""

    name: str
    address: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        return _authority(self.address, self.port)


class MetricCollector(msgspec.Struct, frozen=True):
    """A collector that metrics are sent to, and how often."""

    host: str
    port: int
    seconds: float
    is_http: bool = False
    path: str = ""

    @property
    def authority(self) -> str:
        return _authority(self.host, self.port)


class PushOrders(msgspec.Struct, frozen=True):
    """All that a MeshMetric says to the agent that pushes metrics."""

    collectors: tuple[MetricCollector, ...] = ()
    applications: tuple[PushedApplication, ...] = ()
    profile: tuple[MetricSelection, ...] = ()
    include: tuple[MetricSelection, ...] = ()
    exclude: tuple[MetricSelection, ...] = ()
    unused: bool = False

    def are_about(self, name: str) -> bool:
        """Whether a metric of the proxy itself is to be pushed."""
        if any(choice.is_of(name) for choice in self.include):
            return True
        in_profile = any(choice.is_of(name) for choice in self.profile)
        return in_profile and not any(choice.is_of(name) for choice in self.exclude)


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def written(orders: PushOrders) -> str:
    return msgspec.json.encode(orders).decode()


def read(text: str) -> PushOrders | None:
    """The orders in a text; None where a control plane of another version wrote what this one does not know."""
    try:
        return msgspec.json.decode(text, type=PushOrders)
    except msgspec.MsgspecError:
        return None


def _occurs(pattern: str, name: str) -> bool:
    from cp.model import regex  # noqa: PLC0415  # an agent reads hardly any expression, and RE2 is large

    return regex.occurs(pattern, name)
