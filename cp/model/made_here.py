"""The mark of a document that a control plane made for itself: a name alone says nothing, as anybody may choose it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from cp.model.document import Document

MADE_HERE: Final = MappingProxyType({"kuma.io/managed-by": "control-plane"})
"""The label of what a control plane made. It goes with its mesh; what somebody stored is asked about first."""


def is_labelled_made_here(document: Document) -> bool:
    """Whether a document has the label."""
    labels = document.data.get("labels")
    return isinstance(labels, Mapping) and MADE_HERE.items() <= labels.items()
