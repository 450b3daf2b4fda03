"""The label that names who pushes a document, such as the repository that it stands in.

What carries the name and is no longer pushed may be deleted: see record 0082.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from cp.model.document import Document

MANAGED_BY: Final = "koguma.io/managed-by"


def manager(document: Document) -> str:
    """Who pushes a document; empty if nobody says so."""
    labels = document.data.get("labels")
    return str(labels.get(MANAGED_BY, "")) if isinstance(labels, Mapping) else ""


def managed(document: Document, name: str) -> Document:
    """The document as one that is pushed under a name; the same object if it has the label already."""
    if manager(document) == name:
        return document
    labels = document.data.get("labels")
    written = labels if isinstance(labels, Mapping) else {}
    return replace(document, data={**document.data, "labels": {**written, MANAGED_BY: name}})
