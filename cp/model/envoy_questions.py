"""What may be asked about an Envoy by way of its agent: the words that a control plane and an agent share.

See record 0085.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

LARGEST_ANSWER: Final = 8 * 1024 * 1024
"""Bytes of what an Envoy says, as it is read. What reads JSON in one go keeps all other threads of a control plane
waiting, a fifth of a second for so many."""

LARGEST_SENT: Final = 2 * 1024 * 1024
"""Bytes of the same as it is sent, compressed."""

LONGEST_FILTER: Final = 1000
"""Characters of an expression."""

LONGEST_LEVEL: Final = 3600.0
"""Seconds for which the level of an Envoy's log may be another."""

USUAL_LEVEL: Final = 300.0
HEARTBEAT: Final = 20.0
"""Seconds after which the control plane says on an idle link that it is there."""

SILENCE: Final = 3 * HEARTBEAT
"""Seconds of silence after which an agent takes a link for broken."""

LEVELS: Final = ("trace", "debug", "info", "warning", "error", "critical", "off")


class EnvoySubject(StrEnum):
    """What a question is about. The values are the last parts of the paths of the HTTP API."""

    CLUSTERS = "clusters"
    STATS = "stats"
    CONFIG_DUMP = "config_dump"
    CERTS = "certs"
    LISTENERS = "listeners"
    SERVER_INFO = "server_info"
    LOG_LEVEL = "log_level"


DUMPED_TYPES: Final[dict[str, str]] = {
    "clusters": "dynamic_active_clusters",
    "endpoints": "dynamic_endpoint_configs",
    "listeners": "dynamic_listeners",
    "routes": "dynamic_route_configs",
    "secrets": "dynamic_active_secrets",
}
"""The field of Envoy's config dump by the type of its resources."""

WARMING_TYPES: Final[dict[str, str]] = {
    "warming_clusters": "dynamic_warming_clusters",
    "warming_secrets": "dynamic_warming_secrets",
}
"""The same for what is not ready yet. Of listeners both stand beside each other, and routes are ready at once."""


@dataclass(frozen=True, slots=True)
class EnvoyQuestion:
    """One question to an Envoy."""

    subject: EnvoySubject
    filter: str = ""
    """A regular expression as RE2 has them, which Envoy applies: to the names of stats, or of resources of a dump."""

    type: str = ""
    """The only type of resources in a dump; empty: all, and the bootstrap configuration."""

    as_text: bool = False
    """Stats and clusters as Envoy prints them for people."""

    level: str = ""
    """The level that the log is to have; empty: the levels stay as they are."""

    seconds: float = 0.0
    """For how long."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> EnvoyQuestion:
        """From the data that `asdict` makes of it. Raises `ValueError` for a subject that is not known here."""
        known = {name: data[name] for name in cls.__slots__ if name in data}
        return cls(**{**known, "subject": EnvoySubject(data["subject"])})


@dataclass(frozen=True, slots=True)
class EnvoyAnswer:
    """What an Envoy says, as JSON."""

    content: bytes


class EnvoyUnanswered(Exception):
    """A question to an Envoy has no answer. The text says why."""


class NoAgent(EnvoyUnanswered):
    """No agent of ours is connected that could ask the Envoy."""


class SilentAgent(EnvoyUnanswered):
    """The agent was asked, and did not answer in time."""


class AgentFault(EnvoyUnanswered):
    """The agent says why it has no answer: it is too long, or Envoy gives none."""
