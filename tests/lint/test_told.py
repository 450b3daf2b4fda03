"""What lint says is so: held against the bytes that proxies are served, and against the second implementation.

`test_no_effect` asks whether values that hold are all told; this asks what reaches Envoy, and whether reasons are true.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from cp.insight.lint import NO_EFFECT, NOTHING_SERVED, lint
from cp.model.document import Document
from cp.model.names import Key
from cp.model.violation import Finding
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.packing import CLUSTER
from tests import oracle
from tests.oracle.destinations import Destination
from tests.random_mesh import CALLS, EDGE, Mesh, dataplanes, for_meshes
from tests.snapshots import policies

Data = dict[str, Any]
Served = dict[str, dict[tuple[str, str], str]]

NOT_ENFORCED: Final = "not enforced"
SAYS_NOTHING: Final = {"deprecated"}
"""Findings that are about how something is written, and not about what comes of it."""

_PARTS: Final = ("to", "from", "rules")
_NOT_CALLED: Final = re.compile(r"(?:calls|does not call) (anybody|Mesh\w+ \S*)")
_OVERRIDDEN: Final = re.compile(
    r"has no effect: ((?:`[^`]+`(?:, )?)+) (?:is|are) overridden by (.*), wherever it holds"
)
_PORT: Final = re.compile(r"spec\.ports\[(\d+)\]")
_RULE: Final = re.compile(r"spec\.to\[(\d+)\]\.rules\[(\d+)\]\.default\.backendRefs")
_RIVAL: Final = re.compile(r"(Mesh\w+) (\S+) \(mesh\.yaml:\d+\)")


def served(world: World) -> Served:
    """Every proxy's resources in their versions, which are their content."""
    compiler = Compiler(policies())
    snapshots = {dataplane.name: compiler.snapshot(world, dataplane) for dataplane in dataplanes(world)}
    return {
        name: {(packed.type_url, packed.name): packed.version for part in snapshot.parts for packed in part}
        for name, snapshot in snapshots.items()
    }


def without(world: World, key: Key) -> World:
    return World.of((resource.document for resource in world if resource.key != key), world.kinds)


def policies_of(world: World) -> list[Resource]:
    return [resource for resource in world if resource.kind.policy is not None]


def told(world: World) -> dict[Key | None, list[Finding]]:
    findings: dict[Key | None, list[Finding]] = {}
    for finding in lint(policies(), world):
        findings.setdefault(finding.resource, []).append(finding)
    return findings


@for_meshes(also=(202, 545, 977))
def test_what_has_no_effect_or_is_not_enforced_changes_nothing_that_is_served(mesh: Mesh) -> None:
    assert_idle_is_not_served(mesh)


def assert_idle_is_not_served(mesh: Mesh) -> None:
    world = mesh.world()
    served_before, findings = served(world), told(world)
    for policy in policies_of(world):
        of_all = [finding for finding in findings.get(policy.key, ()) if is_about_all(finding)]
        changes = bool(of_all) and served(without(world, policy.key)) != served_before
        assert not changes, [str(finding) for finding in of_all]


@for_meshes(times=0.4, also=(96,))
def test_a_policy_that_is_only_looked_at_changes_nothing_that_is_served(mesh: Mesh) -> None:
    """Nor does it make other proxies say what it would need."""
    world = mesh.world()
    for policy in policies_of(world):
        is_so = served(World.of(with_shadow(world, policy.key), world.kinds)) == served(without(world, policy.key))
        assert is_so, f"{policy.key} as a shadow"


def with_shadow(world: World, key: Key) -> Iterator[Document]:
    for resource in world:
        data = dict(resource.document.data)
        if resource.key == key:
            data["labels"] = {**(data.get("labels") or {}), "kuma.io/effect": "shadow"}
        yield Document(resource.key, data)


def is_about_all(finding: Finding) -> bool:
    return finding.message.startswith((NO_EFFECT, NOTHING_SERVED)) or (
        finding.path == "spec" and finding.message.startswith(NOT_ENFORCED)
    )


@for_meshes(also=(433,))
def test_of_what_changes_nothing_that_is_served_something_is_told(mesh: Mesh) -> None:
    assert_told(mesh)


@for_meshes(CALLS, also=(97, 182, 185, 388, 493))
def test_of_what_changes_nothing_for_calls_something_is_told(mesh: Mesh) -> None:
    assert_told(mesh)


@for_meshes(EDGE)
def test_of_what_changes_nothing_at_gateways_something_is_told(mesh: Mesh) -> None:
    assert_told(mesh)


@for_meshes(EDGE)
def test_what_has_no_effect_at_gateways_changes_nothing_that_is_served(mesh: Mesh) -> None:
    assert_idle_is_not_served(mesh)


def assert_told(mesh: Mesh) -> None:
    """Of every item. What nobody is told of looks as if it were in force."""
    world = mesh.world()
    served_before, findings = served(world), told(world)
    for policy in policies_of(world) if served_before else ():
        silent = list(untold(policy, findings.get(policy.key, [])))
        is_idle = bool(silent) and served(without(world, policy.key)) == served_before
        assert not is_idle, f"{policy.key} changes nothing, and nothing is told of {silent}"


def untold(policy: Resource, findings: list[Finding]) -> Iterator[str]:
    """The items of a policy of which no finding speaks."""
    telling = [finding for finding in findings if finding.code not in SAYS_NOTHING]
    for part in items_of(policy):
        if not any(is_about_all(finding) or finding.path.startswith(part) for finding in telling):
            yield part


def items_of(policy: Resource) -> list[str]:
    places = [f"spec.{part}[{index}]" for part in _PARTS for index, _ in enumerate(policy.data.get(part) or ())]
    return places or ["spec.default"]


@for_meshes(CALLS)
def test_who_is_said_not_to_be_called_is_not_called(mesh: Mesh) -> None:
    world, documents = mesh.world(), oracle.read(mesh.documents)
    for key, findings in told(world).items():
        for service in (name for finding in findings for name in _NOT_CALLED.findall(finding.message)):
            assert key is not None
            policy = documents.get(key.type, key.name)
            assert policy is not None
            is_called = service in set(called(documents, policy))
            assert not is_called, f"{key}: lint says that nobody calls {service}"


def called(documents: oracle.Documents, policy: oracle.Resource) -> Iterator[str]:
    """The services that proxies call which a policy selects, as lint names them."""
    for proxy in documents.of("Dataplane"):
        if oracle.is_judged(proxy) and oracle.selects(documents, policy, proxy):
            for data in oracle.outbounds(proxy):
                destination = oracle.outbound(documents, proxy, data)
                if isinstance(destination, Destination):
                    yield "anybody"
                    yield _name(destination)


def _name(destination: Destination) -> str:
    service = destination.service
    return f"MeshService {destination.tag}" if service is None else f"{service.kind} {service.name}"


@for_meshes(CALLS)
def test_of_a_port_without_endpoints_it_is_told_what_becomes_of_calls(mesh: Mesh) -> None:
    """Whoever calls it is served its cluster, unless routes lead all of the calls elsewhere."""
    world, documents = mesh.world(), oracle.read(mesh.documents)
    clusters = {name for of_proxy in served(world).values() for type_url, name in of_proxy if type_url == CLUSTER}
    destinations = [destination for proxy in documents.of("Dataplane") for destination in _called_by(documents, proxy)]
    for key, findings in told(world).items():
        for finding in (finding for finding in findings if finding.code == "no-endpoints"):
            assert key is not None
            if key.type != "MeshService":
                assert finding.message.endswith("connections to it are closed")
                continue
            port = world_data(world, key)["ports"][int(_PORT.findall(finding.path)[0])]
            is_http = port.get("appProtocol") in {"http", "http2", "grpc"}
            assert finding.message.endswith("answered with 503" if is_http else "connections to it are closed")
            called = [each for each in destinations if each.service and each.service.name == key.name]
            of_port = [str(each) for each in called if each.port == port["port"]]
            assert not of_port or set(of_port) & clusters, f"{finding}, and all calls of it go elsewhere"


def world_data(world: World, key: Key) -> Data:
    resource = world.get(key)
    assert resource is not None
    return dict(resource.data)


def _called_by(documents: oracle.Documents, proxy: oracle.Resource) -> Iterator[Destination]:
    for data in oracle.outbounds(proxy) if oracle.is_judged(proxy) else ():
        destination = oracle.outbound(documents, proxy, data)
        if isinstance(destination, Destination):
            yield destination


@for_meshes(CALLS)
def test_what_is_said_of_the_backends_of_a_rule_is_so(mesh: Mesh) -> None:
    """A weight that is null is left out, and what is redirected goes to no backend."""
    world = mesh.world()
    for key, findings in told(world).items():
        for finding in findings:
            place = _RULE.match(finding.path)
            if key is None or place is None or finding.code not in {"zero-weights", "refers-to-nothing"}:
                continue
            default = world_data(world, key)["to"][int(place[1])]["rules"][int(place[2])]["default"]
            filters = {each["type"] for each in default.get("filters") or ()}
            is_about_all = finding.code == "zero-weights"
            assert not is_about_all or {ref.get("weight", 1) for ref in default["backendRefs"]} == {0}, finding
            is_of_calls = is_about_all or "its share of the calls fails" in finding.message
            assert not (is_of_calls and "RequestRedirect" in filters), finding


@for_meshes(CALLS)
def test_whoever_is_said_to_override_a_field_sets_it_for_the_same(mesh: Mesh) -> None:
    world = mesh.world()
    for finding in (finding for findings in told(world).values() for finding in findings):
        for fields, rivals in _OVERRIDDEN.findall(finding.message):
            paths = re.findall(r"`([^`]+)`", fields)
            for kind, name in _RIVAL.findall(rivals):
                rival = world.get(Key(kind, "default", name))
                assert rival is not None
                is_so = any(sets(rival, path, own_target(world, finding)) for path in paths)
                assert is_so, f"{finding}: {name} sets none of {paths} there"


def own_target(world: World, finding: Finding) -> Data:
    """For whom the item is that a finding speaks of; for anybody where it speaks of the policy."""
    policy = world.get(finding.resource) if finding.resource is not None else None
    place = re.match(r"spec\.to\[(\d+)\]", finding.path)
    target: Data = policy.data["to"][int(place[1])]["targetRef"] if policy is not None and place is not None else {}
    return target


def sets(policy: Resource, path: str, own: Data) -> bool:
    """Whether some item that may be for the same has the field, or a null that removes it."""
    items = [item for part in _PARTS for item in policy.data.get(part) or ()]
    confs = [item.get("default") for item in items if may_meet(item.get("targetRef") or {}, own)]
    return any(_has(conf, path.split(".")) for conf in confs)


def may_meet(target: Data, own: Data) -> bool:
    """Two targets by name are for the same only if the names are."""
    names = {target.get("name"), own.get("name")} - {None}
    return len(names) < 2 or target.get("kind") != own.get("kind")


def _has(conf: Any, names: list[str]) -> bool:
    """Or a null in place of a section, which removes the field with it."""
    if not names:
        return True
    return isinstance(conf, dict) and names[0] in conf and (conf[names[0]] is None or _has(conf[names[0]], names[1:]))


@for_meshes()
def test_nothing_is_told_twice(mesh: Mesh) -> None:
    findings = Counter((finding.resource, finding.path, finding.message) for finding in lint(policies(), mesh.world()))

    twice = [finding for finding, count in findings.items() if count > 1]
    assert not twice, twice


@for_meshes(CALLS)
def test_of_connections_no_status_is_told(mesh: Mesh) -> None:
    for key, findings in told(mesh.world()).items():
        if key is not None and key.type == "MeshTCPRoute":
            wrong = [str(finding) for finding in findings if re.search(r"\brequest\b|\b500\b", finding.message)]
            assert not wrong, f"a connection has no status: {wrong}"
