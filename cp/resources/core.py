"""The kinds that are no policies."""

from __future__ import annotations

from typing import Final

from cp.resources.kinds import Kind

CORE: Final[tuple[Kind, ...]] = ()
