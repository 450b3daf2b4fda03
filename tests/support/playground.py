"""A mesh for a test module: a control plane, services under control, and an Envoy beside each of them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.control_plane import KOGUMA, ControlPlane, Document
from tests.support.envoy import Envoy, envoy_binary
from tests.support.loopback import Address
from tests.support.mesh import MESH, Proxy, bare_dataplane
from tests.support.processes import Running
from tests.support.services import HttpService
from tests.support.waiting import eventually

INBOUND: Final = "inbound:"
"""How the names of route tables begin that are not about calls to others."""


@dataclass(slots=True)
class Playground:
    """What a module's tests share. Everything that is started here ends with the module."""

    control_plane: ControlPlane
    folder: Path
    stack: ExitStack
    services: dict[str, HttpService] = field(default_factory=dict)
    envoys: dict[str, Envoy] = field(default_factory=dict)
    proxies: dict[str, Proxy] = field(default_factory=dict)
    system_ca: str = ""
    """The file with those whom the machine trusts; empty: where it is on most machines."""

    def service(self, name: str, of: str | None = None, **tags: str) -> HttpService:
        """An instance of a service, with its proxy."""
        service = self.services[name] = self.stack.enter_context(HttpService(name))
        self.proxy(name, of or name, service, **tags)
        return service

    def client(self, name: str, *backends: str, **tags: str) -> Proxy:
        """A proxy whose workload calls others, the test being that workload."""
        return self.proxy(name, name, None, *backends, **tags)

    def tcp(self, name: str, workload: Address) -> Proxy:
        """A proxy in front of something that speaks no HTTP."""
        return self.speaking("tcp", name, workload)

    def speaking(self, protocol: str, name: str, workload: Address) -> Proxy:
        """A proxy in front of something that is spoken to like this."""
        return self.started(Proxy(name, name, workload, protocol=protocol))

    def gateway(self, name: str) -> Proxy:
        """A builtin gateway, for the MeshGateway with its name."""
        return self.started(Proxy(name, name, gateway="BUILTIN"))

    def bare(self, name: str, of: str, **tags: str) -> HttpService:
        """An instance of a service without a proxy, for tests of what its callers do: they reach it directly."""
        service = self.services[name] = self.stack.enter_context(HttpService(name))
        self.control_plane.apply(bare_dataplane(name, of, service.address, **tags))
        return service

    def proxy(self, name: str, service: str, behind: HttpService | None, *backends: str, **tags: str) -> Proxy:
        tags = {key.replace("__", "-"): value for key, value in tags.items()}
        workload = behind.address if behind else None
        return self.started(Proxy(name, service, workload, tags=tags, backends=backends))

    def started(self, proxy: Proxy) -> Proxy:
        """The proxy, with an Envoy that serves it."""
        self.proxies[proxy.name] = proxy
        self.control_plane.apply(proxy.document)
        delta = (
            len(self.proxies) % 2 == 1
        )  # every other proxy speaks the older protocol, so that both are used everywhere
        bootstrap = self.control_plane.bootstrap(proxy.document, delta=delta, system_ca=self.system_ca)
        self.envoys[proxy.name] = self.stack.enter_context(Envoy(bootstrap, self.folder))
        return proxy

    def ready(self) -> None:
        for envoy in self.envoys.values():
            envoy.ready()

    @contextmanager
    def having(self, *documents: Document | str) -> Iterator[None]:
        """Resources that are there for as long as the block runs; what was there before is back afterwards."""
        data = [parsed for document in documents for parsed in _parsed(document)]
        before = {_key(document): self.control_plane.find(document) for document in data}
        self.control_plane.apply(*data)
        self.control_plane.in_force()
        try:
            yield
        finally:
            for document in reversed(data):
                known = before[_key(document)]
                if known is not None:
                    self.control_plane.apply(known)
                elif self.control_plane.find(document) is not None:
                    self.control_plane.delete(document)
            self.control_plane.in_force()


@contextmanager
def playground(folder: Path, store: str = "memory:", **settings: str) -> Iterator[Playground]:
    with ExitStack() as stack:
        control_plane = stack.enter_context(ControlPlane(folder, store, **settings))
        control_plane.apply(MESH)
        yield Playground(control_plane, folder, stack)


def dp_run(mesh: Playground, proxy: Proxy, folder: Path, *options: str) -> Running:
    """A proxy as an operator starts it, with its agent."""
    (file := folder / f"{proxy.name}.yaml").write_text(yaml.safe_dump(proxy.document))
    command = [str(KOGUMA), "dp", "run", "--dataplane-file", str(file), "--envoy-path", str(envoy_binary())]
    address = ("--cp-address", mesh.control_plane.api.url)
    return Running([*command, *address, *options], folder / f"{proxy.name}.log")


def timeouts(envoy: Envoy, service: str | None = None) -> dict[str, str]:
    """How long an Envoy waits for an answer, by what the path of a request must begin with or be."""
    return {_path(row["match"]): row.get("route", {}).get("timeout", "") for row in rows(envoy, service)}


def retries(envoy: Envoy, service: str | None = None) -> dict[str, int | None]:
    """How often an Envoy tries again, by path; `None` where it does not."""
    policies = {_path(row["match"]): row.get("route", {}).get("retry_policy") for row in rows(envoy, service)}
    return {path: policy and policy.get("num_retries", 1) for path, policy in policies.items()}


def rows(envoy: Envoy, service: str | None = None) -> list[dict[str, Any]]:
    """Every row of the route tables by which an Envoy's workload calls others, or one MeshService."""
    tables = [entry["route_config"] for entry in envoy.config("dynamic_route_configs") if "route_config" in entry]
    wanted = None if service is None else f"kri_msvc_default___{service}_main"
    return [
        row
        for table in tables
        if not table["name"].startswith(INBOUND) and wanted in {None, table["name"]}
        for host in table["virtual_hosts"]
        for row in host.get("routes", ())
    ]


def accepted(envoy: Envoy) -> dict[str, int]:
    """How many responses an Envoy has taken over from its control plane, by what they were about."""
    return envoy.stats(r"(\.|_)update_success$")


def settled(envoy: Envoy, within: float = 10) -> dict[str, int]:
    """The responses taken over once none is on its way: two looks, some time apart, see the same."""
    looks: list[dict[str, int]] = []

    def no_change() -> bool:
        looks.append(accepted(envoy))
        return len(looks) > SAME and looks[-1] == looks[-1 - SAME]

    eventually(no_change, within, pause=0.1)
    return looks[-1]


SAME: Final = 3


def changed(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """The counters that moved, and by how much."""
    return {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}


def _path(match: dict[str, Any]) -> str:
    prefix = next(str(match[kind]) for kind in ("path", "prefix", "path_separated_prefix") if kind in match)
    return prefix.rstrip("/") or "/"


def _parsed(document: Document | str) -> list[Document]:
    return list(yaml.safe_load_all(document)) if isinstance(document, str) else [document]


def _key(document: Document) -> tuple[str, str]:
    return document["type"], document["name"]
