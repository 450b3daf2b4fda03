"""Templates of SPIFFE IDs are read or refused, and no ID that cannot be one comes from them."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cp.resources.mesh_identity import PATH_FIELDS
from cp.resources.spiffe import (
    MissingLabel,
    Template,
    TemplateFault,
    TemplateField,
    TemplateLabel,
    fault_of_domain,
    fault_of_path,
    is_spiffe_id,
    read_template,
    render,
)
from tests.resources.reading import accepted, policy, read, refused

PIECES: Final = st.sampled_from(
    [
        *("{{", "}}", "{", "}", " ", "/", ".", "..", "|", '"', "`", "label", "a", "A", "é", "\x00", "{{-", "-}}"),
        *(".Workload", '{{ label "team" }}', "{{label `x`}}", "{{ .Workload }}", "{{ .TrustDomain }}"),
    ]
)
TEXTS: Final = st.lists(PIECES | st.text(max_size=3), max_size=8).map("".join)
LABELS: Final = {"team": "a", "x": "B-1", "kuma.io/workload": "web", "é": "..", "empty": ""}


def rendered(text: str) -> str | None:
    """The path that a template comes to; None if it cannot be read, or asks for a label that is not there."""
    try:
        return render(read_template(text, PATH_FIELDS), {".TrustDomain": "mesh.local"}, LABELS)
    except (TemplateFault, MissingLabel):
        return None


@given(TEXTS)
@example("{{")
@example("{{}}")
@example('{{ label "" }}')
@example("{{ {{ .Workload }}")
def test_any_text_is_a_template_or_has_a_fault(text: str) -> None:
    path = rendered(text)

    assert path is None or "{{" not in path
    if path is not None and not fault_of_path(path):
        assert is_spiffe_id(f"spiffe://mesh.local{path}") is (len(path) <= 2048 - len("spiffe://mesh.local"))


@given(TEXTS)
def test_what_an_accepted_identity_leads_to_is_an_id(text: str) -> None:
    """Unless a label has a value that cannot stand in one, which is found out when the Dataplane is known."""
    found = read_identity(path=text)
    if found is None:
        return
    template: Template = found.spec.path_template()
    labels = {part.name: "v" for part in template if isinstance(part, TemplateLabel)}

    assert is_spiffe_id("spiffe://mesh.local" + render(template, {".TrustDomain": "mesh.local"}, labels))


def read_identity(**spiffe_id: str) -> Any:
    return read(policy("MeshIdentity", f"{{spiffeID: {spiffe_id!r}}}")).resource if _is_yaml(spiffe_id) else None


def _is_yaml(texts: dict[str, str]) -> bool:
    """Whether a text can be written in quotes that Python and YAML share."""
    return all(text.isprintable() and "'" not in text and "\\" not in text for text in texts.values())


def test_the_parts_of_a_template() -> None:
    assert read_template('a.{{ .Mesh }}{{label "x/y"}}', {".Mesh": ""}) == (
        "a.",
        TemplateField(".Mesh"),
        TemplateLabel("x/y"),
    )
    assert read_template("{{ .Workload }}", PATH_FIELDS) == (TemplateLabel("kuma.io/workload"),)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("{{ .Mesh }}", ["`.Mesh` means nothing here"]),
        ("{{ .Workload | printf }}{{ .X }}", ["`.Workload | printf` means nothing here", "`.X` means nothing here"]),
        ("a{{ .Workload", ["`{{ .Workload` is never closed"]),
        ("{{ printf .Workload }}", ["`printf .Workload` means nothing here"]),
        ('{{ label "a" "b" }}', ['`label "a" "b"` means nothing here']),
        ("{{- .Workload -}}", ["`- .Workload -` means nothing here"]),
        ("a" * 2049, ["is 2049 characters long, and 2048 are the most"]),
    ],
)
def test_every_fault_of_a_template_is_told(text: str, faults: list[str]) -> None:
    with pytest.raises(TemplateFault) as error:
        read_template(text, PATH_FIELDS)

    assert [fault.message for fault in error.value.faults] == faults


def test_a_misspelt_field_has_a_hint() -> None:
    with pytest.raises(TemplateFault) as error:
        read_template("{{ .workload }}", PATH_FIELDS)

    assert error.value.faults[0].hint == "did you mean `.Workload`?"


@pytest.mark.parametrize(
    ("domain", "is_one"),
    [
        ("default", True),
        ("a_b-c.d0", True),
        ("", False),
        ("Default", False),
        ("a:80", False),
        ("a/b", False),
        ("a\n", False),
        ("a" * 255, True),
        ("a" * 256, False),
    ],
)
def test_trust_domains(domain: str, is_one: bool) -> None:
    assert (fault_of_domain(domain) == "") is is_one


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("/web", True),
        ("/ns/a/sa/B_c.d-e", True),
        ("/...", True),
        ("", False),
        ("web", False),
        ("/", False),
        ("/a/", False),
        ("/a//b", False),
        ("/./a", False),
        ("/a/..", False),
        ("/%41", False),
        ("/é", False),
        ("/a\n", False),
        ("/" + "a" * 2048, False),
    ],
)
def test_paths_of_ids(path: str, is_one: bool) -> None:
    assert (fault_of_path(path) == "") is is_one


def test_a_trust_domain_comes_from_the_mesh_the_zone_and_the_identity_s_labels() -> None:
    template = accepted(policy("MeshIdentity", "{}")).spec.domain_template()

    assert render(template, {".Mesh": "m", ".Zone": "z"}, {}) == "m.z.mesh.local"


def test_a_label_of_the_identity_itself_is_looked_at() -> None:
    """Those of Dataplanes are known later."""
    spec = "{spiffeID: {trustDomain: '{{ label \"team\" }}'}}"

    assert refused(policy("MeshIdentity", spec, labels="{team: A}")) == ["spec.spiffeID.trustDomain"]
    assert refused(policy("MeshIdentity", spec, labels="{team: a}")) == []


@pytest.mark.parametrize(
    ("selector", "labels"),
    [
        ("", None),
        ("selector: {}", None),
        ("selector: {dataplane: {}}", {}),
        ("selector: {dataplane: {matchLabels: {}}}", {}),
        ("selector: {dataplane: {matchLabels: {a: b}}}", {"a": "b"}),
    ],
)
def test_an_empty_selector_is_for_all_and_none_for_nobody(selector: str, labels: dict[str, str] | None) -> None:
    assert accepted(policy("MeshIdentity", f"{{{selector}}}")).spec.matched_labels == labels
