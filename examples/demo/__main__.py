"""`make demo`: a mesh with a control plane, four Envoys and their services on this machine, and what it does.

python -m examples.demo [--once]
"""

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import httpx
import yaml

from examples.demo import screen
from examples.demo.certificate import issue
from examples.demo.children import Children, Failed
from examples.demo.edit import Seen, measure
from examples.demo.plan import (
    ADS_PORT,
    API_PORT,
    DIAGNOSTICS_PORT,
    HERE,
    HOST,
    RESOURCES,
    SHOP,
    Document,
    Plan,
    Sidecar,
    make_plan,
    read,
    sign,
)
from examples.demo.story import rows, send_all
from examples.demo.tries import tries

ROOT: Final = HERE.parents[1]
KOGUMA: Final = Path(sys.executable).with_name("koguma")
ENVOY: Final = ROOT / ".envoy/bin/envoy"
CONTROL_PLANE: Final = "control-plane"
INTERRUPTED: Final = 130
EDITED: Final = 0.3
"""What the timeout of the slow route becomes, in seconds, when it is edited."""


class Demo:
    """All that runs, and the steps by which it comes up and shows itself."""

    def __init__(self, plan: Plan, children: Children) -> None:
        self._plan, self._children = plan, children
        self._http = httpx.Client(timeout=10, trust_env=False)

    def start(self) -> None:
        with screen.step("The control plane starts, on an empty SQLite store"):
            self._start_control_plane()
        with screen.step("The resources of the demo are written: a route and four timeouts"):
            self._apply(*sorted(RESOURCES.glob("*.yaml")))
        with screen.step("Two frontends and two backends start, an Envoy beside each"):
            for sidecar in self._plan.sidecars:
                self._start_service(sidecar)
            for sidecar in self._plan.sidecars:
                self._start_envoy(sidecar.name, sidecar.document)
            for sidecar in self._plan.sidecars:
                self._children.wait_until(sidecar.name, lambda url=sidecar.url: self._answers(url))  # type: ignore[misc]
        with screen.step("A gateway starts at the edge, with a certificate for the shop"):
            self._start_gateway()

    def show(self) -> bool:
        """The table of requests, then the live edit; answers whether everything was as it should be."""
        with screen.Board(rows()) as board:
            results = send_all(self._plan, rows(), self._certificate, board.add)
        seen = self._edit()
        screen.edited(seen)
        return all(result.held for result in results) and seen.first is not None

    def stay(self) -> None:
        """Stay up until somebody ends it, and say when something else ends."""
        screen.urls(self._plan)
        screen.to_try(tries(self._plan, self._children.pid(CONTROL_PLANE)))
        told: set[str] = set()
        while True:
            time.sleep(0.2)
            for name, code in self._children.ended().items():
                if name not in told:
                    screen.failed(f"{name} has ended ({code})")
                    told.add(name)

    def _start_control_plane(self) -> None:
        store = f"sqlite:///{self._children.folder}/koguma.db"
        self._children.start(CONTROL_PLANE, [KOGUMA, "run", "--store", store])
        self._children.wait_until("the control plane", lambda: self._answers(f"{self._plan.api}/ready"))

    def _start_service(self, sidecar: Sidecar) -> None:
        options = ["--backend", sidecar.backend] if sidecar.backend else ["--version", sidecar.version]
        command = [sys.executable, "-m", "examples.demo.services", sidecar.service]
        self._children.start(sidecar.name, [*command, "--listen", sidecar.workload, *options])

    @property
    def _certificate(self) -> Path:
        """The certificate of the gateway, for those who have to trust it."""
        return self._children.folder / "shop.crt"

    def _start_gateway(self) -> None:
        """Its ports may have been moved, so what is written about it is written anew."""
        edge, file = self._plan.edge, self._children.folder / "gateway.yaml"
        file.touch(mode=0o600)
        file.write_text(yaml.safe_dump_all([issue(SHOP, self._certificate), *edge.documents], sort_keys=False))
        self._apply(file)
        self._start_envoy(edge.name, edge.document)
        self._children.wait_until(edge.name, lambda: self._listens(edge.port("https")))

    def _listens(self, port: int) -> bool:
        with socket.socket() as client:
            return client.connect_ex((HOST, port)) == 0

    def _start_envoy(self, name: str, dataplane: Document) -> None:
        file = self._children.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(dataplane, sort_keys=False))
        self._children.start(f"{name}-envoy", [KOGUMA, "dp", "run", "--dataplane-file", file, "--drain-time", "1s"])

    def _apply(self, *files: Path) -> None:
        options = [word for file in files for word in ("-f", str(file))]
        ran = subprocess.run([KOGUMA, "apply", *options], capture_output=True, text=True, check=False)
        if ran.returncode:
            raise Failed(f"koguma apply failed:\n{ran.stderr}")

    def _edit(self) -> Seen:
        """Shorten the slow route's timeout while requests are under way, then put it back."""
        (timeout,) = [d for d in read(RESOURCES / "timeouts.yaml") if d["name"] == "timeout-on-backend-route"]
        where = f"{self._plan.api}/meshes/default/meshtimeouts/{timeout['name']}"
        http = timeout["spec"]["to"][0]["default"]["http"]
        was, http["requestTimeout"] = http["requestTimeout"], f"{EDITED * 1000:.0f}ms"
        with screen.step(f"{timeout['name']} is edited from {was} to {http['requestTimeout']}, under requests"):
            seen = measure(
                f"{self._plan.sidecar('frontend-1').url}/slow-endpoint?delay=5",
                lambda: self._http.put(where, json=timeout).raise_for_status(),
                EDITED,
            )
            http["requestTimeout"] = was
            self._http.put(where, json=timeout).raise_for_status()
        return seen

    def _answers(self, url: str) -> bool:
        try:
            return self._http.get(url).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False


def environment(plan: Plan, folder: Path) -> dict[str, str]:
    """What `koguma` is told, whichever of its commands."""
    return {
        "KUMA_DP_SERVER_PORT": str(plan.port(ADS_PORT)),
        "KUMA_API_SERVER_HTTP_PORT": str(plan.port(API_PORT)),
        "KUMA_DIAGNOSTICS_SERVER_PORT": str(plan.port(DIAGNOSTICS_PORT)),
        "KUMA_GENERAL_WORK_DIR": str(folder),
        "KUMA_DEFAULTS_SKIP_MESH_CREATION": "true",
        "KOGUMA_BIND": HOST,
        "KOGUMA_ADDRESS": plan.api,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--once", action="store_true", help="end by itself, with 0 if all was as it should be")
    once: bool = parser.parse_args().once
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # also where a shell has SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    folder = ROOT / ".demo" / str(os.getpid())
    folder.mkdir(parents=True)
    try:
        held = _run(folder, stays=not once)
    except KeyboardInterrupt:
        shutil.rmtree(folder)
        return INTERRUPTED
    except (Failed, httpx.HTTPError, OSError) as failure:
        screen.failed(str(failure))
        held = False
    if held:
        shutil.rmtree(folder)
        return 0
    screen.failed(f"Not all was as it should be. The logs are in {folder}")
    return 1


def _run(folder: Path, *, stays: bool) -> bool:
    with sign() as alone, Children(folder) as children:
        plan = make_plan(alone=alone)
        screen.moved(plan.moved)
        os.environ.update(environment(plan, folder))
        os.environ.setdefault("KOGUMA_ENVOY", str(ENVOY))
        demo = Demo(plan, children)
        demo.start()
        held = demo.show()
        if stays:
            with contextlib.suppress(KeyboardInterrupt):
                demo.stay()
        return held


if __name__ == "__main__":
    sys.exit(main())
