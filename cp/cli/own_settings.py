"""The settings of a control plane, for commands that open its store themselves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cp.client.problem import Problem

if TYPE_CHECKING:
    from cp.settings import Settings


def own_settings(config: Path | None, **options: Any) -> Settings:
    """As `koguma run` would have them with this file and these options. Raises `Problem`."""
    from cp.settings import BadSettings, load  # noqa: PLC0415  # slow to load, and only needed here

    try:
        return load(config=config, **options)
    except BadSettings as error:
        raise Problem("\n".join(error.faults)) from None
