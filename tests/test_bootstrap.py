"""The bootstrap configuration of an Envoy."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from generators.bootstrap import (
    ADMIN_CLUSTER,
    RUNTIME,
    SYSTEM_CA,
    ControlPlane,
    EnvoyIdentity,
    ListenAddress,
    bootstrap,
)
from generators.envoy import names
from tests.support.envoy import envoy_binary
from tests.support.loopback import new_address
from tests.support.waiting import eventually

CONTROL_PLANE = ControlPlane(ListenAddress("127.0.0.1", 5678))


def proxy(name: str = "web-1", **changes: Any) -> EnvoyIdentity:
    given: dict[str, Any] = {"mesh": "default", "service": "web", "admin": ListenAddress("127.0.0.1", 9901)}
    return EnvoyIdentity(name=name, **(given | changes))


def validated(folder: Path, given: EnvoyIdentity, control_plane: ControlPlane) -> subprocess.CompletedProcess[str]:
    (config := folder / "bootstrap.json").write_text(json.dumps(bootstrap(given, control_plane)))
    command = [str(envoy_binary()), "--mode", "validate", "-l", "warning", "-c", str(config)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.envoy
@pytest.mark.parametrize("name", ["web-1", "n", "y", "1e3", "null"])
def test_envoy_accepts_it_whatever_the_proxy_is_called(tmp_path: Path, name: str) -> None:
    known = {name: [1, None, True, {"x": name}]}
    given = proxy(
        name, service=name, zone=name, token=name, system_ca="/nowhere/ca.pem", metadata=known, has_limits=True
    )

    run = validated(tmp_path, given, CONTROL_PLANE)

    assert run.returncode == 0, run.stderr
    assert "deprecated" not in run.stderr.lower()


@pytest.mark.envoy
def test_envoy_accepts_several_control_planes(tmp_path: Path) -> None:
    run = validated(tmp_path, proxy(), SEVERAL)

    assert run.returncode == 0, run.stderr


@pytest.mark.envoy
def test_envoy_starts_without_a_warning(tmp_path: Path) -> None:
    given = proxy(admin=ListenAddress(socket=str(tmp_path / "admin.sock")))
    silent = socket.create_server(new_address())
    silent.settimeout(20)
    control_plane = ControlPlane(ListenAddress(*silent.getsockname()))
    (config := tmp_path / "bootstrap.json").write_text(json.dumps(bootstrap(given, control_plane)))
    command = [str(envoy_binary()), "-l", "warning", "-c", str(config), "--use-dynamic-base-id"]

    with silent, (tmp_path / "log").open("w+") as log, subprocess.Popen(command, stderr=log) as envoy:
        try:
            eventually((tmp_path / "admin.sock").exists)
            with silent.accept()[0]:  # it has begun to ask for its configuration
                lines = (tmp_path / "log").read_text().splitlines()
        finally:
            envoy.terminate()

    assert not [line for line in lines if "[warning]" in line]


def test_a_proxy_without_its_first_configuration_waits_for_it() -> None:
    resources = bootstrap(proxy(), CONTROL_PLANE)["dynamicResources"]

    assert {resources[source]["initialFetchTimeout"] for source in ("cdsConfig", "ldsConfig")} == {"0s"}


def test_a_proxy_says_who_it_is_once_a_stream() -> None:
    assert bootstrap(proxy(), CONTROL_PLANE)["dynamicResources"]["adsConfig"]["setNodeOnFirstMessageOnly"]


def test_a_control_plane_that_hangs_is_noticed() -> None:
    cluster, _ = bootstrap(proxy(), CONTROL_PLANE)["staticResources"]["clusters"]
    (options,) = cluster["typedExtensionProtocolOptions"].values()

    assert options["explicitHttpConfig"]["http2ProtocolOptions"]["connectionKeepalive"] == {
        "interval": "30s",
        "timeout": "5s",
    }


def test_a_control_plane_may_listen_on_a_socket() -> None:
    cluster, _ = bootstrap(proxy(), ControlPlane(ListenAddress(socket="/run/ads.sock")))["staticResources"]["clusters"]
    endpoint = cluster["loadAssignment"]["endpoints"][0]["lbEndpoints"][0]["endpoint"]

    assert (cluster["type"], endpoint["address"]) == ("STATIC", {"pipe": {"path": "/run/ads.sock"}})


SEVERAL = ControlPlane(
    ListenAddress("cp-1.example", 5678),
    over_tls=True,
    fallbacks=(ListenAddress("cp-2.example", 5679), ListenAddress("10.0.0.3", 5678)),
)


def test_several_control_planes_are_endpoints_of_which_each_proves_its_own_name() -> None:
    cluster, _ = bootstrap(proxy(), SEVERAL)["staticResources"]["clusters"]
    (locality,) = cluster["loadAssignment"]["endpoints"]
    sockets = {match["match"]["host"]: match["transportSocket"] for match in cluster["transportSocketMatches"]}
    endpoints = [
        (
            host["endpoint"]["address"]["socketAddress"]["portValue"],
            proven_names(sockets[host["metadata"]["filterMetadata"]["envoy.transport_socket_match"]["host"]]),
        )
        for host in locality["lbEndpoints"]
    ]

    assert cluster["type"] == "STRICT_DNS"
    assert endpoints == [(5678, ["cp-1.example"]), (5679, ["cp-2.example"]), (5678, ["10.0.0.3"])]


def proven_names(socket: Any) -> list[str]:
    context = socket["typedConfig"]["commonTlsContext"]["validationContext"]
    return [name["matcher"]["exact"] for name in context["matchTypedSubjectAltNames"]]


def test_those_that_lose_one_of_several_come_to_the_others_spread_over_some_time() -> None:
    def interval(control_plane: ControlPlane) -> str:
        (service,) = bootstrap(proxy(), control_plane)["dynamicResources"]["adsConfig"]["grpcServices"]
        return str(service["envoyGrpc"]["retryPolicy"]["retryBackOff"]["baseInterval"])

    assert interval(SEVERAL) == "0.500s"
    assert interval(ControlPlane(ListenAddress("control-planes.example", 5678))) == "0.500s", "it may have several"
    assert interval(CONTROL_PLANE) == interval(ControlPlane(ListenAddress("localhost", 5678))) == "0.100s"


def test_a_socket_whose_path_the_kernel_would_refuse_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 107 characters"):
        ListenAddress(socket="/" + "x" * 107)


def test_what_nobody_knows_is_left_out() -> None:
    assert set(bootstrap(proxy(), CONTROL_PLANE)["node"]) == {"id", "cluster"}


def test_importing_it_warns_of_nothing() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", "import generators.bootstrap"], check=True)


def test_what_others_refer_to_is_there_under_the_name_that_they_know() -> None:
    resources = bootstrap(proxy(), CONTROL_PLANE)["staticResources"]

    assert (ADMIN_CLUSTER, RUNTIME, SYSTEM_CA) == (names.ADMIN, names.RUNTIME, names.SYSTEM_CA)
    assert [secret["name"] for secret in resources["secrets"]] == [names.SYSTEM_CA]
