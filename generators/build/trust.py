"""The secrets with the roots that the proxies of a mesh trust."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from generators.envoy.mesh_tls import trust_secrets

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from generators.proxy import Trust


def trusted_roots(trust: Trust) -> Iterator[tuple[str, Message]]:
    return ((secret.name, secret) for secret in trust_secrets(trust))
