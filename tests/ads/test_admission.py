"""Who gets a stream, and who keeps it: a table of crossings, each over a real connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, cast

import grpc
import pytest
import structlog.testing
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DiscoveryRequest

from cp.ads.admission import Doorkeeper, NotAdmitted
from cp.ads.hub import Hub
from cp.ads.loop import DrainLoop
from cp.ads.server import AdsServer, ServerOptions, serving
from cp.ads.session.messages import Node
from cp.ads.stream import STATE_OF_THE_WORLD, Stream
from cp.model.document import Document
from cp.model.names import Key
from cp.model.registration import RESOURCE
from cp.resources.world import World
from cp.serving.reconcile import Reconciler
from cp.serving.serve import token_doorkeeper
from cp.settings import load
from cp.translate.packing import CLUSTER, SECRET
from tests.access import forge
from tests.access.test_receivers import gateway
from tests.access.test_receivers import proxy as built_in
from tests.ads.content import cluster, secret, snapshot
from tests.ads.proxy import WITHIN, Proxy
from tests.support.waiting import eventually_on_loop

WEB: Final = "default.web-1"
UNAUTHENTICATED: Final = grpc.StatusCode.UNAUTHENTICATED
PERMISSION_DENIED: Final = grpc.StatusCode.PERMISSION_DENIED
REVOCATIONS: Final = "dataplane-token-revocations-default"


def dataplane(name: str = "web-1", service: str = "web", mesh: str = "default") -> Document:
    inbound = {"port": 80, "tags": {"kuma.io/service": service}}
    networking = {"address": "10.0.0.1", "inbound": [inbound]}
    data = {"type": "Dataplane", "mesh": mesh, "name": name, "networking": networking}
    return Document(Key("Dataplane", mesh, name), data)


MESHES: Final = tuple(Document(Key("Mesh", "", name), {"type": "Mesh", "name": name}) for name in ("default", "other"))
DATAPLANES: Final = (dataplane(), dataplane("db-1", "db"), dataplane("web-1", "web", "other"))


@dataclass
class Scene:
    """A control plane with a World that can be changed, and its clock."""

    hub: Hub
    server: AdsServer
    world: World
    now: float = forge.NOW
    is_loaded: Callable[[], Any] = asyncio.Event

    async def write(self, *documents: Document, without: Iterable[Key] = ()) -> None:
        """The next World, and what follows from it for streams."""
        changes: dict[Key, Document | None] = {document.key: document for document in documents}
        self.world = self.world.next(changes | dict.fromkeys(without), self.world.revision + 1)
        await self.server.judge()

    def publish(self, proxy: str, name: str) -> None:
        self.hub.publisher.publish(proxy, snapshot(cluster(name)))


def played(
    play: Callable[[Scene], Coroutine[None, None, None]], *documents: Document, loaded: bool = True, **options: Any
) -> None:
    """With the documents beside keys, meshes and Dataplanes."""

    @asynccontextmanager
    async def scene() -> Any:
        hub, is_loaded = Hub(), asyncio.Event()
        if loaded:
            is_loaded.set()
        world = forge.world(*MESHES, *forge.signing_keys(), *DATAPLANES, *documents)
        made = Scene(hub, None, world)  # type: ignore[arg-type]
        made.is_loaded = lambda: is_loaded

        async def wait() -> None:
            await is_loaded.wait()

        door = Doorkeeper(lambda: made.world, wait, lambda: made.now)
        for proxy in (WEB, "default.db-1", "other.web-1"):
            made.publish(proxy, "secret")
        async with serving(hub, ServerOptions(grace=0.5, doorkeeper=door, **options), lambda: 0.5) as made.server:
            yield made

    async def run() -> None:
        async with scene() as made:
            await play(made)

    with asyncio.Runner(loop_factory=DrainLoop) as runner:
        runner.run(run())


def claims(**changes: Any) -> dict[str, Any]:
    return {**forge.DATAPLANE, **changes}


def bearing(token: str) -> list[tuple[str, str | bytes]]:
    return [("authorization", token)]


OF_OTHER_MESH: Final = forge.token(claims(Mesh="other"), key=forge.private_key(2))
GOOD: Final = forge.token(claims())
UNSIGNED: Final = f"{forge.part({'alg': 'none', 'kid': '1'})}.{forge.part(claims())}."


def hmac_with_public_key() -> str:
    import hashlib  # noqa: PLC0415  # this forgery alone
    import hmac  # noqa: PLC0415

    text = f"{forge.part({'alg': 'HS256', 'kid': '1'})}.{forge.part(claims())}"
    mac = hmac.new(forge.public_pem(forge.private_key()), text.encode(), hashlib.sha256).digest()
    return f"{text}.{forge.encoded(mac)}"


def other_claims_under(token: str) -> str:
    header, _, signature = token.split(".")
    return f"{header}.{forge.part(claims(Name='db-1'))}.{signature}"


CROSSINGS: Final[Mapping[str, tuple[list[tuple[str, str | bytes]], str, grpc.StatusCode]]] = {
    "no token": ([], WEB, UNAUTHENTICATED),
    "an empty token": (bearing(""), WEB, UNAUTHENTICATED),
    "no more than the word": (bearing("Bearer "), WEB, UNAUTHENTICATED),
    "no token at all, only words": (bearing("let me in"), WEB, UNAUTHENTICATED),
    "the token in another header": ([("x-authorization", GOOD)], WEB, UNAUTHENTICATED),
    "the token as bytes": ([("authorization-bin", GOOD.encode())], WEB, UNAUTHENTICATED),
    "two tokens": (bearing(GOOD) + bearing(GOOD), WEB, UNAUTHENTICATED),
    "a scheme that is none of ours": (bearing(f"Basic {GOOD}"), WEB, UNAUTHENTICATED),
    "unsigned": (bearing(UNSIGNED), WEB, UNAUTHENTICATED),
    "signed with the public key as a password": (bearing(hmac_with_public_key()), WEB, UNAUTHENTICATED),
    "signed with the key of another mesh": (
        bearing(forge.token(claims(), key=forge.private_key(2))),
        WEB,
        UNAUTHENTICATED,
    ),
    "signed with a key of nobody's": (bearing(forge.token(claims(), key=forge.private_key(3))), WEB, UNAUTHENTICATED),
    "claims under a signature of others": (bearing(other_claims_under(GOOD)), "default.db-1", UNAUTHENTICATED),
    "a number of a key that is not there": (
        bearing(forge.token(claims(), {**forge.HEADER, "kid": "2"})),
        WEB,
        UNAUTHENTICATED,
    ),
    "a key that the token brings along": (
        bearing(forge.token(claims(), {**forge.HEADER, "jwk": {"kty": "RSA"}})),
        WEB,
        UNAUTHENTICATED,
    ),
    "expired": (bearing(forge.token(claims(exp=forge.NOW))), WEB, UNAUTHENTICATED),
    "not yet valid": (bearing(forge.token(claims(nbf=forge.NOW + 1))), WEB, UNAUTHENTICATED),
    "revoked": (bearing(forge.token(claims(jti="revoked"))), WEB, UNAUTHENTICATED),
    "without an id": (bearing(forge.token(claims(jti=""))), WEB, UNAUTHENTICATED),
    "of a person": (bearing(forge.token(forge.USER)), WEB, UNAUTHENTICATED),
    "without a mesh": (bearing(forge.token(claims(Mesh=""))), WEB, UNAUTHENTICATED),
    "huge": (bearing(forge.token(claims(Name="w" * 13_000))), WEB, UNAUTHENTICATED),
    "so large that gRPC does not read it": (
        bearing(forge.token(claims(Name="w" * 40_000))),
        WEB,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    ),
    "large, and of another proxy": (bearing(forge.token(claims(Name="w" * 9_000))), WEB, PERMISSION_DENIED),
    "of another proxy": (bearing(GOOD), "default.db-1", PERMISSION_DENIED),
    "of the proxy of that name in another mesh": (bearing(GOOD), "other.web-1", PERMISSION_DENIED),
    "of a proxy that is not there": (bearing(GOOD), "default.nobody", PERMISSION_DENIED),
    "of a mesh that is not there": (bearing(GOOD), "nowhere.web-1", PERMISSION_DENIED),
    "a node without a mesh": (bearing(GOOD), "web-1", PERMISSION_DENIED),
    "a node with spaces": (bearing(GOOD), "default.web-1 ", PERMISSION_DENIED),
    "a node in capitals": (bearing(GOOD), "default.WEB-1", PERMISSION_DENIED),
    "of a zone ingress": (bearing(forge.token(claims(Type="ingress"))), WEB, PERMISSION_DENIED),
    "of another service": (
        bearing(forge.token(claims(Name="", Tags={"kuma.io/service": ["web"]}))),
        "default.db-1",
        PERMISSION_DENIED,
    ),
    "of a tag that the proxy has not": (
        bearing(forge.token(claims(Tags={"team": ["a"]}))),
        WEB,
        PERMISSION_DENIED,
    ),
    "of a workload that the proxy is not": (bearing(forge.token(claims(Workload="db"))), WEB, PERMISSION_DENIED),
}

REVOKED: Final = forge.secret(REVOCATIONS, b"revoked", "default")


@pytest.mark.parametrize("method", ["StreamAggregatedResources", "DeltaAggregatedResources"])
def test_every_crossing_is_refused_with_its_status_and_served_nothing(method: str) -> None:
    async def play(scene: Scene) -> None:
        for crossing, (metadata, node, expected) in CROSSINGS.items():
            async with Proxy(scene.server.port, node, metadata, method=method) as proxy:
                with structlog.testing.capture_logs() as logs:
                    if expected is PERMISSION_DENIED:  # the others are refused before a word of theirs is read
                        request = first_request(node, delta=method.startswith("Delta"))
                        await proxy.say(request)
                    status, reason = await proxy.end()
            assert (crossing, status) == (crossing, expected), reason
            assert not any(str(value) in reason for _, value in metadata if len(value) > 20)
            assert not any(str(value) in str(logs) for _, value in metadata if len(value) > 20)
        assert set(scene.hub.observer.stream_counts().values()) <= {0}
        assert sent(scene) == 0

    played(play, REVOKED)


def first_request(node: str, *, delta: bool) -> bytes:
    request = (DeltaDiscoveryRequest if delta else DiscoveryRequest)(type_url=CLUSTER)
    request.node.id = node
    return request.SerializeToString()


def sent(scene: Scene) -> float:
    samples = (sample for family in scene.hub.metrics.registry.collect() for sample in family.samples)
    return sum(sample.value for sample in samples if sample.name == "koguma_ads_messages_sent_total")


@pytest.mark.parametrize(
    ("token", "node"),
    {
        "of this proxy": (GOOD, WEB),
        "behind the word Bearer": (f"Bearer {GOOD}", WEB),
        "behind the word in lower case": (f"bearer {GOOD}", WEB),
        "of any proxy of the mesh": (forge.token(claims(Name="")), "default.db-1"),
        "of the service": (forge.token(claims(Name="", Tags={"kuma.io/service": ["db", "web"]})), "default.db-1"),
        "of another mesh, for that": (
            OF_OTHER_MESH,
            "other.web-1",
        ),
    }.values(),
)
def test_a_good_token_is_served(token: str, node: str) -> None:
    async def play(scene: Scene) -> None:
        async with Proxy(scene.server.port, node, bearing(token)) as proxy:
            await proxy.ask(CLUSTER)
            assert (await proxy.hear()).resources[0].value == cluster("secret").body

    played(play)


async def served(proxy: Proxy) -> None:
    """Until the proxy has its first configuration and has said so."""
    await proxy.ask(CLUSTER)
    await proxy.answer(await proxy.hear())


@pytest.mark.parametrize(
    ("change", "status", "reason"),
    {
        "its token is revoked": ([forge.secret(REVOCATIONS, b"other, id-1", "default")], UNAUTHENTICATED, "revoked"),
        "its key is replaced": (
            [forge.secret("dataplane-token-signing-key-default-1", forge.pem(forge.private_key(3)), "default")],
            UNAUTHENTICATED,
            "signature",
        ),
        "its Dataplane becomes that of another service": ([dataplane(service="db")], PERMISSION_DENIED, "`db`"),
    }.values(),
)
def test_a_stream_ends_when_its_proxy_is_no_longer_admitted(
    change: list[Document], status: grpc.StatusCode, reason: str
) -> None:
    async def play(scene: Scene) -> None:
        token = forge.token(claims(Tags={"kuma.io/service": ["web"]}))
        async with (
            Proxy(scene.server.port, WEB, bearing(token)) as proxy,
            Proxy(scene.server.port, "other.web-1", bearing(OF_OTHER_MESH)) as bystander,
        ):
            await served(proxy)
            await served(bystander)
            await scene.write(*change)

            ended, why = await proxy.end()
            assert (ended, reason in why) == (status, True), why
            scene.publish("other.web-1", "more")
            assert (await bystander.hear()).resources[0].value == cluster("more").body

    played(play)


def test_a_stream_ends_when_the_key_is_removed() -> None:
    async def play(scene: Scene) -> None:
        async with Proxy(scene.server.port, WEB, bearing(GOOD)) as proxy:
            await served(proxy)
            await scene.write(without=[Key("Secret", "default", "dataplane-token-signing-key-default-1")])
            assert (await proxy.end())[0] == UNAUTHENTICATED

    played(play)


def is_writing(stream: Stream) -> bool:
    """Whether it has taken what there is and has not sent all of it."""
    return stream._published is not None and not stream._outbox and stream._recently_sent > 0


def test_a_stream_ends_also_while_its_first_response_is_on_its_way() -> None:
    async def play(scene: Scene) -> None:
        scene.publish(WEB, "x" * (3 << 20))  # more than goes to a client that does not read
        async with Proxy(scene.server.port, WEB, bearing(GOOD)) as proxy:
            await proxy.ask(CLUSTER)
            await eventually_on_loop(lambda: [stream for stream in scene.server._streams if is_writing(stream)])
            await scene.write(without=[Key("Secret", "default", "dataplane-token-signing-key-default-1")])
            assert (await proxy.end())[0] == UNAUTHENTICATED

    played(play)


def test_nothing_is_sent_any_more_once_the_world_says_that_the_token_is_revoked() -> None:
    async def play(scene: Scene) -> None:
        async with Proxy(scene.server.port, WEB, bearing(GOOD)) as proxy:
            await served(proxy)
            before = await eventually_on_loop(lambda: sent(scene))  # counted after it came
            # As the reconciler does: snapshots first, then the World, and nobody has judged the stream yet.
            scene.publish(WEB, "newer")
            key = Key("Secret", "default", REVOCATIONS)
            scene.world = scene.world.next({key: forge.secret(REVOCATIONS, b"id-1", "default")}, 7)

            assert (await proxy.end())[0] == UNAUTHENTICATED
            assert sent(scene) == before

    played(play)


class SlowClient:
    """What gRPC hands to a stream whose client asks for two types, and takes each response when it is told to."""

    def __init__(self) -> None:
        self._requests = [
            first_request(WEB, delta=False),
            DiscoveryRequest(type_url=SECRET, resource_names=["key"]).SerializeToString(),
        ]
        self.takes = asyncio.Event()
        self.written: list[bytes] = []
        self.status: grpc.StatusCode | None = None

    def peer(self) -> str:
        return "nowhere"

    def invocation_metadata(self) -> list[tuple[str, str | bytes]]:
        return bearing(GOOD)

    async def read(self) -> object:
        if not self._requests:
            await asyncio.Event().wait()
        return self._requests.pop(0)

    async def send_initial_metadata(self, _: object) -> None:
        pass

    async def write(self, response: bytes) -> None:
        self.written.append(response)
        await self.takes.wait()

    def set_code(self, status: grpc.StatusCode) -> None:
        self.status = status

    def set_details(self, reason: str) -> None:
        self.reason = reason


def test_what_waits_to_be_written_is_not_sent_once_the_token_is_revoked() -> None:
    async def play(scene: Scene) -> None:
        client = SlowClient()
        scene.hub.publisher.publish(WEB, snapshot(cluster("a"), secret("key")))
        stream = Stream(STATE_OF_THE_WORLD, scene.server._surroundings)
        async with asyncio.timeout(WITHIN), asyncio.TaskGroup() as group:
            group.create_task(stream.serve(client))  # type: ignore[arg-type]  # what is used of it
            await eventually_on_loop(lambda: len(client.written) == 1 and len(stream._outbox) == 1)
            # Nobody has judged the stream yet.
            revoked = forge.secret(REVOCATIONS, b"id-1", "default")
            scene.world = scene.world.next({revoked.key: revoked}, 7)
            client.takes.set()
            await eventually_on_loop(lambda: client.status is not None or len(client.written) > 1)
            assert (client.status, len(client.written)) == (UNAUTHENTICATED, 1)

    played(play)


def test_a_stream_ends_when_its_token_expires() -> None:
    async def play(scene: Scene) -> None:
        token = forge.token(claims(exp=forge.NOW + 0.2))
        async with Proxy(scene.server.port, WEB, bearing(token)) as proxy:
            await served(proxy)
            scene.now = forge.NOW + 1
            status, reason = await proxy.end()
            assert (status, "expired" in reason) == (UNAUTHENTICATED, True)

    played(play)


def test_a_change_of_other_proxies_and_secrets_of_other_meshes_judges_nobody() -> None:
    async def play(scene: Scene) -> None:
        async with Proxy(scene.server.port, WEB, bearing(GOOD)) as proxy:
            await served(proxy)
            judged: list[str] = []
            stream = next(iter(scene.server._streams))
            stream.judge = lambda: judged.append("again")  # type: ignore[method-assign]
            await scene.write(dataplane("db-1", "other"), forge.secret("any", b"x", "other"))
            assert not judged
            await scene.write(dataplane())
            assert judged == ["again"]

    played(play)


def test_a_proxy_whose_dataplane_is_not_there_is_judged_by_the_one_that_it_brings() -> None:
    async def play(scene: Scene) -> None:
        token = forge.token(claims(Name="", Tags={"kuma.io/service": ["web"]}))
        for service, expected in (("web", None), ("db", PERMISSION_DENIED)):
            async with Proxy(scene.server.port, "default.new-1", bearing(token)) as proxy:
                request = DiscoveryRequest(type_url=CLUSTER)
                request.node.id = proxy.name
                request.node.metadata.fields[RESOURCE].string_value = json.dumps(dataplane("new-1", service).data)
                await proxy.say(request.SerializeToString())
                if expected is None:
                    await eventually_on_loop(lambda: bool(scene.hub.observer.of("default.new-1")))
                    # What is in force counts from now on, whatever it brought along.
                    await scene.write(dataplane("new-1", "db"))
                    assert (await proxy.end())[0] == PERMISSION_DENIED
                    await scene.write(without=[Key("Dataplane", "default", "new-1")])
                else:
                    assert (await proxy.end())[0] == expected

    played(play)


def test_a_proxy_that_brings_a_gateway_with_keys_needs_a_token_that_names_its_service() -> None:
    """The text that it brings is stored again where its Dataplane was removed as missing."""

    async def play(scene: Scene) -> None:
        for tags, expected in (({}, PERMISSION_DENIED), ({"kuma.io/service": ["edge"]}, None)):
            token = forge.token(claims(Name="p", Tags=tags))
            async with Proxy(scene.server.port, "default.p", bearing(token)) as proxy:
                request = DiscoveryRequest(type_url=CLUSTER)
                request.node.id = proxy.name
                request.node.metadata.fields[RESOURCE].string_value = json.dumps(built_in({}).data)
                await proxy.say(request.SerializeToString())
                if expected is None:
                    await eventually_on_loop(lambda: bool(scene.hub.observer.of("default.p")))
                else:
                    status, reason = await proxy.end()
                    assert (status, "the keys of MeshGateway edge" in reason) == (expected, True), reason

    played(play, gateway({}))


def test_a_proxy_that_could_choose_who_it_is_by_a_label_needs_a_token_that_names_the_workload() -> None:
    spec = {"selector": {"dataplane": {}}, "spiffeID": {"path": '/{{ label "kuma.io/workload" }}'}}
    identity = Document(
        Key("MeshIdentity", "default", "all"),
        {"type": "MeshIdentity", "mesh": "default", "name": "all", "spec": {**spec, "provider": BUNDLED}},
    )
    labelled = Document(dataplane().key, {**dataplane().data, "labels": {"kuma.io/workload": "web"}})

    async def play(scene: Scene) -> None:
        async with (
            Proxy(scene.server.port, WEB, bearing(GOOD)) as proxy,
            Proxy(scene.server.port, WEB, bearing(forge.token(claims(Workload="web")))) as named,
        ):
            await served(proxy)
            await served(named)
            await scene.write(identity)
            status, reason = await proxy.end()
            assert (status, "names no workload" in reason) == (PERMISSION_DENIED, True), reason
            scene.publish(WEB, "more")
            assert (await named.hear()).resources

    played(play, labelled)


BUNDLED: Final = {"type": "Bundled", "bundled": {"autogenerate": {"enabled": True}}}


def test_a_stream_waits_until_the_store_was_read() -> None:
    async def play(scene: Scene) -> None:
        async with Proxy(scene.server.port, WEB, bearing(GOOD)) as proxy:
            await proxy.ask(CLUSTER)
            await eventually_on_loop(lambda: len(scene.server._streams) == 1)
            scene.is_loaded().set()
            assert (await proxy.hear()).resources

    played(play, loaded=False)


@pytest.mark.parametrize("change", ["revoked", "key removed", "expired"])
def test_a_token_that_is_no_longer_good_when_the_first_request_comes_opens_nothing(change: str) -> None:
    now, worlds = [forge.NOW], [forge.world(*MESHES, *forge.signing_keys(), *DATAPLANES)]

    async def loaded() -> None:
        """The World is there."""

    async def admitted() -> None:
        door = Doorkeeper(lambda: worlds[-1], loaded, lambda: now[0])
        good = door.claims(GOOD)
        revocations = forge.secret(REVOCATIONS, b"id-1", "default")
        if change == "revoked":
            worlds.append(worlds[-1].next({revocations.key: revocations}, 7))
        elif change == "key removed":
            worlds.append(worlds[-1].next({Key("Secret", "default", "dataplane-token-signing-key-default-1"): None}, 7))
        else:
            now[0] = good.expires
        await door.admission(GOOD, good, Node(WEB))

    with pytest.raises(NotAdmitted) as refused:
        asyncio.run(admitted())
    assert refused.value.status == UNAUTHENTICATED


def test_a_proxy_that_asks_for_nothing_keeps_no_stream() -> None:
    async def play(scene: Scene) -> None:
        async with Proxy(scene.server.port, WEB, bearing(GOOD)) as proxy:
            status, reason = await proxy.end()
            assert (status, "first request" in reason) == (grpc.StatusCode.DEADLINE_EXCEEDED, True), reason
        await eventually_on_loop(lambda: not scene.server._streams)
        assert 'koguma_ads_streams_refused_total{reason="silent"} 1.0' in scene.hub.metrics.text().decode()

    played(play, first_request=0.1)


def test_a_proxy_that_has_asked_may_be_silent_afterwards() -> None:
    async def play(scene: Scene) -> None:
        async with Proxy(scene.server.port, WEB, bearing(GOOD)) as proxy:
            await served(proxy)
            async with Proxy(scene.server.port, WEB, bearing(GOOD)) as silent:
                assert (await silent.end())[0] == grpc.StatusCode.DEADLINE_EXCEEDED
            scene.publish(WEB, "more")
            assert (await proxy.hear()).resources

    played(play, first_request=1.0)


def test_a_proxy_cannot_become_another_one_on_its_stream() -> None:
    async def play(scene: Scene) -> None:
        async with Proxy(scene.server.port, WEB, bearing(GOOD)) as proxy:
            await served(proxy)
            proxy.name = "default.db-1"
            await proxy.ask(CLUSTER)
            status, reason = await proxy.end()
            assert (status, "node.id" in reason) == (grpc.StatusCode.INVALID_ARGUMENT, True)

    played(play)


def test_what_is_refused_is_counted_by_its_sort() -> None:
    async def play(scene: Scene) -> None:
        for metadata, node in (([], WEB), (bearing(GOOD), "default.db-1")):
            async with Proxy(scene.server.port, node, metadata) as proxy:
                if metadata:
                    await proxy.ask(CLUSTER)
                await proxy.end()
        text = scene.hub.metrics.text().decode()
        assert 'koguma_ads_streams_refused_total{reason="unauthenticated"} 1.0' in text
        assert 'koguma_ads_streams_refused_total{reason="forbidden"} 1.0' in text

    played(play)


def test_whoever_shows_no_good_token_takes_no_place_and_is_told_nothing_of_limits() -> None:
    async def play(made: Scene) -> None:
        port = made.server.port
        async with Proxy(port, WEB, bearing(UNSIGNED)) as before, Proxy(port, WEB, bearing(GOOD)) as good:
            assert (await before.end())[0] is UNAUTHENTICATED
            await good.ask(CLUSTER)
            await good.hear()
            async with Proxy(port, WEB) as stranger, Proxy(port, WEB, bearing(GOOD)) as second:
                assert (await stranger.end())[0] is UNAUTHENTICATED
                assert (await second.end())[0] is grpc.StatusCode.RESOURCE_EXHAUSTED

    played(play, most_streams=1)


def test_doorkeeper_waits_for_writes_on_demand() -> None:
    async def current() -> None: ...

    async def loaded() -> None: ...

    reconciler = cast("Reconciler", SimpleNamespace(current=current, loaded=loaded))
    awaited = [token_doorkeeper(load(), reconciler, waits_for_writes=waits).loaded for waits in (True, False)]

    assert awaited == [current, loaded]
