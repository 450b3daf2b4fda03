"""The backends of a Mesh that legacy policies name: where logs and traces go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def backend_of(data: Mapping[str, Any], section: Any) -> Mapping[str, Any] | None:
    """The backend that a policy means, in `logging` or `tracing` of its Mesh; None if there is none.

    A policy that names none means the default. One with a name that no backend has means none.
    """
    written = section or {}
    name = (data.get("conf") or {}).get("backend") or written.get("defaultBackend")
    backends: list[Mapping[str, Any]] = written.get("backends") or []
    return next((backend for backend in backends if name and backend.get("name") == name), None)
