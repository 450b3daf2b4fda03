"""docker-compose.yml says what Compose accepts, and its commands do what they are there for."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.client import TICK, call
from tests.support.compose import FILE, Compose, compose_binary, configuration, mounts
from tests.support.envoy import ROOT, envoy_binary
from tests.support.loopback import Address, own_network
from tests.support.waiting import eventually

BOOTSTRAPS = sorted((ROOT / "envoy-configs").iterdir())


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compose_binary(tmp_path_factory.mktemp("compose"))


@pytest.fixture(scope="module")
def config(binary: Path) -> dict[str, Any]:
    return configuration(binary, KOGUMA_NETWORK=own_network())


def dataplanes(network: str) -> dict[str, Any]:
    """The dataplanes that the service `resources` applies, in a network."""
    text = (ROOT / "examples/demo/containers/dataplanes.yaml").read_text().replace("{{ network }}", network)
    return {document["name"]: document for document in yaml.safe_load_all(text)}


def test_compose_accepts_the_file(config: dict[str, Any]) -> None:
    envoys = [name for name in config["services"] if name.endswith("-envoy")]

    assert len(envoys) == 3
    for name in envoys:
        assert config["services"][name]["network_mode"] == f"service:{name.removesuffix('-envoy')}"


def test_compose_would_not_accept_a_misspelt_key(binary: Path, tmp_path: Path) -> None:
    (misspelt := tmp_path / "compose.yml").write_text(FILE.read_text().replace("network_mode:", "networkmode:"))

    with pytest.raises(ValueError, match="networkmode"):
        configuration(binary, misspelt)


def test_every_mounted_file_is_there(config: dict[str, Any]) -> None:
    mounted = {path for service in config["services"].values() for path in mounts(service).values()}

    assert not [path for path in mounted if not path.is_file()]
    assert set(BOOTSTRAPS) <= mounted, "a configuration in envoy-configs that nobody uses"


def test_without_the_variable_everything_is_in_one_network(binary: Path) -> None:
    config = configuration(binary)

    subnet = config["networks"]["mesh"]["ipam"]["config"][0]["subnet"]
    network = subnet.removesuffix(".0/24")
    given = [
        network["ipv4_address"]
        for service in config["services"].values()
        for network in service.get("networks", {}).values()
        if network
    ]
    assert subnet == "172.28.5.0/24"
    assert len(given) == 5
    assert all(address.startswith(f"{network}.") for address in given)
    assert all(dataplane["networking"]["address"] in given for dataplane in dataplanes(network).values())
    assert f"--var=network={network}" in config["services"]["resources"]["command"]


def test_the_envoys_are_of_the_version_that_is_tested(config: dict[str, Any]) -> None:
    wanted = next(line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("ENVOY_VERSION"))

    images = {service["image"] for service in config["services"].values() if service["command"][0] == "envoy"}
    assert images == {f"envoyproxy/envoy:v{wanted.split()[-1]}"}


def test_each_envoy_is_the_proxy_of_a_dataplane(config: dict[str, Any]) -> None:
    nodes = {file.stem: yaml.safe_load(file.read_text())["node"] for file in BOOTSTRAPS}

    assert set(nodes) == set(dataplanes(own_network()))
    for name, dataplane in dataplanes(own_network()).items():
        gateway = dataplane["networking"].get("gateway")
        tags = (gateway or dataplane["networking"]["inbound"][0])["tags"]
        assert nodes[name] == {"id": f"default.{name}", "cluster": tags["kuma.io/service"]}
        assert (name if gateway else f"{name}-envoy") in config["services"]


@pytest.mark.envoy
@pytest.mark.parametrize("file", BOOTSTRAPS, ids=lambda file: file.stem)
def test_envoy_accepts_the_bootstrap(file: Path) -> None:
    command = [str(envoy_binary()), "--mode", "validate", "--log-level", "warning", "-c", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def compose(config: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    with Compose(config, tmp_path_factory.mktemp("containers")) as compose:
        yield compose.up()


@pytest.fixture(scope="module")
def frontend(compose: Compose) -> Address:
    frontend = Address(compose.address("frontend"), 8000)
    eventually(lambda: call(frontend).status == 200, within=30)
    return frontend


@pytest.mark.envoy
def test_a_request_comes_through_both_envoys_to_both_backends(frontend: Address) -> None:
    eventually(lambda: answering_versions(frontend) == {"v1", "v2"})


def answering_versions(frontend: Address) -> set[str]:
    """The versions of the backends that answer; while one of them starts, its share gets no answer of a backend."""
    answers = [call(frontend) for _ in range(10)]
    assert {answer.status for answer in answers} == {200}
    return {answer.seen["version"] for answer in answers}


@pytest.mark.envoy
@pytest.mark.usefixtures("frontend")
@pytest.mark.parametrize(
    ("host", "path", "status"), [("shop.localhost", "/", 200), ("shop.localhost", "/api", 200), ("other", "/", 404)]
)
def test_the_gateway_leads_to_the_services_by_hostname(compose: Compose, host: str, path: str, status: int) -> None:
    edge = Address(compose.address("edge"), 8080)

    eventually(lambda: call(edge, path, headers={"host": host}).status == status, within=20)


@pytest.fixture(scope="module")
def limited(frontend: Address) -> Address:
    """A frontend once it has the route with the longer timeout of the mounted policies."""
    eventually(lambda: call(frontend, "/slow-endpoint?delay=1.1").status == 200)
    return frontend


@pytest.mark.envoy
@pytest.mark.parametrize(
    ("path", "status", "seconds"),
    [("/?delay=3", 504, 1.0), ("/slow-endpoint?delay=1.5", 200, 1.5), ("/slow-endpoint?delay=3", 504, 2.0)],
)
def test_the_timeouts_of_the_mounted_policies_hold(limited: Address, path: str, status: int, seconds: float) -> None:
    answer = call(limited, path)

    assert answer.status == status
    assert answer.seconds >= seconds - TICK
