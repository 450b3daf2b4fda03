"""Who registered a Dataplane, and what the control plane has noted about its proxy: labels that nobody writes by hand.

A run of a proxy has an id of its own, its *owner*. A Dataplane that the run registered carries it and goes when the run
ends; one that somebody wrote by other means has no owner and stays. The store's revisions keep two control planes
from acting on one label at a time: see record 0050.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from cp.model.document import Document

OWNER: Final = "koguma.io/owner"
"""The run of a proxy that registered the Dataplane. It is removed when that run has ended."""

NOT_READY: Final = "koguma.io/not-ready"
"""The run of a proxy that does not listen yet, or is about to end: its addresses are no endpoints."""

MISSED_BY: Final = "koguma.io/missed-by"
"""The control plane that no longer sees the owner, and removes the Dataplane unless another one objects."""

RESOURCE: Final = "dataplane.resource"
"""Where a proxy's metadata has the Dataplane that it brings along, beside its owner."""

LABELS: Final = frozenset({OWNER, NOT_READY, MISSED_BY})


def label(document: Document, name: str) -> str:
    return str(_labels(document).get(name, ""))


def labelled(document: Document, **changes: str) -> Document:
    """The document with labels of ours set or, where empty, removed; the same object if that changes nothing."""
    named = {_NAMES[name]: value for name, value in changes.items()}
    labels_before = _labels(document)
    kept = {name: value for name, value in labels_before.items() if name not in named}
    labels = kept | {name: value for name, value in named.items() if value}
    if labels == dict(labels_before):
        return document
    data = {name: value for name, value in document.data.items() if name != "labels"}
    return replace(document, data={**data, "labels": labels} if labels else data)


def written_by_hand(document: Document, document_before: Document | None) -> Document:
    """A document as somebody wrote it. It is his, and stays; whether the proxy is ready is not his to say."""
    not_ready = "" if document_before is None else label(document_before, NOT_READY)
    return labelled(document, owner="", missed_by="", not_ready=not_ready)


def registered(document: Document, document_before: Document | None, owner: str, *, ready: bool) -> Document:
    """A document as a proxy that starts registers it. What had no owner gets none, or it would go with the proxy.

    A run that has said that it is not ready yet is not made so by asking for more.
    """
    is_ours = document_before is None or label(document_before, OWNER) != ""
    said_so = document_before is not None and label(document_before, NOT_READY) == owner
    not_ready = owner if said_so or not ready else ""
    return labelled(document, owner=owner if is_ours else "", missed_by="", not_ready=not_ready)


def unlabelled(document: Document) -> Document:
    """The document without what the control plane has noted."""
    return labelled(document, owner="", missed_by="", not_ready="")


def has_labels_of_ours(document: Document) -> bool:
    return not LABELS.isdisjoint(_labels(document))


_NAMES: Final = {"owner": OWNER, "not_ready": NOT_READY, "missed_by": MISSED_BY}


def _labels(document: Document) -> Mapping[str, Any]:
    labels = document.data.get("labels")
    return labels if isinstance(labels, Mapping) else {}
