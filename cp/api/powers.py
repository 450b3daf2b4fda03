"""The rights that a write takes beyond the right to write the kind, by what it changes.

They are for fields with more power than others (`cp.access.powers`), for documents that name Secrets or files of the
control plane's machine, and for writes by which more proxies receive keys. See record 0096.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from cp.access.powers import POWERS, Grant, taken_powers
from cp.access.receivers import adds_receivers, new_senders
from cp.access.rights import AccessDecision, AccessRequest, Verb, of_resource
from cp.api.caller import ApiCaller
from cp.model.document import Document
from cp.model.names import Key
from cp.resources.kinds import Kind, Kinds
from cp.resources.redaction import SourceReference, source_references
from cp.store.port import Delete, Put, Stored

_READ_BY_US: Final = frozenset(power.kind for power in POWERS if power.grant is Grant.ADMINISTRATOR)
"""The kinds whose files and variables the control plane reads. Envoy reads those of others, on its own machine."""

_DATAPLANE: Final = "Dataplane"
_GATEWAY: Final = "MeshGateway"


@dataclass(frozen=True, slots=True)
class ChangedDocument:
    """A document before and after a write; None where there is none."""

    before: Document | None
    after: Document | None

    @property
    def documents(self) -> list[Document]:
        return [document for document in (self.before, self.after) if document is not None]

    @property
    def key(self) -> Key:
        return self.documents[0].key


def document_changes(writes: Iterable[Put | Delete], stored_by_key: Mapping[Key, Stored]) -> Iterator[ChangedDocument]:
    """Yield what writes change. A deletion of what is not there changes nothing."""
    for write in writes:
        stored = stored_by_key.get(write.key)
        before, after = None if stored is None else stored.document, write.document if isinstance(write, Put) else None
        if before is not None or after is not None:
            yield ChangedDocument(before, after)


class WriteRights:
    """The rights that a caller needs for writes. `gateways` are documents, MeshGateways among them, after the write."""

    def __init__(self, caller: ApiCaller, kinds: Kinds, gateways: Iterable[Document] = ()) -> None:
        self._caller, self._kinds = caller, kinds
        self._documents = gateways
        self._gateways: list[Document] | None = None

    def decisions(self, changes: Iterable[ChangedDocument]) -> Iterator[AccessDecision]:
        """Yield whether the caller may make each change. A proxy's own Dataplane is judged by its token."""
        if self._caller.proxy is not None or self._caller.is_administrator:
            return
        for change in changes:
            if change.key.type in self._kinds:
                yield from self._on_change(self._kinds[change.key.type], change)

    def _on_change(self, kind: Kind, change: ChangedDocument) -> Iterator[AccessDecision]:
        yield from self._on_parts(change)
        yield from self._on_receivers(change)
        if change.after is None:
            return
        known = frozenset() if change.before is None else frozenset(source_references(kind, change.before.data))
        for reference in source_references(kind, change.after.data):
            if reference not in known:
                yield from self._on_source(change.after, reference)

    def _on_parts(self, change: ChangedDocument) -> Iterator[AccessDecision]:
        before, after = (None if side is None else side.data for side in (change.before, change.after))
        wanted = replace(_write_of(change.key), is_by_name=True)
        for power, part in taken_powers(change.key.type, before, after):
            decision = self._caller.decision(wanted)
            text = f"{decision.because}, and `{part.field}` of {change.key} changes: its writer {power.worst}"
            yield replace(decision, because=text)

    def _on_receivers(self, change: ChangedDocument) -> Iterator[AccessDecision]:
        if change.key.type == _GATEWAY and adds_receivers(change.before, change.after):
            yield self._on_keys(change.key, f"more proxies would receive the keys of {change.key} by its `selectors`")
        if change.key.type == _DATAPLANE and change.after is not None:
            for sender in new_senders(self._gateways_of(change.key.mesh), change.before, change.after):
                yield self._on_keys(change.key, f"the proxy of {change.key} would receive the keys of {sender}")

    def _gateways_of(self, mesh: str) -> Iterator[Document]:
        if self._gateways is None:
            self._gateways = [document for document in self._documents if document.key.type == _GATEWAY]
        return (gateway for gateway in self._gateways if gateway.key.mesh == mesh)

    def _on_keys(self, key: Key, text: str) -> AccessDecision:
        decision = self._secret_decision(key)
        is_tolerated = not decision.allowed and self._caller.rights.tolerates_unnamed
        allowed = decision.allowed or is_tolerated
        return AccessDecision(allowed, f"{decision.because}, and {text}", is_tolerated)

    def _secret_decision(self, key: Key) -> AccessDecision:
        return self._caller.decision(AccessRequest(Verb.WRITE, "Secret", _write_of(key).mesh))

    def _on_source(self, document: Document, reference: SourceReference) -> Iterator[AccessDecision]:
        if reference.is_secret:
            decision = self._secret_decision(document.key)
            text = f"{decision.because}, and `{reference.path}` of {document.key} names the Secret `{reference.named}`"
            yield AccessDecision(decision.allowed, text)
        elif document.key.type in _READ_BY_US:
            text = f"`{reference.path}` of {document.key} names `{reference.named}` on the control plane's machine"
            yield AccessDecision(allowed=False, because=f"{text}, as only administrators may")


def _write_of(key: Key) -> AccessRequest:
    return of_resource(Verb.WRITE, key.type, key.mesh, key.name)
