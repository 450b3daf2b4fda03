"""Real Envoys at a control plane that speaks TLS and asks for tokens."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any, Final

import grpc
import httpx
import pytest
import trustme
import yaml

from cp.translate.packing import CLUSTER
from tests.access import forge
from tests.ads.proxy import Proxy as AdsClient
from tests.support.client import call
from tests.support.control_plane import KOGUMA, ControlPlane
from tests.support.edge import all_to
from tests.support.envoy import Envoy, envoy_binary
from tests.support.loopback import Address
from tests.support.mesh import MESH, Proxy, listener, mesh_gateway, mesh_service
from tests.support.playground import Playground, playground
from tests.support.processes import Running
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

LOCKED: Final = {"KOGUMA_DP_SERVER_TLS": "on", "KUMA_DP_SERVER_AUTHN_DP_PROXY_TYPE": "dpToken"}
REVOCATIONS: Final = "dataplane-token-revocations-default"


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    with playground(tmp_path_factory.mktemp("mesh"), **LOCKED) as mesh:
        mesh.control_plane.apply(MESH, *(dict(document.data) for document in forge.signing_keys()[:1]))
        mesh.control_plane.apply(mesh_service("backend"))
        mesh.bare("backend", "backend")
        yield mesh


def token(proxy: str, **changes: Any) -> str:
    now = int(time.time())
    claims = {**forge.DATAPLANE, "Name": proxy, "jti": f"of-{proxy}", "iat": now, "nbf": now - 5, "exp": now + 600}
    return forge.token({**claims, **changes})


def revoke(control_plane: ControlPlane, *ids: str) -> None:
    control_plane.apply(dict(forge.secret(REVOCATIONS, ",".join(ids).encode(), "default").data))


def bootstrap(mesh: Playground, proxy: Proxy, *, delta: bool = True, **claims: Any) -> dict[str, Any]:
    """With the token in it, as Kuma's agent has it."""
    body = {
        "mesh": "default",
        "name": proxy.name,
        "dataplaneResource": yaml.safe_dump(proxy.document),
        "features": ["feature-delta-grpc"] if delta else [],
    }
    shown = token(proxy.name, **claims)
    headers = {"authorization": f"Bearer {shown}"}
    answer = mesh.control_plane.request("POST", "/bootstrap", json.dumps(body).encode(), **headers)
    made: dict[str, Any] = json.loads(answer.raise_for_status().text)
    service = made["dynamicResources"]["adsConfig"]["grpcServices"][0]
    service["initialMetadata"] = [{"key": "authorization", "value": shown}]
    return made


def validation(config: Mapping[str, Any]) -> dict[str, Any]:
    """How an Envoy verifies the control plane."""
    cluster = config["staticResources"]["clusters"][0]
    context: dict[str, Any] = cluster["transportSocket"]["typedConfig"]["commonTlsContext"]["validationContext"]
    return context


@pytest.mark.parametrize("delta", [False, True])
def test_an_envoy_with_its_token_is_served_until_it_is_revoked_and_goes_on_with_what_it_has(
    mesh: Playground, tmp_path: Path, delta: bool
) -> None:
    proxy = Proxy(f"client-{delta}".lower(), "client", backends=("backend",))
    with Envoy(bootstrap(mesh, proxy, delta=delta), tmp_path) as envoy:
        envoy.ready()
        assert call(proxy.outbound()).service == "backend"

        revoke(mesh.control_plane, f"of-{proxy.name}")

        eventually(lambda: len(refusals(mesh, proxy)) > 0, within=5)
        assert "it was revoked" in refusals(mesh, proxy)[0]
        assert call(proxy.outbound()).service == "backend"


def test_a_builtin_gateway_shows_a_token_for_its_tags(mesh: Playground, tmp_path: Path) -> None:
    proxy = Proxy("edge", "edge", gateway="BUILTIN")
    entrance = Address(proxy.host, proxy.port("http"))
    mesh.control_plane.apply(mesh_gateway("edge", listener(entrance.port)), all_to("backend"))

    with pytest.raises(httpx.HTTPStatusError, match="403"):
        bootstrap(mesh, proxy, Tags={"kuma.io/service": ["another"]})
    with Envoy(bootstrap(mesh, proxy, Tags={"kuma.io/service": ["edge"]}), tmp_path) as envoy:
        envoy.ready()
        assert call(entrance).service == "backend"


def refusals(mesh: Playground, proxy: Proxy) -> list[str]:
    """Why the proxy was turned away."""
    events = mesh.control_plane.events("proxy.refused")
    return [event["reason"] for event in events if event.get("proxy") == f"default.{proxy.name}"]


def test_an_envoy_that_verifies_another_authority_or_name_or_speaks_no_tls_is_served_nothing(
    mesh: Playground, tmp_path: Path
) -> None:
    spoilt = {"authority": Proxy("one", "one"), "name": Proxy("two", "two"), "plain": Proxy("three", "three")}
    configs = {fault: bootstrap(mesh, proxy) for fault, proxy in spoilt.items()}
    validation(configs["authority"])["trustedCa"] = {"inlineString": trustme.CA().cert_pem.bytes().decode()}
    validation(configs["name"])["matchTypedSubjectAltNames"][0] |= {"sanType": "DNS", "matcher": {"exact": "other"}}
    del configs["plain"]["staticResources"]["clusters"][0]["transportSocket"]
    opened = mesh.control_plane.metrics().get('koguma_ads_streams_opened_total{stream="delta"}', 0)
    with (
        Envoy(configs["authority"], tmp_path) as authority,
        Envoy(configs["name"], tmp_path) as name,
        Envoy(configs["plain"], tmp_path) as plain,
    ):
        eventually(lambda: authority.stat("cluster.ads_cluster.ssl.fail_verify_error") > 0)
        eventually(lambda: name.stat("cluster.ads_cluster.ssl.fail_verify_san") > 0)
        eventually(lambda: plain.stat("cluster.ads_cluster.upstream_cx_destroy_remote") > 0)
        for envoy in (authority, name, plain):
            assert envoy.config("dynamic_listeners") == []

    assert mesh.control_plane.metrics().get('koguma_ads_streams_opened_total{stream="delta"}', 0) == opened


# --- koguma dp run --------------------------------------------------------------------------------------------------


def command(mesh: Playground, proxy: Proxy, folder: Path, *options: str) -> list[str]:
    document = proxy.document
    del document["networking"]["admin"]  # so that it is a socket in the work folder
    folder.mkdir(exist_ok=True)
    (file := folder / f"{proxy.name}.yaml").write_text(yaml.safe_dump(document))
    words = [str(KOGUMA), "dp", "run", "--dataplane-file", str(file), "--envoy-path", str(envoy_binary())]
    work = ("--cp-address", mesh.control_plane.api.url, "--work-dir", str(folder / "work"))
    return [*words, *work, *options]


@pytest.mark.long
def test_a_token_that_is_replaced_in_its_file_opens_the_door_again(mesh: Playground, tmp_path: Path) -> None:
    proxy = Proxy("rotated", "client", backends=("backend",))
    (file := tmp_path / "token").write_text(token("rotated", jti="first") + "\n")
    log, work = tmp_path / "log", tmp_path / "work"
    # Proxies of the tests before may come back for all that anybody knows, so it drains for as long as it may.
    options = ("--dataplane-token-file", str(file), "--drain-time", "2s")
    with Running(command(mesh, proxy, tmp_path, *options), log) as running:

        def serves() -> bool:
            running.check()
            return call(proxy.outbound()).status == 200

        eventually(serves, within=20)
        eventually(lambda: "ready after" in log.read_text())
        asked = "/meshes/default/dataplanes/rotated/_envoy/server_info"
        eventually(lambda: mesh.control_plane.request("GET", asked).is_success, within=10)
        assert file.read_text().strip() not in (work / "bootstrap.json").read_text()
        assert {entry.name: oct(entry.stat().st_mode & 0o077) for entry in work.iterdir()} == dict.fromkeys(
            ("bootstrap.json", "dataplane-token.json", "dp.lock", "envoy-admin.sock", "envoy.pid"), "0o0"
        )
        revoke(mesh.control_plane, "first")
        eventually(lambda: "it was revoked" in log.read_text(), within=10)

        file.write_text(token("rotated", jti="second"))

        eventually(lambda: status(mesh, proxy) == "Online", within=15)
        assert "the token was replaced" in log.read_text()

        assert running.stop() == 0
    assert "drained after" in log.read_text()
    assert "callers are not told" not in log.read_text()
    assert mesh.control_plane.find(proxy.document) is None


def status(mesh: Playground, proxy: Proxy) -> str:
    seen: str = mesh.control_plane.get(f"/meshes/default/dataplanes/{proxy.name}/_overview")["status"]
    return seen


def test_proxies_that_are_not_let_in_end_with_the_reason(mesh: Playground, tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(other := tmp_path / "other.crt")
    proxy = Proxy("refused", "client")
    tokens = {"other": token("client"), "old": token("refused", exp=1, nbf=0), "good": token("refused")}
    reasons = {
        (): "asks proxies for a token",
        ("--dataplane-token", tokens["other"]): "the token is not for",
        ("--dataplane-token", tokens["old"]): "it has expired",
        ("--dataplane-token", tokens["good"], "--ca-cert-file", str(other)): "did not sign",
    }
    with ExitStack() as stack:
        logs = {}
        for number, options in enumerate(reasons):
            line = command(mesh, proxy, tmp_path / str(number), *options)
            logs[options] = stack.enter_context(Running(line, tmp_path / f"{number}.log"))
        for options, reason in reasons.items():
            assert logs[options].wait(within=30) == 1
            output = logs[options].tail()
            assert reason in output
            assert not [secret for secret in tokens.values() if secret in output]


# --- workers ----------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_every_worker_shows_the_certificate_and_ends_what_is_revoked(tmp_path: Path) -> None:
    """No Envoy is needed for that: streams come to either of two workers, by chance."""
    store = f"sqlite:///{tmp_path / 'store.db'}"
    with ControlPlane(
        tmp_path, store, KOGUMA_WORKERS="2", KOGUMA_MOST_STREAMS_OF_PROXY="100", **LOCKED
    ) as control_plane:
        control_plane.apply(MESH, *(dict(document.data) for document in forge.signing_keys()[:1]))
        control_plane.apply(Proxy("client", "client").document)
        trusted = (tmp_path / "work" / "koguma-cp-ca.crt").read_text()
        eventually(lambda: len(set(revisions(control_plane))) == 1)

        async def scene() -> None:
            async with AsyncExitStack() as stack:
                opened = (stream(control_plane, trusted) for _ in range(20))
                streams = [await stack.enter_async_context(proxy) for proxy in opened]
                for proxy in streams:
                    await proxy.ask(CLUSTER)
                    await proxy.hear()
                await asyncio.to_thread(revoke, control_plane, "of-client")
                ends = [await proxy.end() for proxy in streams]
            assert {status for status, _ in ends} == {grpc.StatusCode.UNAUTHENTICATED}

        asyncio.run(scene())
        assert {event["worker"] for event in control_plane.events("proxy.connected")} == {1, 2}


def revisions(control_plane: ControlPlane) -> list[float]:
    """What each process serves."""
    return [value for name, value in control_plane.metrics().items() if name.startswith("koguma_world_revision{")]


def stream(control_plane: ControlPlane, trusted: str) -> AdsClient:
    metadata = [("authorization", token("client"))]
    # Each on a connection of its own, so that the kernel spreads them.
    options: dict[str, Any] = {"host": control_plane.ads.host, "use_local_subchannel_pool": 1}
    return AdsClient(control_plane.ads.port, "default.client", metadata, trusted=trusted, **options)


# --- gRPC clients without a proxy -------------------------------------------------------------------------------------


def grpc_client(name: str) -> dict[str, Any]:
    gateway = {"type": "DELEGATED", "tags": {"kuma.io/service": name}}
    labels = {"koguma.io/client": "grpc"}
    networking = {"address": "127.0.0.1", "gateway": gateway}
    return {"type": "Dataplane", "mesh": "default", "name": name, "labels": labels, "networking": networking}


@pytest.mark.long
def test_the_certificate_of_a_grpc_client_is_for_its_own_token_until_that_is_revoked(tmp_path: Path) -> None:
    mtls = {"enabledBackend": "ca", "backends": [{"name": "ca", "type": "builtin"}]}
    file, folder, log = tmp_path / "token", tmp_path / "shop", tmp_path / "agent.log"
    with ControlPlane(tmp_path, **LOCKED) as control_plane:
        control_plane.apply({**MESH, "mtls": mtls}, grpc_client("shop"), grpc_client("other"))
        control_plane.apply(*(dict(document.data) for document in forge.signing_keys()[:1]))
        authority = tmp_path / "work" / "koguma-cp-ca.crt"
        shown = ("--dataplane-token-file", str(file), "--ca-cert-file", str(authority))
        line = [str(KOGUMA), "dp", "certificates", "shop", "--dir", str(folder), *shown]
        line += ["--cp-address", control_plane.api.url]

        file.write_text(other := token("other"))
        with Running(line, tmp_path / "other.log") as running:
            assert running.wait(within=30) == 1
            assert "the token is not for" in running.tail()
        assert not folder.exists()

        file.write_text(first := token("shop", jti="first"))
        with Running(line, log) as running:
            eventually(lambda: log.read_text().count("has a certificate for spiffe://default/shop") == 1, within=30)
            assert {path.name for path in (folder / "current").iterdir()} == {
                *("certificate.pem", "key.pem", "authorities.pem")
            }
            revoke(control_plane, "first")
            eventually(lambda: "it was revoked" in log.read_text(), within=20)

            file.write_text(second := token("shop", jti="second"))
            eventually(lambda: log.read_text().count("has a certificate for") == 2, within=60)
            assert running.stop() == 0
        written = log.read_text() + (tmp_path / "other.log").read_text()
        key = (folder / "current" / "key.pem").read_text().splitlines()[1]
        assert not [secret for secret in (other, first, second, key) if secret in written]
