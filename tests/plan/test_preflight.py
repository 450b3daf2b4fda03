"""A real Envoy is shown what a change comes to, and nothing of it does anything on the way."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml
from envoy.config.listener.v3.listener_pb2 import Listener

from cp.access.rights_file import rights_of
from cp.api import planning
from cp.api.authentication import AccessControl
from cp.identity.authority import KeyPair
from cp.insight.plan import ChangedProxy, UpcomingResource
from cp.model.document import Document
from cp.model.names import Key
from cp.model.violation import Severity
from cp.policies import kinds
from cp.resources.world import World
from cp.serving.delivery import CauseFinder, ResourceCauses
from cp.serving.preflight import preflight, scratch
from cp.serving.preflight.availability import unavailability, watched
from cp.serving.preflight.harmless import _TAMED, KNOWN_EXTENSIONS, NotShown, harmless
from cp.serving.preflight.preflight import Preflight, PreflightOutcome
from cp.serving.preflight.rounds import Rounds
from cp.serving.preflight.sandbox import LIMITS, Sandbox
from cp.serving.preflight.scratch import EnvoyUnavailable, RoundAnswer
from cp.store.memory import MemoryStore
from cp.store.port import Put
from cp.translate.compiler import Compiler
from cp.translate.packing import LISTENER, PackedResource
from generators.envoy.every_message import message_type
from tests.access import forge
from tests.api.conftest import ADMINS, Api, Unit
from tests.api.samples import dataplane, timeout
from tests.api.test_door import OF_MEMBER
from tests.api.test_plan import StateWithKeys, StoredState
from tests.cli.conftest import Koguma, running_control_plane
from tests.golden import Case, cases
from tests.random_mesh import MESH
from tests.rollouts.test_assignment import rollout
from tests.snapshots import Question, policies
from tests.support.namespaces import sandboxed_envoy
from tests.support.processes import has_ended
from tests.support.uncompilable import REASON, cannot_compile
from tests.support.waiting import eventually, eventually_on_loop

PAIR = KeyPair(b"", b"")
OF_TEAM = (
    "{groups: [team], may: [read, write], meshes: [default, other], kinds: [Mesh, MeshProxyPatch]}",
    "{groups: [team], may: [read], meshes: [default], kinds: [Dataplane, Inspection]}",
)
"""Who may look into one of two meshes in which he may write."""

PATCH = "/meshes/default/meshproxypatches/bad"
GOLDEN = [parameters.values[0] for parameters in cases("proxies")]
WEB = {"kuma.io/service": "web", "kuma.io/protocol": "http"}


def patch(*modifications: dict[str, Any]) -> dict[str, Any]:
    spec = {"targetRef": {"kind": "Mesh"}, "default": {"appendModifications": list(modifications)}}
    return {"type": "MeshProxyPatch", "mesh": "default", "name": "bad", "spec": spec}


def cluster(most: int) -> dict[str, Any]:
    outliers = {"maxEjectionPercent": most}
    value = {"name": "bad", "connectTimeout": "1s", "type": "STATIC", "outlierDetection": outliers}
    return patch({"cluster": {"operation": "Add", "value": yaml.safe_dump(value)}})


def lua(code: str) -> dict[str, Any]:
    config = {"@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua", "inlineCode": code}
    value = {"name": "envoy.filters.http.lua", "typedConfig": config}
    return patch(
        {"httpFilter": {"operation": "AddFirst", "match": {"origin": "inbound"}, "value": yaml.safe_dump(value)}}
    )


REFUSED, TAKEN = cluster(200), cluster(20)


def worlds_proxies(*documents: dict[str, Any]) -> list[ChangedProxy]:
    """The proxies of a mesh, to which all is new."""
    return proxies_of(MESH, *map(keyed, documents))


def keyed(document: dict[str, Any]) -> Document:
    return Document(Key(document["type"], "default", document["name"]), document)


def proxies_of(*documents: Document) -> list[ChangedProxy]:
    world = World.of(documents, kinds(policies()))
    assert not [finding for finding in world.findings if finding.severity is Severity.ERROR]
    compiler = Compiler(policies())
    return [_new_to(compiler, world, each.key) for each in world.table("Dataplane", "default")]


def golden_proxy(case: Case) -> ChangedProxy:
    question = Question.of(case)
    return _new_to(Compiler(policies()), question.world(), Key("Dataplane", question.mesh, question.proxy))


def _new_to(compiler: Compiler, world: World, key: Key) -> ChangedProxy:
    resource = world.get(key)
    assert resource is not None
    compiled = compiler.proxy(world, resource)
    packed = (packed for part in compiled.snapshot.parts for packed in part)
    return ChangedProxy(compiled, tuple(UpcomingResource(each, (key,)) for each in packed), world)


def said(*proxies: ChangedProxy) -> PreflightOutcome:
    """What an Envoy says, which may not wait for what never comes: that would take it 15 s."""
    return asyncio.run(Preflight(sandboxed_envoy(), 12).outcome(proxies))


# --- what an Envoy says ---


def test_an_envoy_takes_what_several_proxies_are_served() -> None:
    proxies = list(map(golden_proxy, GOLDEN[:4]))
    new = {each.packed for proxy in proxies for each in proxy.new}
    keys = {proxy.compiled.dataplane.key for proxy in proxies}
    outcome = said(*proxies)

    assert (outcome.refused, limits_alone(outcome)) == ((), True)
    assert (outcome.shown, outcome.proxies) == (len(new) - len(outcome.unseen), len(keys))
    assert outcome.envoy.count(".") == 2


def limits_alone(outcome: PreflightOutcome) -> bool:
    return all(each.type == "runtime" and each.reason.endswith("at its start alone") for each in outcome.unseen)


@pytest.mark.long
@pytest.mark.parametrize("case", [*cases("proxies"), *cases("policies")])
def test_an_envoy_takes_what_every_golden_proxy_is_served(case: Case) -> None:
    outcome = said(golden_proxy(case))

    assert outcome.refused == ()
    known = ("does not ask for it", "Datadog tracer")
    assert all(each.type == "runtime" or any(reason in each.reason for reason in known) for each in outcome.unseen)


def test_what_an_envoy_refuses_is_told_with_its_words_and_the_policy() -> None:
    (refused,) = said(*worlds_proxies(dataplane(), REFUSED)).refused

    assert (refused.type, refused.name, refused.dataplane.name) == ("clusters", "bad", "web-1")
    assert "MaxEjectionPercent: value must be less than or equal to 100" in refused.reason
    assert [(part.policy.name, part.path) for part in refused.policies] == [
        ("bad", "spec.default.appendModifications[0]")
    ]


def test_each_resource_is_shown_once_and_what_cannot_be_together_one_after_the_other() -> None:
    """Two machines may have the same address, as far as anybody knows here."""
    first, second = (dataplane(name) for name in ("web-1", "web-2"))
    second["networking"]["inbound"][0]["servicePort"] = 81

    alike = Rounds(PAIR).of(worlds_proxies(first, dataplane("web-2"))).rounds
    different = Rounds(PAIR).of(worlds_proxies(first, second)).rounds
    assert [len(each.new) for each in alike] == [3]
    assert [len(each.new) for each in different] == [3, 2]


def test_what_nobody_waits_for_any_longer_is_not_prepared_to_its_end() -> None:
    """Thousands of proxies that cannot be shown together take minutes, and hold a thread and the interpreter."""
    [proxy] = worlds_proxies(dataplane())
    is_at_it, is_released = threading.Event(), threading.Event()

    def proxies() -> Iterator[ChangedProxy]:
        while not is_released.is_set():
            is_at_it.set()
            yield proxy

    async def abandoned() -> None:
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(Preflight(sandboxed_envoy(), 12).outcome(proxies()))
            await eventually_on_loop(is_at_it.is_set)
            asked.cancel()
            try:
                await eventually_on_loop(lambda: is_quiet(is_at_it), pause=0.2)
            finally:
                is_released.set()

    asyncio.run(abandoned())


def test_abandoned_preflight_ends_its_envoy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def abandoned() -> list[psutil.Process]:
        is_shown, started = asyncio.Event(), []

        async def never_answers(envoy: scratch.ScratchEnvoy, _: object) -> RoundAnswer:
            started.extend(psutil.Process(envoy._process.pid).children())
            is_shown.set()
            await asyncio.Event().wait()
            raise AssertionError

        monkeypatch.setattr(scratch.ScratchEnvoy, "shown", never_answers)
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(Preflight(sandboxed_envoy(), 30).outcome(worlds_proxies(dataplane())))
            await is_shown.wait()
            asked.cancel()
        return started

    (envoy,) = asyncio.run(abandoned())
    eventually(lambda: has_ended(envoy))


def is_quiet(is_at_it: threading.Event) -> bool:
    """Whether a thread has done nothing since it was asked last."""
    was_at_it = is_at_it.is_set()
    is_at_it.clear()
    return not was_at_it


def test_whose_policies_are_refused_is_worked_out_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def noted(finder: CauseFinder, *resource: Any) -> ResourceCauses:
        threads.append(threading.current_thread())
        return of(finder, *resource)

    of = CauseFinder.of
    monkeypatch.setattr(CauseFinder, "of", noted)

    assert len(said(*worlds_proxies(dataplane(), REFUSED)).refused) == 1
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


def test_configuration_is_made_beside_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first time it imports all of Envoy's messages."""
    threads: list[threading.Thread] = []

    def noted() -> dict[str, Any]:
        threads.append(threading.current_thread())
        return config()

    config = scratch.scratch_config
    monkeypatch.setattr(scratch, "scratch_config", noted)

    assert said(*worlds_proxies(dataplane(), TAKEN)).refused == ()
    assert threads != [threading.main_thread()]


# --- what it does ---


def test_an_envoy_runs_no_code_and_opens_no_file_of_what_it_is_shown(tmp_path: Path) -> None:
    code, log = tmp_path / "code", tmp_path / "access.log"
    backend = {"type": "File", "file": {"path": str(log)}}
    item = {"targetRef": {"kind": "Mesh"}, "default": {"backends": [backend]}}
    access_log = {"type": "MeshAccessLog", "mesh": "default", "name": "all", "spec": {"from": [item]}}
    script = lua(f"local f = io.open('{code}', 'w'); f:write('x'); f:close()")

    outcome = said(*worlds_proxies(dataplane(), script, access_log))
    assert (outcome.refused, outcome.unseen) == ((), ())
    assert (code.exists(), log.exists()) == (False, False)


def test_an_envoy_listens_nowhere_and_calls_nobody(tmp_path: Path) -> None:
    """The port of the inbound is taken, and whoever is health-checked hears of nobody."""
    with socket.create_server(("127.0.0.1", 0)) as inbound, socket.create_server(("127.0.0.1", 0)) as server:
        web, backend = dataplane("web-1"), dataplane("api-1", service="api")
        web["networking"]["inbound"][0]["port"] = inbound.getsockname()[1]
        web["networking"]["outbound"] = [{"port": 10001, "tags": {"kuma.io/service": "api"}}]
        backend["networking"]["inbound"][0]["port"] = server.getsockname()[1]
        check = {"interval": "0.1s", "timeout": "1s", "unhealthyThreshold": 1, "healthyThreshold": 1, "tcp": {}}
        item = {"targetRef": {"kind": "Mesh"}, "default": check}
        policy = {"type": "MeshHealthCheck", "mesh": "default", "name": "all", "spec": {"to": [item]}}
        outcome = said(*worlds_proxies(web, backend, policy))
        server.setblocking(False)

        assert (outcome.refused, outcome.unseen) == ((), ())
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_listener_for_udp_gets_a_port_of_loopback_that_nobody_knows() -> None:
    """Envoy takes none that does not listen."""
    listener = Listener()
    places = (listener.address, listener.additional_addresses.add().address)
    for place in places:
        place.socket_address.protocol = place.socket_address.UDP
        place.socket_address.address, place.socket_address.port_value = "0.0.0.0", 53  # not to listen there
    copy = harmless(PackedResource.of(LISTENER, "dns", listener.SerializeToString()), PAIR)

    shown = Listener.FromString(copy.body)
    sockets = [place.socket_address for place in (shown.address, shown.additional_addresses[0].address)]
    assert [(each.address, each.port_value) for each in sockets] == [("127.0.0.1", 0)] * 2


def test_what_brings_other_code_along_is_not_shown_and_said_to_be_left_out() -> None:
    config = {"@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm", "config": {}}
    value = yaml.safe_dump({"name": "w", "typedConfig": config})
    filter_ = {"httpFilter": {"operation": "AddFirst", "match": {"origin": "inbound"}, "value": value}}
    proxies = worlds_proxies(dataplane(), patch(filter_))

    ((resource, why),) = Rounds(PAIR).of(proxies).left_out
    assert (resource.packed.name, why) == ("inbound:127.0.0.1:8080", "it brings code along, which is not run here")
    with pytest.raises(NotShown):
        harmless(resource.packed, PAIR)


def test_what_is_not_shown_is_not_counted_as_shown() -> None:
    """Neither what was left out, nor the routes for which nobody asks then; a proxy counts for what it shares too."""
    outbound = [{"port": 10001, "tags": {"kuma.io/service": "web"}}]
    config = {"@type": f"{TYPE}envoy.extensions.filters.http.wasm.v3.Wasm", "config": {}}
    value = yaml.safe_dump({"name": "w", "typedConfig": config})
    filter_ = {"httpFilter": {"operation": "AddFirst", "match": {"origin": "outbound"}, "value": value}}
    proxies = worlds_proxies(dataplane(outbound=outbound), dataplane("web-2", outbound=outbound), patch(filter_))
    new = {each.packed for proxy in proxies for each in proxy.new}

    outcome = said(*proxies)
    assert [(each.type, each.name) for each in outcome.unseen] == [
        ("listeners", "outbound:127.0.0.1:10001"),
        ("routes", "web"),
    ]
    assert [each.reason for each in outcome.unseen] == [
        "it brings code along, which is not run here",
        "Envoy does not ask for it, as it has taken nothing that refers to it",
    ]
    assert (outcome.shown, outcome.proxies) == (len(new) - 2, 2)


TYPE = "type.googleapis.com/"
LUA = {"inline_code": "os.exit(1)"}
CODE = {"inlineString": "os.exit(1)"}
PLAIN = {"type_url": f"{TYPE}envoy.extensions.filters.http.lua.v3.Lua", "value": LUA}
IN_LUA = {"@type": f"{TYPE}envoy.extensions.string_matcher.lua.v3.Lua", "sourceCode": CODE}
CALLER = {"header": {"name": "x", "stringMatch": {"custom": {"name": "l", "typedConfig": IN_LUA}}}}
POLICY = {"permissions": [{"any": True}], "principals": [CALLER]}
ROUTE_IN_LUA = {
    "@type": f"{TYPE}envoy.extensions.router.cluster_specifiers.lua.v3.LuaConfig",
    "sourceCode": CODE,
    "defaultCluster": "c",
}
STORED = {"@type": f"{TYPE}envoy.extensions.key_value.file_based.v3.FileBasedKeyValueStoreConfig", "filename": "/x"}
HOSTS = {"name": "d", "keyValueConfig": {"config": {"name": "kv", "typedConfig": STORED}}}
FORWARD_PROXY = f"{TYPE}envoy.extensions.clusters.dynamic_forward_proxy.v3.ClusterConfig"
FORWARDED = {"@type": FORWARD_PROXY, "dnsCacheConfig": HOSTS}
ELSEWHERE = {"apiType": "GRPC", "grpcServices": [{"googleGrpc": {"targetUri": "192.0.2.1:1", "statPrefix": "x"}}]}
TLS = f"{TYPE}envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
OTHERWISE = {"address": "127.0.0.1", "portValue": 2}
WATCHED = {"inlineString": "x", "watchedDirectory": {"path": "/x"}}
PROXIED = {
    "name": "tls",
    "typedConfig": {"@type": TLS, "commonTlsContext": {"tlsCertificates": [{"privateKey": WATCHED}]}},
}
NAMESPACED = {"address": "127.0.0.1", "portValue": 1, "networkNamespaceFilepath": "/etc/passwd"}


def filtered(name: str, **config: Any) -> dict[str, Any]:
    value = yaml.safe_dump({"name": "x", "typedConfig": {"@type": TYPE + name, **config}})
    return patch({"httpFilter": {"operation": "AddFirst", "match": {"origin": "inbound"}, "value": value}})


def routed(route: dict[str, Any]) -> dict[str, Any]:
    host = {"name": "v", "domains": ["v.example"], "routes": [{"match": {"prefix": "/"}, "route": route}]}
    return patch({"virtualHost": {"operation": "Add", "match": {"origin": "inbound"}, "value": yaml.safe_dump(host)}})


def listening(address: dict[str, Any]) -> dict[str, Any]:
    return listening_at({"socketAddress": address})


def listening_at(address: dict[str, Any], *further: dict[str, Any]) -> dict[str, Any]:
    additional = [{"address": each} for each in further]
    value = yaml.safe_dump({"name": "l", "address": address, "additionalAddresses": additional})
    return patch({"listener": {"operation": "Add", "value": value}})


def added(**fields: Any) -> dict[str, Any]:
    value = yaml.safe_dump({"name": "c", "connectTimeout": "1s", **fields})
    return patch({"cluster": {"operation": "Add", "value": value}})


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (filtered("xds.type.v3.TypedStruct", **PLAIN), "xds.type.v3.TypedStruct"),
        (filtered("udpa.type.v1.TypedStruct", **PLAIN), "udpa.type.v1.TypedStruct"),
        (filtered("google.protobuf.Struct", value=LUA), "google.protobuf.Struct"),
        (filtered("envoy.extensions.filters.http.rbac.v3.RBAC", rules={"policies": {"p": POLICY}}), "string_matcher"),
        (routed({"inlineClusterSpecifierPlugin": {"extension": {"name": "l", "typedConfig": ROUTE_IN_LUA}}}), "lua"),
        (added(clusterType={"name": "dfp", "typedConfig": FORWARDED}), "key_value.file_based"),
        (added(type="EDS", edsClusterConfig={"edsConfig": {"apiConfigSource": ELSEWHERE}}), "from elsewhere"),
        (added(type="EDS", edsClusterConfig={"edsConfig": {"pathConfigSource": {"path": "/x"}}}), "from elsewhere"),
        (listening(NAMESPACED), "another network namespace"),
        (listening({**NAMESPACED, "protocol": "UDP"}), "another network namespace"),
        (listening_at({"pipe": {"path": "/x"}}), "a socket in the file system"),
        (listening_at({"pipe": {"path": "@x", "mode": 511}}), "a socket in the file system"),
        (listening_at({"socketAddress": OTHERWISE}, {"pipe": {"path": "/x"}}), "a socket in the file system"),
        (added(type="STATIC", transportSocket=PROXIED), "watches a folder"),
        (added(type="STATIC", upstreamBindConfig={"sourceAddress": NAMESPACED}), "another network namespace"),
    ],
)
def test_what_nobody_knows_to_be_harmless_is_not_shown(policy: dict[str, Any], why: str) -> None:
    (left_out,) = Rounds(PAIR).of(worlds_proxies(dataplane(), policy)).left_out

    assert why in left_out[1]


def test_all_that_is_known_to_be_harmless_exists() -> None:
    assert {message_type(name).DESCRIPTOR.full_name for name in KNOWN_EXTENSIONS} == KNOWN_EXTENSIONS


SHOWN = (
    "envoy.config.cluster.v3.Cluster",
    "envoy.config.endpoint.v3.ClusterLoadAssignment",
    "envoy.config.listener.v3.Listener",
    "envoy.config.route.v3.RouteConfiguration",
    "envoy.extensions.transport_sockets.tls.v3.Secret",
)
NO_FILE = re.compile(r"^envoy\.(config\.route|extensions\.filters)\.|\.HttpHealthCheck$")
"""Messages in which a path is one of HTTP."""

WITHIN_TAMED = re.compile(r"\.(PathConfigSource|StsService)$")


def test_each_part_that_can_name_a_file_is_tamed() -> None:
    """Also those that a newer Envoy has."""
    messages: dict[str, Any] = {}
    waiting = [message_type(name).DESCRIPTOR for name in (*SHOWN, *sorted(KNOWN_EXTENSIONS))]
    while waiting:
        message = waiting.pop()
        if message.full_name not in messages:
            messages[message.full_name] = message
            waiting += [field.message_type for field in message.fields if field.message_type is not None]
    of_files = {
        name
        for name, message in messages.items()
        for field in message.fields
        if field.message_type is None and re.search("file|(^|_)path$", field.name) and not NO_FILE.search(name)
    }

    assert "envoy.config.core.v3.SocketAddress" in of_files
    assert {name for name in of_files if not WITHIN_TAMED.search(name)} <= _TAMED.keys()


def test_neither_checks_of_health_nor_logs_of_keys_lead_anywhere(tmp_path: Path) -> None:
    """Whatever port, socket or file a policy names for them."""
    check = {"timeout": "1s", "interval": "0.1s", "unhealthyThreshold": 1, "healthyThreshold": 1, "tcpHealthCheck": {}}
    events, keys = tmp_path / "events", tmp_path / "keys"
    context = {"@type": TLS, "commonTlsContext": {"keyLog": {"path": str(keys)}}}
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tmp_path / "socket"))
        unix.listen()
        here = {"socketAddress": {"address": "127.0.0.1", "portValue": tcp.getsockname()[1]}}
        there = {"socketAddress": {"address": "192.0.2.1", "portValue": 1}}
        hosts = [
            {"address": {"pipe": {"path": str(tmp_path / "socket")}}},
            {"address": there, "healthCheckConfig": {"address": here}},
            {"address": there, "healthCheckConfig": {"portValue": here["socketAddress"]["portValue"]}},
        ]
        assignment = {"clusterName": "c", "endpoints": [{"lbEndpoints": [{"endpoint": host} for host in hosts]}]}
        checked = [{**check, "eventLogPath": str(events)}]
        encrypted = {"name": "tls", "typedConfig": context}
        policy = added(type="STATIC", loadAssignment=assignment, healthChecks=checked, transportSocket=encrypted)

        outcome = said(*worlds_proxies(dataplane(), policy))
        assert (outcome.refused, outcome.unseen) == ((), ())
        for server in (tcp, unix):
            server.setblocking(False)
            with pytest.raises(BlockingIOError):
                server.accept()
    assert (events.exists(), keys.exists()) == (False, False)


@pytest.mark.long
def test_an_envoy_that_is_shown_what_takes_all_memory_ends_before_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "Sandbox", lambda envoy: Sandbox(envoy, {**LIMITS, "DATA": 400 * 1024**2}))
    large = {"minimumRingSize": 8 * 1024**2, "maximumRingSize": 8 * 1024**2}
    host = {"endpoint": {"address": {"socketAddress": {"address": "192.0.2.1", "portValue": 1}}}}
    assignment = {"clusterName": "c", "endpoints": [{"lbEndpoints": [host, host]}]}
    rings = [
        added(name=f"c{number}", lbPolicy="RING_HASH", ringHashLbConfig=large, loadAssignment=assignment)
        for number in range(4)
    ]
    modifications = [each["spec"]["default"]["appendModifications"][0] for each in rings]

    with pytest.raises(EnvoyUnavailable, match="ended with"):
        said(*worlds_proxies(dataplane(), patch(*modifications)))


# --- an Envoy that is not there ---


@pytest.mark.parametrize(
    ("program", "why"), [("/no/such/envoy", "cannot be read"), ("/bin/false", "ends with status 1 in the sandbox")]
)
def test_an_envoy_that_does_not_run_is_no_envoy_that_agrees(program: str, why: str) -> None:
    sandboxed_envoy()
    with pytest.raises(EnvoyUnavailable, match=why):
        asyncio.run(Preflight(Path(program), 10).outcome(worlds_proxies(dataplane())))


def test_late_answer_is_no_agreement() -> None:
    with pytest.raises(EnvoyUnavailable, match=r"did not answer within 0\.001 s"):
        asyncio.run(Preflight(sandboxed_envoy(), 0.001).outcome(worlds_proxies(dataplane())))


def test_client_that_leaves_frees_its_place(start: Unit) -> None:
    api = with_envoy(start, Path("/no/such/envoy"))
    turns, body = api.collaborators.works.turns, json.dumps(timeout()).encode()

    async def left() -> None:
        has_left, messages = asyncio.Event(), iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> dict[str, Any]:
            if (message := next(messages, None)) is not None:
                return message
            await has_left.wait()
            return {"type": "http.disconnect"}

        async def send(_message: object) -> None: ...

        scope = {
            "type": "http",
            "method": "PUT",
            "path": "/meshes/default/meshtimeouts/slow",
            "query_string": b"",
            "headers": [(b"host", b"localhost:5681"), (b"content-type", b"application/json")],
            "client": ("127.0.0.1", 123),
            "server": ("localhost", 5681),
        }
        with turns.queued("another", ()):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(api.app(scope, receive, send))
                await eventually_on_loop(lambda: turns.waiting == 1)
                has_left.set()
                await eventually_on_loop(lambda: turns.waiting == 0)

    api.run(left())


def test_turn_ends_in_time(start: Unit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_COMPUTING", -30.0)  # as long as the Envoy of this preflight may take
    api = with_envoy(start, sandboxed_envoy())

    answer = api.put("/meshes/default/meshtimeouts/slow", timeout())
    assert (answer.status_code, "takes longer than 0 s" in answer.json()["detail"]) == (503, True)
    assert api.put("/meshes/default/meshtimeouts/slow?preflight=false", timeout()).status_code == 201


def test_script_of_package_leads_to_envoy(tmp_path: Path) -> None:
    (script := tmp_path / "bin/envoy").parent.mkdir()
    script.write_text("#!/usr/bin/python3\n")
    (binary := tmp_path / "lib/python3.11/site-packages/envoy/_bin/envoy").parent.mkdir(parents=True)
    binary.touch()

    assert [scratch.envoy_itself(each) for each in (script, binary, tmp_path / "none")] == [
        binary,
        binary,
        tmp_path / "none",
    ]


# --- writes ---


@pytest.fixture
def guarded(start: Unit) -> Api:
    """An API that shows every write to an Envoy, with one proxy."""
    return with_envoy(start, sandboxed_envoy())


def with_envoy(start: Unit, envoy: Path, *, is_asked_first: bool = True) -> Api:
    store = MemoryStore()
    preflight = Preflight(envoy, 30)
    api = start(store=store, state=StoredState(store), preflight=preflight, preflights_writes=is_asked_first)
    api.put("/meshes/default?preflight=false", {"type": "Mesh", "name": "default"}).raise_for_status()
    api.put("/meshes/default/dataplanes/web-1?preflight=false", dataplane()).raise_for_status()
    return api


def test_a_write_that_an_envoy_refuses_is_refused_with_its_words(guarded: Api) -> None:
    answers = [
        guarded.put(PATCH, REFUSED),
        guarded.post("/_apply", json={"resources": [{"text": yaml.safe_dump(REFUSED), "place": "bad.yaml:1"}]}),
    ]

    assert [answer.status_code for answer in answers] == [422, 422]
    assert "Envoy 1." in answers[0].json()["detail"]
    (fault,) = answers[1].json()["invalid_parameters"]
    assert (fault["field"], fault["file"]) == ("spec.default.appendModifications[0]", "bad.yaml")
    assert "MeshProxyPatch default/bad: clusters bad of web-1: " in fault["reason"]
    assert guarded.get(PATCH).status_code == 404
    assert guarded.put(PATCH, TAKEN).status_code == 201
    assert guarded.put(f"{PATCH}?preflight=false", REFUSED).status_code == 200


def changed_cluster(name: str, **outliers: int) -> dict[str, Any]:
    """A policy that changes the cluster `bad` of another one."""
    value = yaml.safe_dump({"outlierDetection": outliers} if outliers else {"altStatName": name})
    modification = {"operation": "Patch", "match": {"name": "bad"}, "value": value}
    return {**patch({"cluster": modification}), "name": name}


def test_rejection_names_the_policy_of_the_write(guarded: Api) -> None:
    guarded.put(f"{PATCH}?preflight=false", TAKEN).raise_for_status()
    stored, path = "/meshes/default/meshproxypatches/b-stored", "/meshes/default/meshproxypatches/a-worse"
    guarded.put(f"{stored}?preflight=false", changed_cluster("b-stored")).raise_for_status()
    worse = changed_cluster("a-worse", maxEjectionPercent=200)

    (fault,) = guarded.put(path, worse).json()["invalid_parameters"]
    (refused,) = guarded.put(f"{path}?dryRun=true&preflight=true", worse).json()["preflight"]["refused"]
    assert fault["field"] == "spec.default.appendModifications[0]"
    assert fault["reason"].startswith("MeshProxyPatch default/a-worse: clusters bad of web-1: ")
    named = [(each["name"], each.get("written", False)) for each in refused["policies"]]
    assert named[0] == ("a-worse", True)
    assert dict(named) == {"a-worse": True, "b-stored": False, "bad": False}


def test_rejection_names_the_changed_field(guarded: Api) -> None:
    def with_maximum(most: int) -> dict[str, Any]:
        policies = (TAKEN, changed_cluster("x"), changed_cluster("x", maxEjectionPercent=most))
        return patch(*(each["spec"]["default"]["appendModifications"][0] for each in policies))

    guarded.put(f"{PATCH}?preflight=false", with_maximum(20)).raise_for_status()
    (fault,) = guarded.put(PATCH, with_maximum(200)).json()["invalid_parameters"]
    assert fault["field"] == "spec.default.appendModifications[2]"


def test_rejection_beyond_the_write_is_marked(guarded: Api) -> None:
    """The policy that had hidden the fault of another one is deleted."""
    hiding = "/meshes/default/meshproxypatches/a-hiding"
    guarded.put(f"{PATCH}?preflight=false", REFUSED).raise_for_status()
    guarded.put(f"{hiding}?preflight=false", changed_cluster("a-hiding", maxEjectionPercent=20)).raise_for_status()

    answer = guarded.delete(hiding)
    (fault,) = answer.json()["invalid_parameters"]
    assert (answer.status_code, fault["field"]) == (422, "")
    reason = "the change writes none of the policies that this is made of: MeshProxyPatch default/bad"
    assert fault["reason"].endswith(reason)


def test_resource_rejected_already_does_not_stop_a_write(guarded: Api) -> None:
    guarded.put(f"{PATCH}?preflight=false", REFUSED).raise_for_status()
    path = "/meshes/default/meshproxypatches/a-other"

    told = guarded.put(f"{path}?dryRun=true&preflight=true", changed_cluster("a-other")).json()["preflight"]
    written = guarded.put(path, changed_cluster("a-other"))
    assert (told["refused"], [each["name"] for each in told["refusedBefore"]]) == ([], ["bad"])
    assert written.status_code == 201
    (warning,) = written.json()["warnings"]
    assert "NACKs the clusters bad of web-1 already before this change: " in warning
    assert warning.endswith("the write passes, as proxies keep what they have")


def test_old_and_new_faults_are_told_apart(guarded: Api) -> None:
    guarded.put(f"{PATCH}?preflight=false", REFUSED).raise_for_status()
    worse = added(name="worse", type="STATIC", outlierDetection={"enforcingSuccessRate": 150})
    policies = (changed_cluster("a-both"), worse)
    both = patch(*(each["spec"]["default"]["appendModifications"][0] for each in policies))

    path = "/meshes/default/meshproxypatches/a-both?dryRun=true&preflight=true"
    told = guarded.put(path, {**both, "name": "a-both"}).json()["preflight"]
    assert [[each["name"] for each in told[side]] for side in ("refused", "refusedBefore")] == [["worse"], ["bad"]]


def test_another_fault_of_rejected_resource_stops_a_write(guarded: Api) -> None:
    guarded.put(f"{PATCH}?preflight=false", REFUSED).raise_for_status()
    other = changed_cluster("a-other", maxEjectionPercent=20, enforcingSuccessRate=150)

    answer = guarded.put("/meshes/default/meshproxypatches/a-other", other)
    (fault,) = answer.json()["invalid_parameters"]
    assert answer.status_code == 422
    reasons = "EnforcingSuccessRate.*already before this change, for another reason.*MaxEjectionPercent"
    assert re.search(reasons, fault["reason"])


def test_a_dry_run_tells_what_an_envoy_says(guarded: Api) -> None:
    told = [guarded.put(f"{PATCH}?dryRun=true&preflight=true", each).json()["preflight"] for each in (REFUSED, TAKEN)]

    assert [(each["shown"], len(each["refused"]), each["notShown"]) for each in told] == [(1, 1, []), (1, 0, [])]
    assert guarded.get(PATCH).status_code == 404


def test_who_may_look_into_one_mesh_hears_of_others_that_something_is_refused_there(start: Unit) -> None:
    store, envoy = MemoryStore(), Preflight(sandboxed_envoy(), 30)
    rights = rights_of(f"rights: [{', '.join(OF_TEAM)}]", "access.yaml", kinds(policies()), ADMINS)
    access = AccessControl(lambda: rights, clock=lambda: forge.NOW)
    api = start(store=store, state=StateWithKeys(store), preflight=envoy, access=access)
    for mesh, proxy in (("default", "web-1"), ("other", "db-7")):
        api.put(f"/meshes/{mesh}", {"type": "Mesh", "name": mesh}).raise_for_status()
        api.put(f"/meshes/{mesh}/dataplanes/{proxy}", {**dataplane(proxy), "mesh": mesh}).raise_for_status()

    def applied(query: str, *meshes: str) -> httpx.Response:
        texts = [{"text": yaml.safe_dump({**REFUSED, "mesh": mesh})} for mesh in meshes]
        headers = {"authorization": f"Bearer {OF_MEMBER}"}
        return api.request("POST", f"/_apply?{query}", peer="192.0.2.1", json={"resources": texts}, headers=headers)

    told = applied("dryRun=true&preflight=true", "default", "other").json()["preflight"]
    both, other = applied("preflight=true", "default", "other"), applied("preflight=true", "other")
    assert [each["proxy"] for each in told["refused"]] == ["web-1"]
    assert (told["shown"], told["inMeshesNotTold"]) == (
        2,
        {"refused": 1, "refusedBefore": 0, "notShown": 0, "shownInPart": 0},
    )
    assert [both.status_code, other.status_code] == [422, 422]
    assert other.json()["detail"].endswith("NACKs something that follows from it in a mesh that you may not look into")
    assert "db-7" not in both.text + other.text + str(told)
    assert "web-1" in both.text


def test_every_write_tells_how_much_an_envoy_was_shown_and_what_not(guarded: Api) -> None:
    """A filter of code is in the listener of the inbound, before and after: nothing that changes there is shown."""
    config = {"@type": f"{TYPE}envoy.extensions.filters.http.wasm.v3.Wasm", "config": {}}
    value = yaml.safe_dump({"name": "w", "typedConfig": config})
    code = {"httpFilter": {"operation": "AddFirst", "match": {"origin": "inbound"}, "value": value}}
    stays = {**patch(code), "name": "stays"}
    guarded.put("/meshes/default/meshproxypatches/stays?preflight=false", stays).raise_for_status()
    revision = int(guarded.put(f"{PATCH}?preflight=false", patch(code)).headers["koguma-revision"])

    answers = [
        guarded.delete(PATCH),
        guarded.put(PATCH, patch(code)),
        guarded.post("/_rollback", json={"revision": revision - 1}),
        guarded.post("/_apply", json={"resources": [{"text": yaml.safe_dump(patch(code))}]}),
    ]
    for answer in answers:
        told = answer.json()
        assert (told["preflight"]["shown"], [each["type"] for each in told["preflight"]["notShown"]]) == (
            0,
            ["listeners"],
        )
        assert told["warnings"][-1].endswith("it brings code along, which is not run here")


def test_a_rollback_is_shown_first_too(guarded: Api) -> None:
    guarded.put(f"{PATCH}?preflight=false", REFUSED)
    revision = int(guarded.put(PATCH, TAKEN).headers["koguma-revision"]) - 1

    assert guarded.post("/_rollback", json={"revision": revision}).status_code == 422
    assert guarded.post("/_rollback?preflight=false", json={"revision": revision}).status_code == 200


def test_a_proxy_that_cannot_be_compiled_stops_no_write(guarded: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    guarded.put("/meshes/default/dataplanes/web-2?preflight=false", dataplane("web-2")).raise_for_status()
    cannot_compile(monkeypatch, "web-2")
    answer = guarded.put(PATCH, TAKEN).raise_for_status().json()

    assert (answer["preflight"]["shown"], answer["preflight"]["proxies"]) == (1, 1)
    (sentence,) = answer["preflight"]["notCompared"]
    assert sentence.startswith(f"web-2 of mesh default, by a fault of koguma: {REASON}")
    assert answer["warnings"] == [f"not shown to an Envoy: {sentence}"]


def test_a_new_proxy_that_cannot_be_compiled_stops_no_write(guarded: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    cannot_compile(monkeypatch, "web-2")
    answer = guarded.put("/meshes/default/dataplanes/web-2", dataplane("web-2")).raise_for_status().json()

    assert [each.partition(" of ")[0] for each in answer["preflight"]["notCompared"]] == ["web-2"]


def test_an_envoy_is_shown_what_proxies_of_a_rollout_would_get(guarded: Api) -> None:
    """Neither what the rollout proposes nor the write is refused by itself."""
    merged = {"operation": "Patch", "match": {"name": "bad"}, "value": "outlierDetection: {maxEjectionPercent: 200}"}
    write = {**patch({"cluster": merged}), "name": "a-worse"}
    proposed = Document(Key("MeshProxyPatch", "default", "bad"), TAKEN)
    path = "/meshes/default/meshproxypatches/a-worse?dryRun=true&preflight=true"
    assert guarded.put(path, write).json()["preflight"]["refused"] == []

    guarded.run(guarded.store.write(Put(rollout({proposed.key: proposed}, ["web-1"]))))
    told = guarded.put(path, write).json()["preflight"]
    (refused,) = told["refused"]
    assert (refused["proxy"], refused["name"]) == ("web-1", "bad")
    assert {policy["name"] for policy in refused["policies"]} == {"bad", "a-worse"}
    (sentence,) = told["notCompared"]
    assert sentence == (
        "what rollout 1 of mesh default proposes, which is under way, beside this write, "
        "for proxies that are not served it yet"
    )


def test_what_ends_a_rollout_is_shown_without_it(guarded: Api) -> None:
    """Also what goes back then: the proxies of the rollout have had something else."""
    proposed = Document(Key("MeshProxyPatch", "default", "bad"), TAKEN)
    guarded.run(guarded.store.write(Put(rollout({proposed.key: proposed}, ["web-1"]))))

    told = guarded.put(f"{PATCH}?dryRun=true&preflight=true", REFUSED).json()["preflight"]
    assert [(each["proxy"], each["name"]) for each in told["refused"]] == [("web-1", "bad")]
    assert "notCompared" not in told


def test_a_write_waits_for_no_envoy_unless_it_is_asked_for(start: Unit) -> None:
    api = with_envoy(start, Path("/no/such/envoy"), is_asked_first=False)

    assert api.put("/meshes/default/meshtimeouts/slow", timeout()).status_code == 200 + 1
    assert api.put("/meshes/default/meshtimeouts/slow?preflight=true", timeout(request_timeout="1s")).status_code == 503


def test_preflights_of_one_mesh_keep_no_other_out(start: Unit) -> None:
    """Without an Envoy each turn is short; their order is the same."""
    api = with_envoy(start, Path("/no/such/envoy"))
    api.put("/meshes/other?preflight=false", {"type": "Mesh", "name": "other"}).raise_for_status()
    ended: list[str] = []

    async def written(client: httpx.AsyncClient, mesh: str, name: str) -> httpx.Response:
        document = {**timeout(), "mesh": mesh, "name": name}
        answer = await client.put(f"/meshes/{mesh}/meshtimeouts/{name}?dryRun=true&preflight=true", json=document)
        if answer.status_code != 429:
            ended.append(mesh)
        return answer

    async def all_written() -> list[httpx.Response]:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(api.app), base_url="http://localhost:5681"
        ) as client:
            asked = [written(client, "default", f"slow-{number}") for number in range(12)]
            return await asyncio.gather(*asked, written(client, "other", "slow"))

    *greedy, victim = api.run(all_written())
    assert victim.status_code == 503
    assert ended.index("other") <= 2
    turned_away = [answer for answer in greedy if answer.status_code == 429]
    assert len(turned_away) == 4
    assert {answer.headers["retry-after"] for answer in turned_away} == {"5"}
    assert "8 preflights of mesh default are under way" in turned_away[0].json()["detail"]


@pytest.mark.parametrize(
    "further",
    [[], [{"socketAddress": {"address": "127.0.0.1", "portValue": 2}}]],
    ids=["address", "additional-address"],
)
def test_dry_run_removes_no_file(guarded: Api, tmp_path: Path, further: list[dict[str, Any]]) -> None:
    (database := tmp_path / "koguma.db").write_text("everything")
    pipe = {"pipe": {"path": str(database), "mode": 0o777}}
    policy = listening_at(*further, pipe) if further else listening_at(pipe)
    inbound = {"operation": "Patch", "match": {"origin": "inbound"}, "value": yaml.safe_dump({"address": pipe})}
    policies = (policy, patch({"listener": inbound}))

    answers = [guarded.put(f"{PATCH}?dryRun=true&preflight=true", each).json()["preflight"] for each in policies]
    assert [[each["reason"] for each in answer["notShown"]] for answer in answers] == [
        ["it has a socket in the file system of the machine"]
    ] * 2
    assert database.read_text() == "everything"


def test_reason_without_sandbox_is_answered(start: Unit, tmp_path: Path) -> None:
    (script := tmp_path / "envoy").write_text("#!/bin/sh\n")

    answer = with_envoy(start, script).put("/meshes/default/meshtimeouts/slow", timeout())
    assert answer.status_code == 503
    assert f"{script} is no ELF binary; name Envoy itself, not a script that starts it" in answer.json()["detail"]


@pytest.mark.parametrize("rejects_writes", [True, False])
def test_control_plane_without_sandbox_reports_reason(tmp_path: Path, rejects_writes: bool) -> None:
    (script := tmp_path / "envoy").write_text("#!/bin/sh\n")

    with running_control_plane(tmp_path, preflight_envoy=script, preflights_writes=rejects_writes) as running:
        url = f"http://127.0.0.1:{running.http_port}"
        eventually(lambda: "preflight.unavailable" in (tmp_path / "log").read_text())
        ready, level = httpx.get(f"{url}/ready"), httpx.get(f"{url}/ready?level=preflight")
        metrics = httpx.get(f"{url}/metrics").text
    reason = "is no ELF binary; name Envoy itself"
    effect = "every write by people is rejected with 503" if rejects_writes else "writes with preflight are rejected"
    assert reason in (tmp_path / "log").read_text()
    assert (ready.status_code, ready.json()["preflight"], level.status_code) == (200, False, 503)
    (warning,) = [text for text in ready.json()["warnings"] if reason in text]
    assert warning.startswith(effect)
    assert warning.endswith("until KOGUMA_PREFLIGHT_ENVOY runs in a sandbox, `--no-preflight` writes without preflight")
    assert "koguma_preflight_available 0.0" in metrics


def test_control_plane_reports_end_of_unavailability(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (program := tmp_path / "envoy").write_text("#!/bin/sh\n")
    shown, itself = Preflight(program, 10), sandboxed_envoy()

    async def recovers() -> None:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watched(shown, rejects_writes=True, interval=0.01))
            await eventually_on_loop(lambda: bool(shown.unavailable))
            program.unlink()
            program.symlink_to(itself)
            await eventually_on_loop(lambda: not shown.unavailable and "preflight.available" in capsys.readouterr().out)
            watching.cancel()

    asyncio.run(recovers())
    assert list(unavailability(shown, rejects_writes=True)) == []


def test_a_write_is_not_made_where_the_envoy_cannot_be_asked(start: Unit) -> None:
    api = with_envoy(start, Path("/no/such/envoy"))

    answer = api.put("/meshes/default/meshtimeouts/slow", timeout())
    assert (answer.status_code, "`?preflight=false` (koguma: --no-preflight) writes" in answer.json()["detail"]) == (
        503,
        True,
    )
    assert api.get("/meshes/default/meshtimeouts/slow").status_code == 404
    registered = api.put("/meshes/default/dataplanes/web-2", dataplane("web-2"), koguma_owner="run-1")
    assert registered.status_code == 201
    assert api.put("/meshes/default/meshtimeouts/slow", timeout(), koguma_owner="run-1").status_code == 503


def test_a_write_without_the_preflight_that_is_asked_for_says_so_in_history_and_log(
    start: Unit, capsys: pytest.CaptureFixture[str]
) -> None:
    api = with_envoy(start, Path("/no/such/envoy"))
    capsys.readouterr()
    slow = {"resources": [{"text": yaml.safe_dump(timeout())}]}
    writes = [
        api.post("/_apply?preflight=false", json=slow),
        api.put("/meshes/default/meshtimeouts/slow?preflight=false", timeout(request_timeout="1s")),
        api.delete("/meshes/default/meshtimeouts/slow?preflight=false"),
        api.put("/meshes/default/dataplanes/web-2?preflight=false", dataplane("web-2"), koguma_owner="run-1"),
    ]
    back = int(writes[0].headers["koguma-revision"])
    writes.append(api.post("/_rollback?preflight=false", json={"revision": back}))

    assert [write.status_code for write in writes] == [200, 200, 200, 201, 200]
    assert [origin.rpartition(" from ")[0] for origin in origins(api)][:5] == [
        f"rollback to {back} without preflight",
        "registration",
        "DELETE without preflight",
        "PUT without preflight",
        "apply without preflight",
    ]
    lines = [line for line in capsys.readouterr().out.splitlines() if " api." in line]
    assert ["preflight=skipped" in line for line in lines] == [True, True, True, False, True]


def test_where_no_preflight_is_asked_for_none_is_skipped(start: Unit) -> None:
    api = with_envoy(start, Path("/no/such/envoy"), is_asked_first=False)

    assert not any("preflight" in origin for origin in origins(api))


def origins(api: Api) -> list[str]:
    """By which ways changes came, the newest first; what came with one write counts once."""
    changes = api.get("/_history?registrations=true").json()["items"]
    return list({change["revision"]: change["origin"] for change in changes}.values())


def test_a_control_plane_without_an_envoy_says_so(api: Api) -> None:
    answer = api.put("/meshes/default/meshtimeouts/slow?preflight=true", timeout())

    assert (answer.status_code, "set KOGUMA_PREFLIGHT_ENVOY" in answer.json()["detail"]) == (400, True)


def test_the_way_between_two_folders_is_shown_to_an_envoy_of_this_machine(offline: Koguma, tmp_path: Path) -> None:
    before, after = tmp_path / "before.yaml", tmp_path / "after.yaml"
    before.write_text(yaml.safe_dump_all([{"type": "Mesh", "name": "default"}, dataplane()]))
    after.write_text(before.read_text() + "---\n" + yaml.safe_dump(REFUSED))
    arguments = (
        "plan",
        "--from",
        before,
        "--to",
        after,
        "--preflight",
        "--no-findings",
        "--envoy-path",
        sandboxed_envoy(),
    )

    ended = offline(*arguments)
    assert (ended.status, ended.err) == (1, "Error: Envoy NACKs a part of the result\n")
    assert ended.out.startswith("1 resource would change")
    assert "was shown 1 resource of 1 proxy, and NACKs 1 of them\n" in ended.out
    assert "\n- clusters bad of web-1: " in ended.out
    part = rf"spec\.default\.appendModifications\[0\], {after}:\d+"
    assert re.search(rf"    made of MeshProxyPatch bad \({part}\), in this change\n", ended.out)
    assert json.loads(offline(*arguments, "--output", "json").out)["preflight"]["shown"] == 1
    assert offline(*arguments, "--envoy-path", "/no/such/envoy").status == 1
    (script := tmp_path / "envoy").write_text("#!/bin/sh\n")
    script.chmod(0o700)
    assert f"{script} is no ELF binary; name Envoy itself" in offline(*arguments, "--envoy-path", script).err


def test_the_command_line_asks_the_envoy_of_a_control_plane(tmp_path: Path) -> None:
    (mesh := tmp_path / "mesh.yaml").write_text(yaml.safe_dump(dataplane()))
    (bad := tmp_path / "bad.yaml").write_text(yaml.safe_dump(REFUSED))
    with running_control_plane(tmp_path, preflight_envoy=sandboxed_envoy()) as running:
        koguma = Koguma(f"http://127.0.0.1:{running.http_port}")
        taken = koguma("apply", "-f", mesh, "--preflight")
        applied, planned = koguma("apply", "-f", bad, "--preflight"), koguma("plan", "-f", bad, "--preflight")
        stored = koguma("get", "meshproxypatches", "bad")

    assert (applied.status, "Envoy 1." in applied.err, f"{bad}:" in applied.err) == (1, True, True)
    assert (taken.status, "was shown 3 resources of 1 proxy, and loads all of them\n" in taken.out) == (0, True)
    assert "preflight proves that this version of Envoy loads what it was shown" in taken.out
    assert (planned.status, "and NACKs 1 of them\n" in planned.out) == (1, True)
    assert stored.status == 1


def test_the_command_line_writes_without_preflight_where_a_person_asks_for_that(tmp_path: Path) -> None:
    """The Envoy does not start, so each write without the option fails."""
    (mesh := tmp_path / "mesh.yaml").write_text(yaml.safe_dump(dataplane()))
    (slow := tmp_path / "slow.yaml").write_text(yaml.safe_dump(timeout()))
    settings = {"preflight_envoy": Path("/no/such/envoy"), "preflights_writes": True}
    commands = [
        ("apply", "-f", mesh),
        ("apply", "-f", slow),
        ("delete", "-f", slow),
        ("import", slow),
        ("rollback", "1", "--only", "meshtimeout/slow"),
    ]
    with running_control_plane(tmp_path, **settings) as running:
        koguma = Koguma(f"http://127.0.0.1:{running.http_port}")
        for command in commands:
            refused, done = koguma(*command), koguma(*command, "--no-preflight")
            assert (refused.status, "koguma: --no-preflight" in refused.err) == (1, True), command
            assert done.status == 0, done.err
        history = koguma("history", "meshtimeout", "slow").out
    assert history.count("without preflight from") == len(commands) - 1


def test_every_command_reports_preflight(tmp_path: Path) -> None:
    (mesh := tmp_path / "mesh.yaml").write_text(yaml.safe_dump(dataplane()))
    (taken := tmp_path / "taken.yaml").write_text(yaml.safe_dump(lua("print(1)")))
    commands = [("apply", "-f", taken), ("delete", "-f", taken), ("import", taken), ("rollback", "4")]
    with running_control_plane(tmp_path, preflight_envoy=sandboxed_envoy()) as running:
        koguma = Koguma(f"http://127.0.0.1:{running.http_port}")
        assert koguma("apply", "-f", mesh).status == 0
        written = [koguma(*command, "--preflight") for command in commands]
        (data,) = json.loads(koguma("apply", "-f", taken, "--preflight", "-o", "json").out)["preflight"]

    assert [(each.status, "preflight: Envoy 1." in each.out) for each in written] == [(0, True)] * len(commands)
    assert "inbound:127.0.0.1:8080 were shown to an Envoy in part: its Lua code is not judged" in written[0].err
    assert "1 resource it was shown in part" in written[0].out
    assert [each["name"] for each in data["shownInPart"]] == ["inbound:127.0.0.1:8080"]


@pytest.mark.parametrize("command", [("apply", "-f"), ("import",), ("rollback",)])
def test_no_dry_run_is_shown_to_an_envoy(offline: Koguma, tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "1").write_text(yaml.safe_dump(timeout()))
    ended = offline(*command, tmp_path / "1" if command != ("rollback",) else "1", "--dry-run", "--preflight")

    assert (ended.status, "--preflight cannot be combined with --dry-run" in ended.err) == (2, True)
