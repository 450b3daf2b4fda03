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

DRAINING: Final = "koguma.io/draining"
"""The run of a proxy that is about to end: its addresses are no endpoints any more."""

MISSED_BY: Final = "koguma.io/missed-by"
"""The control plane that no longer sees the owner, and removes the Dataplane unless another one objects."""

RESOURCE: Final = "dataplane.resource"
"""Where a proxy's metadata has the Dataplane that it brings along, beside its owner."""

LABELS: Final = frozenset({OWNER, DRAINING, MISSED_BY})


def label(document: Document, name: str) -> str:
    return str(_labels(document).get(name, ""))


def labelled(document: Document, **changes: str) -> Document:
    """The document with labels of ours set or, where empty, removed; the same object if that changes nothing."""
    named = {_NAMES[name]: value for name, value in changes.items()}
    before = _labels(document)
    kept = {name: value for name, value in before.items() if name not in named}
    labels = kept | {name: value for name, value in named.items() if value}
    if labels == dict(before):
        return document
    data = {name: value for name, value in document.data.items() if name != "labels"}
    return replace(document, data={**data, "labels": labels} if labels else data)


def written_by_hand(document: Document, before: Document | None) -> Document:
    """A document as somebody wrote it, who does not own what he read: it stays. A proxy that drains goes on draining."""
    draining = "" if before is None else label(before, DRAINING)
    return labelled(document, owner="", missed_by="", draining=draining)


def registered(document: Document, before: Document | None, owner: str) -> Document:
    """A document as a proxy that starts registers it. What had no owner gets none, or it would go with the proxy."""
    is_ours = before is None or label(before, OWNER) != ""
    return labelled(document, owner=owner if is_ours else "", missed_by="", draining="")


def has_labels_of_ours(document: Document) -> bool:
    return not LABELS.isdisjoint(_labels(document))


_NAMES: Final = {"owner": OWNER, "draining": DRAINING, "missed_by": MISSED_BY}


def _labels(document: Document) -> Mapping[str, Any]:
    labels = document.data.get("labels")
    return labels if isinstance(labels, Mapping) else {}
