"""The recipe of CONTRIBUTING, walked: a policy is one module beside the others, and nobody else notices."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any, get_args, get_type_hints

import pytest

import cp.policies
from cp.insight.lint import lint
from cp.model.names import Key
from cp.model.source import read_documents
from cp.policies import discover, kinds
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.packing import ROUTES

MODULE = dedent(
    '''
    """MeshGreeting: what every answer of a service says.

        text      Route.response_headers_to_add, `x-greeting`
    """

    from cp.model.violation import Violation
    from cp.policies import HTTP_PROTOCOLS, Policy, in_spec
    from cp.resources.kinds import Kind, PolicyShape
    from cp.resources.schema import Schema
    from cp.resources.spec import PolicySpec, SpecItem
    from cp.resources.targets import HTTP_ROUTE, SERVICES, AllowedTargets
    from generators.envoy.edit import add_header


    class Conf(Schema, frozen=True):
        text: str | None = None


    class Spec(PolicySpec, frozen=True):
        to: list[SpecItem[Conf]] | None = None


    TARGETS = AllowedTargets(to=("Mesh", *SERVICES, HTTP_ROUTE), http_route=("text",))


    @in_spec
    def validate(spec, meta):
        yield from TARGETS.violations(spec, meta)
        for path, _, conf in spec.confs("to"):
            if conf is None or not conf.text:
                yield Violation(f"{path}.text", "must be set", "say something kind")


    class MeshGreeting(Policy[Conf]):
        kind = Kind("MeshGreeting", "mg", "meshgreetings", Spec, validate, policy=PolicyShape(to=True))
        order = 4242
        conf = Conf
        targets = TARGETS
        section_protocols = {"text": HTTP_PROTOCOLS}
        is_hidden_by_routes = True

        def route(self, conf, draft):
            add_header(draft.message.response_headers_to_add, "x-greeting", conf.text)


    POLICY = MeshGreeting()
    '''
)

MESH = dedent(
    """
    type: Mesh
    name: default
    ---
    type: Dataplane
    mesh: default
    name: web
    networking:
      address: 127.0.0.1
      inbound:
      - {port: 80, tags: {kuma.io/service: web}}
      outbound:
      - {port: 10000, backendRef: {kind: MeshService, name: backend, port: 80}}
    ---
    type: MeshService
    mesh: default
    name: backend
    spec:
      selector: {dataplaneTags: {kuma.io/service: backend}}
      ports: [{port: 80, appProtocol: http}]
    ---
    type: MeshHTTPRoute
    mesh: default
    name: slow
    spec:
      to:
      - targetRef: {kind: MeshService, name: backend}
        rules:
        - matches: [{path: {type: PathPrefix, value: /slow}}]
          default: {}
    ---
    type: MeshGreeting
    mesh: default
    name: of-service
    spec:
      to:
      - {targetRef: {kind: MeshService, name: backend}, default: {text: hello}}
      - {targetRef: {kind: MeshHTTPRoute, name: slow}, default: {text: patience}}
    ---
    type: MeshGreeting
    mesh: default
    name: silent
    spec:
      to:
      - {targetRef: {kind: Mesh}, default: {}}
    """
)


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The module stands in the package for as long as the test lasts."""
    (tmp_path / "mesh_greeting.py").write_text(MODULE)
    monkeypatch.setattr(cp.policies, "__path__", [*cp.policies.__path__, str(tmp_path)])
    yield
    sys.modules.pop("cp.policies.mesh_greeting", None)


@pytest.mark.usefixtures("recipe")
def test_one_module_is_all_it_takes() -> None:
    policies = discover()
    world = World.of(read_documents(MESH, "mesh.yaml").documents, kinds(policies))
    (web,) = world.table("Dataplane", "default")

    table = Compiler(policies).snapshot(world, web).get(ROUTES, "kri_msvc_default___backend_80")

    assert table is not None
    assert (table.body.count(b"hello"), table.body.count(b"patience")) == (1, 1), "the service's, and the route's own"
    assert [(f.resource and f.resource.name, f.path, f.message) for f in world.findings if f.severity == "error"] == [
        ("silent", "spec.to[0].default.text", "must be set")
    ]


@pytest.mark.usefixtures("recipe")
@pytest.mark.parametrize(("protocol", "codes"), [("http", ["hidden-by-route"]), ("tcp", ["no-meaning"])])
def test_lint_reads_the_facts_of_a_policy_that_it_does_not_know(protocol: str, codes: list[str]) -> None:
    """The one route of the service has a text of its own, and a connection has none at all."""
    policies = discover()
    text = MESH.replace("appProtocol: http", f"appProtocol: {protocol}").replace("value: /slow", "value: /")
    world = World.of(read_documents(text, "mesh.yaml").documents, kinds(policies))

    of_service = Key("MeshGreeting", "default", "of-service")
    found_codes = [finding.code for finding in lint(policies, world) if finding.resource == of_service]
    assert [code for code in found_codes if code in {"hidden-by-route", "no-meaning"}] == codes


def test_facts_are_about_fields_that_there_are() -> None:
    for policy in discover():
        limits = {limit.field for limit in policy.time_limits}
        paths = {*policy.section_protocols, *policy.section_settings, *limits, *filter(None, [policy.change_list])}
        unknown = [path for path in paths if not _has_field(policy.conf, path.split("."))]
        assert not unknown, policy.kind.name


def _has_field(schema: Any, names: list[str]) -> bool:
    """Whether a schema, or a schema that its annotation names, has a field at a path."""
    kinds_ = [schema, *get_args(schema)]
    structs = [kind for kind in kinds_ if hasattr(kind, "__struct_encode_fields__")]
    for struct in structs:
        fields = dict(zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True))
        if names[0] in fields:
            inner = get_type_hints(struct)[fields[names[0]]]
            return not names[1:] or _has_field(inner, names[1:])
    return False


@pytest.mark.usefixtures("recipe")
def test_two_policies_of_one_order_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "mesh_greeting.py").write_text(MODULE.replace("order = 4242", "order = 1000"))

    with pytest.raises(RuntimeError, match="share the order 1000"):
        discover()
