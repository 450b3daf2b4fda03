"""What a document comes to: a resource, or all that is wrong with it and nothing that only follows from that."""

from __future__ import annotations

import copy
import json

import pytest

from cp.model.source import read_documents
from cp.model.yaml_text import yaml_text
from cp.resources.parse import parse
from tests.resources.reading import accepted, every_kind, policy, read, refused, warned

TIMEOUT = "{to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 5s}}]}"


def test_all_that_is_wrong_is_told_at_once() -> None:
    spec = "{to: [{targetRef: {kind: Meh}, default: {connectionTimeout: 0s, idleTimeout: 1, http: {}}}], too: 1}"

    assert sorted(refused(policy("MeshTimeout", spec))) == [
        "spec.to[0].default.connectionTimeout",
        "spec.to[0].default.http",
        "spec.to[0].default.idleTimeout",
        "spec.to[0].targetRef.kind",
        "spec.too",
    ]


def test_what_was_not_understood_is_not_called_missing() -> None:
    spec = "{to: [{targetRef: {kind: Mesh}, default: {connectionTimout: 5s}}]}"

    assert refused(policy("MeshTimeout", spec)) == ["spec.to[0].default.connectionTimout"]


def test_a_faulty_item_does_not_shift_those_after_it() -> None:
    spec = "{to: [1, {targetRef: {kind: Mesh}, default: {connectionTimeout: 0s}}]}"

    assert refused(policy("MeshTimeout", spec)) == ["spec.to[0]", "spec.to[1].default.connectionTimeout"]


def test_what_is_inside_of_something_unwanted_does_not_matter() -> None:
    spec = (
        "{targetRef: {kind: MeshSubset}, rules: [{default: {tlsVersion: {min: TLS99}, tlsCiphers: [none], mode: Lax}}]}"
    )

    assert sorted(refused(policy("MeshTLS", spec))) == [
        "spec.rules[0].default.mode",
        "spec.rules[0].default.tlsCiphers",
        "spec.rules[0].default.tlsVersion",
    ]


def test_what_is_incomplete_is_asked_for_once_all_else_makes_sense() -> None:
    rule = "{to: [{targetRef: {kind: MeshService, name: a}, rules: [{default: {filters: [FILTER]}}]}]}"
    faulty = rule.replace("FILTER", "{type: RequestMirror}")
    sound = rule.replace("FILTER", "{type: RequestHeaderModifier, requestHeaderModifier: {remove: [x]}}")

    assert refused(policy("MeshHTTPRoute", faulty)) == ["spec.to[0].rules[0].default.filters[0].requestMirror"]
    assert refused(policy("MeshHTTPRoute", sound)) == ["spec.to[0].rules[0].matches"]


@pytest.mark.parametrize("conf", ["{connectionTimeout: null}", "{http: {requestTimeout: null}}", "{http: null}"])
def test_a_null_says_something(conf: str) -> None:
    spec = f"{{to: [{{targetRef: {{kind: Mesh}}, default: {conf}}}]}}"

    resource = accepted(policy("MeshTimeout", spec))

    assert "None" in str(resource.data)


def test_a_null_in_a_list_is_as_if_it_were_not_there() -> None:
    backend = "{targetRef: {kind: Mesh}, default: {backends: [{type: File, file: null}]}}"

    assert refused(policy("MeshAccessLog", f"{{to: [{backend}]}}")) == ["spec.to[0].default.backends[0].file"]


def test_a_fault_is_found_at_its_line_whatever_programs_call_it() -> None:
    text = policy("MeshRetry", "\n  to:\n  - targetRef: {kind: Mesh}\n    default:\n      http:\n        retryOn: [a]")

    (finding,) = read(text).findings()

    assert (finding.line, finding.path) == (10, "spec.to[0].default.http.retryOn[0]")
    assert finding.field == "spec.to[0].default.conf.http.retryOn[0]"


def test_the_defaults_of_a_schema_are_filled_in_and_the_document_stays_as_it_is() -> None:
    backends = "[{kind: MeshService, name: b}]"
    rule = f"{{default: {{backendRefs: {backends}}}}}"
    spec = f"{{to: [{{targetRef: {{kind: MeshService, name: a}}, rules: [{rule}]}}]}}"
    (document,) = read_documents(policy("MeshTCPRoute", spec)).documents
    before = copy.deepcopy(document.data)

    resource = parse(document, every_kind()).resource

    assert resource is not None
    assert resource.data["to"][0]["rules"][0]["default"]["backendRefs"][0]["weight"] == 1
    assert document.data == before


def test_both_formats_say_the_same() -> None:
    universal = accepted(
        policy("MeshTimeout", TIMEOUT, labels="{kuma.io/display-name: x, k8s.kuma.io/namespace: shop}")
    )
    text = "apiVersion: kuma.io/v1alpha1\nkind: MeshTimeout\nmetadata: {name: x, namespace: shop}\nspec: " + TIMEOUT

    kubernetes = accepted(text)

    assert kubernetes.data == universal.data
    assert (kubernetes.display_name, kubernetes.namespace, kubernetes.name) == ("x", "shop", "x.shop")


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("a", True), ("a.b-1", True), ("A", False), ("a_b", False), ("a..b", False), ("-a", False), ("a" * 254, False)],
)
def test_names(name: str, is_one: bool) -> None:
    text = f"type: MeshTimeout\nmesh: default\nname: {name}\nspec: {TIMEOUT}\n"

    assert (refused(text) == []) is is_one


def test_a_global_resource_belongs_to_no_mesh() -> None:
    assert refused("type: Mesh\nmesh: default\nname: a\n") == ["mesh"]


def test_an_unknown_kind_is_told_with_the_one_that_was_meant() -> None:
    (violation,) = read("type: MeshTimout\nname: a\n").violations

    assert violation.hint == "did you mean `MeshTimeout`?"


def test_yaml_text_keeps_letters_of_any_language() -> None:
    assert yaml_text({"description": "Bär 熊"}) == "description: Bär 熊\n"


def test_labels_are_texts() -> None:
    assert refused(policy("MeshTimeout", TIMEOUT, labels="{version: 1}")) == ['labels["version"]']
    assert refused(policy("MeshTimeout", TIMEOUT, labels="[a]")) == ["labels"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("version", "a b"),
        ("version", "/"),
        ("version", "-1s"),
        ("version", "x" * 64),
        ("version", "é"),
        ("a b", "x"),
        ("", "x"),
        (".[]", "x"),
        ("Example.com/version", "x"),
        ("a/b/c", "x"),
        ("/b", "x"),
        ("kuma.io/origin", "east"),
        ("kuma.io/mesh", "other"),
    ],
)
def test_labels_are_those_that_kubernetes_takes(name: str, value: str) -> None:
    labels = json.dumps({name: value})

    assert refused(policy("MeshTimeout", TIMEOUT, labels=labels)) == [f'labels["{name}"]']


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("version", ""),
        ("version", "1.2_b-C"),
        ("Version", "x" * 63),
        ("example.com/version", "1"),
        ("kuma.io/origin", "zone"),
        ("kuma.io/mesh", "default"),
        ("kuma.io/zone", "east"),
        ("kuma.io/display-name", "x" * 200),
    ],
)
def test_labels_that_kubernetes_takes_are_valid(name: str, value: str) -> None:
    assert not refused(policy("MeshTimeout", TIMEOUT, labels=json.dumps({name: value})))


def test_a_mesh_tls_has_a_spec() -> None:
    assert refused("type: MeshTLS\nmesh: default\nname: a\n") == ["spec"]
    assert not refused("type: MeshTLS\nmesh: default\nname: a\nspec: {}\n")


@pytest.mark.parametrize("share", ["1.5", "50.0", "101", "-1", '"101"'])
def test_a_share_is_a_whole_number_or_a_text(share: str) -> None:
    spec = f"{{targetRef: {{kind: Mesh}}, default: {{backends: [], sampling: {{overall: {share}}}}}}}"

    assert refused(policy("MeshTrace", spec)) == ["spec.default.sampling.overall"]


def test_a_fraction_is_told_how_to_be_written() -> None:
    spec = "{targetRef: {kind: Mesh}, default: {backends: [], sampling: {overall: 1.5}}}"
    (violation,) = read(policy("MeshTrace", spec)).violations

    assert violation.hint == 'write `"1.5"`'
    assert not refused(policy("MeshTrace", spec.replace("1.5", '"1.5"')))


def test_what_is_secret_is_never_printed() -> None:
    mesh = "type: Mesh\nname: a\nmtls: {enabledBackend: b, backends: [{name: b, type: provided, conf: CONF}]}\n"
    texts = [
        "type: Secret\nmesh: default\nname: a\ndata: aGlkZGVu\n",
        "type: Secret\nmesh: default\nname: a\ndata: hidden!\n",
        "type: Secret\nmesh: default\nname: a\ndata: [hidden]\n",
        mesh.replace("CONF", "{key: {inlineString: hidden}, cert: {inline: aGlkZGVu}}"),
        mesh.replace("CONF", "{key: hidden, cert: [hidden]}"),
    ]

    for text in texts:
        found = read(text)
        printed = [str(one) for one in found.findings()] + [repr(found.resource and found.resource.spec)]
        assert not [line for line in printed if "hidden" in line or "aGlkZGVu" in line]


def test_what_is_secret_can_be_asked_for() -> None:
    assert accepted("type: Secret\nmesh: default\nname: a\ndata: aGlkZGVu\n").spec.value() == b"hidden"


def test_documents_of_either_release_are_accepted() -> None:
    old = "{targetRef: {kind: MeshService, name: web}, from: [{targetRef: {kind: Mesh}, default: {idleTimeout: 1h}}]}"
    new = "{targetRef: {kind: Dataplane, labels: {app: web}}, rules: [{default: {idleTimeout: 1h}}]}"

    assert warned(policy("MeshTimeout", old)) == ["spec.targetRef.kind", "spec.from"]
    assert warned(policy("MeshTimeout", new)) == []
