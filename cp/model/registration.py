"""The labels that the control plane writes on a Dataplane: the run that registered it, and the state of its proxy.

A run of a proxy has an id of its own, its *owner*. A Dataplane that the run registered has the id as a label and is
removed when the run ends. A Dataplane that an operator wrote has no owner and stays; to write once more what a run has
registered changes nothing. The store's revisions keep two control planes from acting on one label at a time: see record
0050.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from cp.model.document import Document
from cp.model.managed import managed, manager

OWNER: Final = "koguma.io/owner"
"""The run of a proxy that registered the Dataplane. It is removed when that run has ended."""

NOT_READY: Final = "koguma.io/not-ready"
"""The run of a proxy that does not listen yet, or is about to end. Its addresses are no endpoints then."""

MISSED_BY: Final = "koguma.io/missed-by"
"""The control plane that no longer sees the owner, and removes the Dataplane unless another control plane objects."""

RESOURCE: Final = "dataplane.resource"
"""The field of a node's metadata with the Dataplane that the run wants registered."""

DRAIN_TIME: Final = "koguma.io/listener-drain-time"
"""The field of a node's metadata with the seconds for which Envoy drains a listener that has changed."""

CERTIFICATES: Final = "koguma.io/certificates"
"""The field of a node's metadata by which a gRPC client names the provider in its bootstrap that has its certificates.
A client without it is served nothing that needs them: its library would refuse whole resources."""

FETCHED: Final = "fetched"
"""In that field: this is who fetches the certificates of the client, and not the client."""

LABELS: Final = frozenset({OWNER, NOT_READY, MISSED_BY})

WAY: Final = "registration"
"""The way of a change that a run of a proxy makes to its own Dataplane."""

READINESS_WAY: Final = "readiness"
BOOTSTRAP_WAY: Final = "bootstrap"
SWEEP_WAY: Final = "registrations"
"""The way of what a control plane changes about proxies that come and go."""

PROXY_AUTHOR: Final = "proxy "
"""The beginning of the author of a change that was made with the token of a proxy. No user is called so."""

_WAYS: Final = frozenset({WAY, READINESS_WAY, BOOTSTRAP_WAY, SWEEP_WAY})


def is_registration(origin: str) -> bool:
    """Whether a change that came by a way, and from a machine, says that a proxy came, went, or is ready."""
    return origin.partition(" from ")[0] in _WAYS


class ChangeAuthor(Protocol):
    """The author of a change, and the way by which it came."""

    @property
    def name(self) -> str: ...

    @property
    def origin(self) -> str: ...


def is_by_proxies(author: ChangeAuthor) -> bool:
    """True if a proxy made a change, or the control plane did because a proxy came or went."""
    return author.name.startswith(PROXY_AUTHOR) or is_registration(author.origin)


def label(document: Document, name: str) -> str:
    return str(_labels(document).get(name, ""))


def is_registered(document: Document) -> bool:
    """Whether a run of a proxy registered a Dataplane."""
    return document.key.type == "Dataplane" and label(document, OWNER) != ""


def labelled(document: Document, **changes: str) -> Document:
    """The document with these labels set or, where empty, removed; the same object if that changes nothing."""
    named = {_NAMES[name]: value for name, value in changes.items()}
    labels_before = _labels(document)
    kept = {name: value for name, value in labels_before.items() if name not in named}
    labels = kept | {name: value for name, value in named.items() if value}
    if labels == dict(labels_before):
        return document
    data = {name: value for name, value in document.data.items() if name != "labels"}
    return replace(document, data={**data, "labels": labels} if labels else data)


def written_by_hand(document: Document, document_before: Document | None) -> Document:
    """A document that an operator wrote: it has no owner. Whether the proxy is ready stays as it was.

    One that says nothing of the labels of the control plane, and else what is there already, leaves all as it is.
    """
    if document_before is None:
        return unlabelled(document)
    if is_registered(document_before) and _with_labels(document) == _with_labels(unlabelled(document_before)):
        return replace(document, data=document_before.data)
    not_ready = label(document_before, NOT_READY)
    return labelled(document, owner="", missed_by="", not_ready=not_ready)


def registered(document: Document, document_before: Document | None, owner: str, *, ready: bool) -> Document:
    """A document that a run registers. One that existed without an owner gets none, or it would go with the run.

    Nor does such a one lose who pushes it: a run knows nothing of that. A run that is noted as not ready stays so, also
    if it registers again.
    """
    is_ours = document_before is None or label(document_before, OWNER) != ""
    is_noted = document_before is not None and label(document_before, NOT_READY) == owner
    not_ready = owner if is_noted or not ready else ""
    if document_before is not None and not is_ours and not manager(document) and manager(document_before):
        document = managed(document, manager(document_before))
    return labelled(document, owner=owner if is_ours else "", missed_by="", not_ready=not_ready)


def unlabelled(document: Document) -> Document:
    """The document without the labels of the control plane."""
    return labelled(document, owner="", missed_by="", not_ready="")


def _with_labels(document: Document) -> Mapping[str, Any]:
    """The data of a document: to have no labels is the same as to have none of them."""
    return {**document.data, "labels": _labels(document)}


def has_labels_of_ours(document: Document) -> bool:
    return not LABELS.isdisjoint(_labels(document))


_NAMES: Final = {"owner": OWNER, "not_ready": NOT_READY, "missed_by": MISSED_BY}


def _labels(document: Document) -> Mapping[str, Any]:
    labels = document.data.get("labels")
    return labels if isinstance(labels, Mapping) else {}
