"""Whatever stands in a document: it is understood or refused, and nothing is raised."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cp.model.document import Document
from cp.model.source import key_of, read_documents
from cp.resources.kinds import Kind
from cp.resources.parse import ParsedDocument, parse
from cp.resources.schema import decode
from tests.resources.made_up import Maker
from tests.resources.reading import every_kind

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6)
ANYTHING = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.text(max_size=3), SCALARS, max_size=2)


def read(said: dict[str, Any]) -> ParsedDocument:
    return parse(Document(key_of(said), said), every_kind())


def check(found: ParsedDocument) -> None:
    assert (found.resource is None) == bool(found.violations)
    for finding in found.findings():
        assert finding.message
        assert str(finding)
    if found.resource is not None:
        decode(found.resource.kind.schema, dict(found.resource.data))


@pytest.mark.parametrize("kind", every_kind().values(), ids=lambda kind: kind.name)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_a_made_up_document_is_understood_or_refused(kind: Kind, seed: int) -> None:
    check(read(Maker(seed).document(kind)))


@pytest.mark.parametrize("kind", every_kind().values(), ids=lambda kind: kind.name)
@pytest.mark.parametrize("body", [None, [], {}, "text", 1, [[]], {"": None}], ids=repr)
def test_a_body_of_another_form_is_understood_or_refused(kind: Kind, body: Any) -> None:
    envelope = {"type": kind.name, "mesh": "default", "name": "x"}

    check(read(envelope | {"spec": body}))
    check(read((body if isinstance(body, dict) else {}) | envelope))


@given(st.dictionaries(st.sampled_from(["type", "mesh", "name", "labels", "spec", "status", "x"]), ANYTHING))
@settings(deadline=None)
def test_any_envelope_is_understood_or_refused(envelope: dict[str, Any]) -> None:
    check(read({"type": "MeshTimeout"} | envelope))


@given(st.text(max_size=60))
@example("type: Mesh\nname: [x]\n")
@example("apiVersion: a\nkind: Mesh\nmetadata: {name: 1}\n")
@settings(deadline=None)
def test_any_text_is_read(text: str) -> None:
    for document in read_documents(text).documents:
        check(parse(document, every_kind()))


@given(ANYTHING, st.dictionaries(st.sampled_from(["name", "namespace", "labels"]), ANYTHING) | SCALARS)
@settings(deadline=None)
def test_any_metadata_of_kubernetes_is_read(kind: Any, metadata: Any) -> None:
    text = json.dumps({"apiVersion": "kuma.io/v1alpha1", "kind": kind, "metadata": metadata})

    for document in read_documents(text).documents:
        check(parse(document, every_kind()))
