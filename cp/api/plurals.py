"""Which kind a path names. Rights and handlers ask here, so that both mean the same."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from cp.resources.kinds import Kind, Kinds

ALSO_CALLED: Final[Mapping[str, str]] = MappingProxyType({"global-secrets": "globalsecrets"})
"""Other plurals that Kuma's API takes."""


def kind_of_plural(plural: str, kinds: Kinds) -> Kind | None:
    """The kind of a plural in a path."""
    usual = ALSO_CALLED.get(plural, plural)
    return next((kind for kind in kinds.values() if kind.plural == usual), None)
