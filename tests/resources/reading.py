"""What tests of kinds share: reading documents with every kind there is."""

from __future__ import annotations

from functools import cache

from cp.model.source import read_documents
from cp.policies import discover, kinds
from cp.resources.kinds import Kinds
from cp.resources.parse import ParsedDocument, parse_written
from cp.resources.resource import Resource


@cache
def every_kind() -> Kinds:
    return kinds(discover())


def read(text: str) -> ParsedDocument:
    """The one document of a text, as if it were written."""
    (document,) = read_documents(text, "file.yaml").documents
    return parse_written(document, every_kind())


def accepted(text: str) -> Resource:
    found = read(text)
    assert found.resource is not None, [str(one) for one in found.findings()]
    return found.resource


def refused(text: str) -> list[str]:
    """The paths for which a document is refused, as programs know them."""
    return [violation.path for violation in read(text).violations]


def warned(text: str) -> list[str]:
    return [violation.path for violation in read(text).warnings]


def policy(kind: str, spec: str, *, labels: str = "{}") -> str:
    """A policy with a spec in the flow style of YAML."""
    return f"type: {kind}\nmesh: default\nname: x\nlabels: {labels}\nspec: {spec}\n"
