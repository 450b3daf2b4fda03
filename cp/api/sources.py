"""What a document names from which secrets are read: whoever writes that needs more than the right to the document.

What is behind such a name is sent to proxies, or signs for them, so whoever may name it has got it.
"""

from __future__ import annotations

from collections.abc import Iterator

from cp.access.rights import AccessDecision, AccessRequest, Verb, of_resource
from cp.api.caller import ApiCaller
from cp.model.document import Document
from cp.resources.kinds import Kinds
from cp.resources.redaction import SourceReference, source_references


def decisions_on_sources(
    caller: ApiCaller, kinds: Kinds, document: Document, before: Document | None
) -> Iterator[AccessDecision]:
    """Whether a caller may name what a document names and the one before it did not."""
    if caller.proxy is not None or document.key.type not in kinds:
        return
    kind = kinds[document.key.type]
    known = frozenset() if before is None else frozenset(source_references(kind, before.data))
    for reference in source_references(kind, document.data):
        if reference.is_secret and reference not in known:
            yield _on_secret(caller, document, reference)


def _on_secret(caller: ApiCaller, document: Document, reference: SourceReference) -> AccessDecision:
    mesh = of_resource(Verb.WRITE, document.key.type, document.key.mesh, document.key.name).mesh
    decision = caller.decision(AccessRequest(Verb.WRITE, "Secret", mesh))
    text = f"{decision.because}, and `{reference.path}` of {document.key} names the Secret `{reference.named}`"
    return AccessDecision(decision.allowed, text)
