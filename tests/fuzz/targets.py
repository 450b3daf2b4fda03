"""What is tried with any bytes. A target raises only what is a fault of ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Final, TypeAlias

from google.protobuf.message import DecodeError

from cp.ads.session.name_sets import NameSets
from cp.ads.session.wire import decoded, decoded_delta, encoded_names, node_of, node_of_delta
from cp.api.body import BodyOrigin, _reading
from cp.api.errors import ApiError
from cp.insight.explain.query import AmbiguousCall, parse_call
from cp.insight.lint import lint
from cp.model.document import Document
from cp.model.duration import Duration
from cp.model.paths import step, steps
from cp.model.source import key_of, read_documents
from cp.model.yaml import NotYaml, parse_all
from cp.policies import Policies, discover, kinds
from cp.policies.mesh_metric.patterns import NotAPattern, patterns
from cp.resources.hostname_generator import Template, render
from cp.resources.kinds import Kinds
from cp.resources.parse import parse
from cp.resources.world import World
from cp.serving.delivery.nacks import without_dump
from generators.envoy.log_formats import envoy_format

Target: TypeAlias = Callable[[bytes], object]

_OURS: Final = "fault of koguma"


@cache
def _policies() -> Policies:
    return discover()


@cache
def _kinds() -> Kinds:
    return kinds(_policies())


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _yaml(data: bytes) -> None:
    """A file of documents, each of which is understood or refused."""
    for document in read_documents(_text(data), "file.yaml").documents:
        _judged(document)


def _judged(document: Document) -> None:
    for finding in parse(document, _kinds()).findings():
        assert _OURS not in str(finding), finding


def _content(data: bytes) -> tuple[str, Any]:
    """A kind, which the first byte chooses, and what stands in its document."""
    names = sorted(_kinds())
    with suppress(NotYaml):
        for parsed in parse_all(_text(data[1:])):
            return names[data[0] % len(names)], parsed.data
    return names[0], None


def _document(data: bytes) -> Document | None:
    kind, content = _content(data) if data else ("Mesh", None)
    if not isinstance(content, Mapping):
        return None
    body = dict(content) if _kinds()[kind].is_inlined else {"spec": content}
    whole = {**body, "type": kind, "mesh": "default", "name": "fuzzed"}
    return Document(key_of(whole), whole)


def _kind(data: bytes) -> None:
    """The body of any kind."""
    if (document := _document(data)) is not None:
        _judged(document)


_MESH: Final = """
{type: Mesh, name: default}
---
type: Dataplane
mesh: default
name: web
networking:
  address: 10.0.0.1
  inbound: [{port: 8080, tags: {kuma.io/service: web, kuma.io/protocol: http}}]
  outbound:
    - {port: 10080, backendRef: {kind: MeshService, name: backend, port: 80}}
    - {port: 20080, tags: {kuma.io/service: backend}}
  transparentProxying: {redirectPortOutbound: 15001}
---
type: Dataplane
mesh: default
name: backend
networking:
  address: 10.0.0.2
  inbound: [{port: 8080, tags: {kuma.io/service: backend, kuma.io/protocol: http, version: v1}}]
---
type: MeshService
mesh: default
name: backend
spec:
  selector: {dataplaneTags: {kuma.io/service: backend}}
  ports: [{port: 80, targetPort: 8080, appProtocol: http}]
"""


@cache
def _mesh() -> tuple[Document, ...]:
    return read_documents(_MESH).documents


def _rules(data: bytes) -> None:
    """A document of any kind in a small mesh: matched, merged, made into rules and configurations, and judged."""
    if (document := _document(data)) is not None:
        world = World.of([*_mesh(), document], _kinds())
        for finding in lint(_policies(), world):
            assert finding.code != "failed", finding
            assert _OURS not in str(finding), finding


def _patch(data: bytes) -> None:
    """The modifications of a MeshProxyPatch."""
    kind = sorted(_kinds()).index("MeshProxyPatch")
    lines = _text(data).replace("\n", "\n    ")
    _rules(bytes([kind]) + f"default:\n  appendModifications:\n    {lines}\n".encode())


def _log_format(data: bytes) -> None:
    assert envoy_format(_text(data), {}) is not None


def _template(data: bytes) -> None:
    with suppress(Template):
        render(_text(data), {".Name": "name"})


def _pattern(data: bytes) -> None:
    with suppress(NotAPattern):
        patterns(_text(data))


def _call(data: bytes) -> None:
    with suppress(AmbiguousCall):
        parse_call(_text(data))


def _duration(data: bytes) -> None:
    with suppress(ValueError):
        found = Duration.parse(_text(data))
        assert Duration.parse(str(found)) == found


def _path(data: bytes) -> None:
    text = _text(data)
    list(steps(text))
    assert list(steps(step(step("", text), 3))) == [text, 3]


def _body(data: bytes) -> None:
    """The body of a request, as JSON."""
    with suppress(ApiError):
        for document in _reading(_text(data), "application/json", BodyOrigin("file.json")).documents:
            json.dumps(document.data, allow_nan=False)
            _judged(document)


def _request(data: bytes) -> None:
    """What a client of the ADS port sends."""
    for decode in (decoded, decoded_delta):
        with suppress(DecodeError, UnicodeDecodeError):
            decode(data, NameSets(encoded_names))
    for node in (node_of, node_of_delta):
        with suppress(DecodeError):
            node(data)


def _refusal(data: bytes) -> None:
    """What Envoy says about a resource."""
    without_dump(_text(data))


TARGETS: Final[Mapping[str, Target]] = {
    "yaml": _yaml,
    "kind": _kind,
    "rules": _rules,
    "patch": _patch,
    "log-format": _log_format,
    "template": _template,
    "pattern": _pattern,
    "call": _call,
    "duration": _duration,
    "path": _path,
    "body": _body,
    "request": _request,
    "refusal": _refusal,
}
