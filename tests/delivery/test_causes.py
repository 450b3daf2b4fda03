"""Which policies stand behind a resource of a proxy."""

from __future__ import annotations

from pathlib import Path

from cp.model.names import Key
from cp.model.source import read_documents
from cp.policies import kinds
from cp.resources.world import World
from cp.serving.delivery import CauseFinder, PolicyPart
from cp.serving.delivery.causes import ResourceCauses
from cp.translate.compiler import Compiler
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET
from tests.snapshots import policies

MESH = """\
type: Mesh
name: default
mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}
---
type: Dataplane
mesh: default
name: web
networking:
  address: 127.0.0.1
  inbound:
    - {port: 8080, tags: {kuma.io/service: web, kuma.io/protocol: http}}
  outbound:
    - {port: 10001, backendRef: {kind: MeshService, name: backend, port: 80}}
---
type: MeshService
mesh: default
name: backend
spec:
  selector: {dataplaneTags: {kuma.io/service: backend}}
  ports: [{port: 80, targetPort: 8080, appProtocol: http, name: http}]
---
type: MeshTimeout
mesh: default
name: slow
spec:
  to:
    - targetRef: {kind: Mesh}
      default: {http: {requestTimeout: 1s}, connectionTimeout: 9s}
    - targetRef: {kind: MeshService, name: backend}
      default: {http: {requestTimeout: 2s}}
---
type: MeshTimeout
mesh: default
name: of-callers
spec:
  rules:
    - default: {http: {requestTimeout: 5s}}
---
type: MeshHTTPRoute
mesh: default
name: split
spec:
  to:
    - targetRef: {kind: MeshService, name: backend}
      rules:
        - matches: [{path: {type: PathPrefix, value: /slow}}]
          default: {}
---
type: MeshRetry
mesh: default
name: again
spec:
  to:
    - targetRef: {kind: MeshHTTPRoute, name: split}
      default: {http: {numRetries: 3}}
---
type: MeshTrafficPermission
mesh: default
name: some
spec:
  from:
    - targetRef: {kind: MeshSubset, tags: {team: red}}
      default: {action: Allow}
---
type: MeshTrafficPermission
mesh: default
name: others
spec:
  rules:
    - default: {allow: [{spiffeID: {type: Exact, value: spiffe://default/web}}]}
---
type: MeshProxyPatch
mesh: default
name: patch
spec:
  default:
    appendModifications:
      - listener: {operation: Patch, match: {origin: inbound}, jsonPatches: [{op: add, path: /statPrefix, value: in}]}
      - cluster: {operation: Patch, match: {name: nobody}, jsonPatches: [{op: add, path: /altStatName, value: x}]}
      - cluster:
          operation: Patch
          match: {name: kri_msvc_default___backend_http}
          jsonPatches: [{op: add, path: /altStatName, value: x}]
"""
SERVICE = "kri_msvc_default___backend_http"


TIMEOUT = """\
type: MeshTimeout
mesh: default
name: slow
spec:
  to:
    - targetRef: {kind: Mesh}
      default: {connectionTimeout: 9s}
"""


def behind(type_url: str, name: str) -> ResourceCauses:
    world = World.of(read_documents(MESH, "mesh.yaml").documents, kinds(policies()))
    assert not [str(finding) for finding in world.findings if finding.severity == "error"]
    dataplane = world.get(Key("Dataplane", "default", "web"))
    assert dataplane is not None
    return CauseFinder(world).of(Compiler(policies()).proxy(world, dataplane), type_url, name)


def policy_paths(type_url: str, name: str) -> dict[str, list[str]]:
    paths: dict[str, list[str]] = {}
    for part in behind(type_url, name).policies:
        paths.setdefault(part.policy.name, []).append(part.path)
    return paths


def line_of(text: str) -> int:
    return MESH[: MESH.index(text)].count("\n") + 1


def test_a_cluster_is_made_with_the_items_that_hold_for_its_service() -> None:
    assert policy_paths(CLUSTER, SERVICE) == {
        "patch": ["spec.default.appendModifications[2]"],
        "slow": ["spec.to[0]", "spec.to[1]"],
    }


def test_a_patch_comes_first_because_nobody_but_envoy_can_judge_it() -> None:
    first, *_ = behind(CLUSTER, SERVICE).policies

    line = line_of("      - cluster:\n")
    assert first == PolicyPart(
        Key("MeshProxyPatch", "default", "patch"), "spec.default.appendModifications[2]", "mesh.yaml", line
    )


def test_a_route_table_is_made_with_its_routes_and_what_holds_for_them() -> None:
    paths = policy_paths(ROUTES, SERVICE)

    assert paths["split"] == ["spec.to[0]"]
    assert paths["again"] == ["spec.to[0]"]
    assert "spec.to[1]" in paths["slow"]
    assert "patch" not in paths, "it has changed nothing here"


def test_endpoints_are_made_with_no_policy_and_are_about_a_service() -> None:
    causes = behind(ENDPOINTS, SERVICE)

    assert not causes.policies
    assert [place.policy for place in causes.resources] == [Key("MeshService", "default", "backend")]


def test_an_inbound_is_made_with_what_holds_for_all_or_some_of_its_clients_and_is_about_its_dataplane() -> None:
    causes = behind(LISTENER, "inbound:127.0.0.1:8080")

    assert {(place.policy.name, place.path) for place in causes.policies} >= {
        ("patch", "spec.default.appendModifications[0]"),
        ("of-callers", "spec.rules[0]"),
        ("some", "spec.from[0]"),
        ("others", "spec.rules[0]"),
    }
    assert "again" not in {place.policy.name for place in causes.policies}
    assert [place.policy.type for place in causes.resources] == ["Dataplane"]


def test_an_inbound_that_nobody_may_call_is_made_without_a_permission() -> None:
    documents = [one for one in read_documents(MESH, "mesh.yaml").documents if one.key.type != "MeshTrafficPermission"]
    world = World.of(documents, kinds(policies()))
    dataplane = world.get(Key("Dataplane", "default", "web"))
    assert dataplane is not None
    proxy = Compiler(policies()).proxy(world, dataplane)
    causes = CauseFinder(world).of(proxy, LISTENER, "inbound:127.0.0.1:8080")

    assert "of-callers" in {place.policy.name for place in causes.policies}
    assert "MeshTrafficPermission" not in {place.policy.type for place in causes.policies}


def test_what_is_not_there_has_nothing_behind_it_but_the_dataplane() -> None:
    assert not behind(CLUSTER, "nobody").policies


def test_a_certificate_is_what_a_service_names_and_no_policy_made_it() -> None:
    text = (Path(__file__).parents[1] / "cases" / "proxies" / "services-outside-over-tls.in.yaml").read_text()
    question, *documents = read_documents(text.split("---\n", 1)[1] + "---\n" + TIMEOUT).documents
    every_policy = policies()
    world = World.of((question, *documents), kinds(every_policy))
    (dataplane,) = (resource for resource in world.table("Dataplane", "default") if resource.spec.networking.outbound)
    proxy = Compiler(every_policy).proxy(world, dataplane)
    secrets = [packed.name for part in proxy.snapshot.parts for packed in part if packed.type_url == SECRET]

    of_secrets = [CauseFinder(world).of(proxy, SECRET, name) for name in secrets]

    assert of_secrets
    assert {causes.policies for causes in of_secrets} == {()}
    assert {part.policy.type for causes in of_secrets for part in causes.resources} == {"MeshExternalService", "Secret"}
