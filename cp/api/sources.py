"""What a document names from which secrets are read: whoever writes that needs more than the right to the document.

What is behind such a name is sent to proxies, or signs for them, so whoever may name it has got it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cp.access.rights import AccessDecision, AccessRequest, Verb, of_resource
from cp.api.caller import ApiCaller
from cp.model.document import Document
from cp.resources.kinds import Kinds
from cp.resources.redaction import SourceReference, source_references

_READ_BY_US: Final = frozenset({"Mesh", "MeshIdentity"})
"""The kinds whose files and variables the control plane reads. Those of others Envoy reads, on its own machine."""


def decisions_on_sources(
    caller: ApiCaller, kinds: Kinds, document: Document, before: Document | None
) -> Iterator[AccessDecision]:
    """Whether a caller may name what a document names and the one before it did not."""
    if caller.proxy is not None or document.key.type not in kinds:
        return
    kind = kinds[document.key.type]
    known = frozenset() if before is None else frozenset(source_references(kind, before.data))
    for reference in source_references(kind, document.data):
        if reference in known:
            continue
        if reference.is_secret:
            yield _on_secret(caller, document, reference)
        elif document.key.type in _READ_BY_US:
            yield _on_machine(caller, document, reference)


def _on_secret(caller: ApiCaller, document: Document, reference: SourceReference) -> AccessDecision:
    mesh = of_resource(Verb.WRITE, document.key.type, document.key.mesh, document.key.name).mesh
    decision = caller.decision(AccessRequest(Verb.WRITE, "Secret", mesh))
    text = f"{decision.because}, and `{reference.path}` of {document.key} names the Secret `{reference.named}`"
    return AccessDecision(decision.allowed, text)


def _on_machine(caller: ApiCaller, document: Document, reference: SourceReference) -> AccessDecision:
    """The control plane reads with its own rights what is another mesh's, or nobody's in any mesh."""
    if caller.is_administrator:
        return AccessDecision(allowed=True, because=f"{caller.user} is an administrator")
    text = f"`{reference.path}` of {document.key} names `{reference.named}` on the control plane's machine"
    return AccessDecision(allowed=False, because=f"{text}, as only administrators may")
