"""Whatever stands in a document: it is understood or refused, and nothing is raised."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cp.model.document import Document
from cp.model.source import key_of, read_documents
from cp.policies import Policy, discover, kinds
from cp.resources.kinds import Kind, Kinds
from cp.resources.parse import Read, parse
from cp.resources.schema import decode, wire_names

FEW = settings(max_examples=25, deadline=None)


@cache
def every_kind() -> Kinds:
    return kinds(discover())


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["Mesh", "MeshService", "MeshHTTPRoute", "MeshGateway", "Dataplane", "Exact", "Prefix", "File"])
    | st.sampled_from(["0s", "5s", "-1s", "10", "50%", "/", "*", "{", "(", "a", "kuma.io/service", "spiffe://a/b"])
)


def words(kind: Kind) -> list[str]:
    """The names of all fields of a kind, so that what is made up gets deep into it."""
    schema: Any = kind.schema
    return sorted({word for path in wire_names(schema) for word in re.findall(r"\w+", path)})


@cache
def data(name: str) -> st.SearchStrategy[Any]:
    names = st.sampled_from(words(every_kind()[name])) | st.text(max_size=4)
    return st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=5),
        max_leaves=25,
    )


def read(said: dict[str, Any]) -> Read:
    return parse(Document(key_of(said), said), every_kind())


def check(found: Read) -> None:
    assert (found.resource is None) == bool(found.violations)
    for finding in found.findings():
        assert finding.message
        assert str(finding)
    if found.resource is not None:
        decode(found.resource.kind.schema, dict(found.resource.data))


@pytest.mark.parametrize("kind", every_kind().values(), ids=lambda kind: kind.name)
@given(body=st.data())
@FEW
def test_any_spec_is_understood_or_refused(kind: Kind, body: st.DataObject) -> None:
    fields = body.draw(data(kind.name))
    said: dict[str, Any] = {"type": kind.name, "mesh": "default", "name": "x"}
    if not kind.is_inlined:
        check(read(said | {"spec": fields}))
    elif isinstance(fields, dict):
        check(read(fields | said))


@pytest.mark.parametrize("policy", discover(), ids=lambda policy: policy.kind.name)
@given(filled=st.data())
@FEW
def test_any_conf_is_understood_or_refused(policy: Policy[Any], filled: st.DataObject) -> None:
    """The same, with the way to a conf already made."""
    name = policy.kind.name
    level = filled.draw(st.sampled_from(["to", "from", "rules"]))
    item = {"default": filled.draw(data(name))}
    item |= {"matches": filled.draw(data(name))} if level == "rules" else {"targetRef": {"kind": "Mesh"}}

    check(read({"type": name, "name": "x", "spec": {level: [item], "default": item["default"]}}))


@given(envelope=st.dictionaries(st.sampled_from(["type", "mesh", "name", "labels", "spec", "status"]), SCALARS))
def test_any_envelope_is_understood_or_refused(envelope: dict[str, Any]) -> None:
    check(read({"type": "MeshTimeout"} | envelope))


@given(text=st.text(max_size=80) | st.binary(max_size=40).map(lambda raw: raw.decode("latin-1")))
def test_any_text_is_read(text: str) -> None:
    for document in read_documents(text).documents:
        check(parse(document, every_kind()))


@given(
    metadata=st.recursive(
        SCALARS, lambda inner: st.dictionaries(st.sampled_from(["name", "namespace", "labels"]), inner)
    ),
    kind=SCALARS,
)
def test_any_metadata_of_kubernetes_is_read(metadata: Any, kind: Any) -> None:
    try:
        text = json.dumps({"apiVersion": "kuma.io/v1alpha1", "kind": kind, "metadata": metadata})
    except ValueError:
        return
    for document in read_documents(text).documents:
        check(parse(document, every_kind()))
