"""The Dataplane that a proxy brings along, as the text that it sends when it connects."""

from __future__ import annotations

from cp.model.names import Key
from cp.model.source import read_documents
from cp.resources.kinds import Kinds
from cp.resources.parse import parse_written
from cp.resources.resource import Resource


def brought_dataplane(text: str, key: Key, kinds: Kinds) -> Resource | None:
    """The valid Dataplane in a text, if it is nothing else and has this name."""
    documents = read_documents(text).documents
    if [document.key for document in documents] != [key]:
        return None
    return parse_written(documents[0], kinds).resource
