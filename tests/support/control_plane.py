"""A control plane under test: `koguma run` as a process of its own, spoken to over its HTTP API."""

import json
import re
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx
import yaml

from cp.model.names import DEFAULT_MESH
from cp.model.source import GLOBAL
from cp.policies import discover, kinds
from tests.support.leaks import leaks_of_answer
from tests.support.loopback import Address, free_port, new_host
from tests.support.processes import Running, RunningKoguma
from tests.support.waiting import eventually

KOGUMA: Final = Path(sys.executable).with_name("koguma")

KINDS: Final = kinds(discover())

Document = Mapping[str, Any]

_SAMPLE: Final = re.compile(r"^(\w+(?:\{[^}]*\})?) (\S+)$", re.MULTILINE)

_YAML: Final = {"content-type": "application/yaml"}

WRITTEN_BY_THE_STORE: Final = {"creationTime", "modificationTime", "kri"}


class ControlPlane:
    """A control plane on addresses of its own, which it keeps when it is started again."""

    def __init__(self, folder: Path, store: str = "memory:", host: str = "", **settings: str) -> None:
        host = host or new_host()
        self.ads = Address(host, free_port(host))
        self.api = Address(host, int(settings.get("KUMA_API_SERVER_HTTP_PORT") or free_port(host)))
        self.diagnostics = Address(host, free_port(host))
        self.log = folder / "control-plane.log"
        self._store = store
        self._written = 0
        self._settings = {
            "KOGUMA_BIND": host,
            "KUMA_DP_SERVER_PORT": str(self.ads.port),
            "KUMA_API_SERVER_HTTP_PORT": str(self.api.port),
            "KUMA_DIAGNOSTICS_SERVER_PORT": str(self.diagnostics.port),
            "KUMA_GENERAL_WORK_DIR": str(folder / "work"),
            "KUMA_BOOTSTRAP_SERVER_PARAMS_ADMIN_ADDRESS": host,
            "KUMA_DEFAULTS_SKIP_MESH_CREATION": "true",
            "KOGUMA_LOG_FORMAT": "json",
            "KOGUMA_LOG_LEVEL": "debug",
            **settings,
        }
        folder.mkdir(parents=True, exist_ok=True)
        self._client = httpx.Client(base_url=self.api.url, timeout=30, event_hooks={"response": [self._look_for_leaks]})
        self._leaks: list[str] = []
        self._running: Running | None = None
        self._logged = 0

    def start(self, **settings: str) -> Self:
        """Start it, or start it again where it was, with other settings from now on."""
        self._settings |= settings
        self._written = 0
        self._logged = len(self.log.read_text().splitlines()) if self.log.exists() else 0
        self._running = RunningKoguma([KOGUMA, "run", "--store", self._store], self.log, self._settings)
        return self

    def ready(self, within: float = 60) -> Self:
        eventually(self._is_ready, within)
        return self

    @property
    def process(self) -> Running:
        assert self._running is not None, "the control plane was not started"
        return self._running

    def stop(self) -> int:
        """End it as its operator would."""
        return self.process.stop()

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()

    def hang(self) -> None:
        """Stop it from doing anything, without ending it."""
        self.process.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send(signal.SIGCONT)

    def apply(self, *documents: Document | str) -> float:
        """Write resources, given as data or as YAML; answers with the moment of the last answer."""
        for document in _documents(documents):
            self.put(document).raise_for_status()
        return time.monotonic()

    def put(self, document: Document) -> httpx.Response:
        """Write one resource, and see what the API says about it."""
        return self._noted(self._client.put(path(document), json=document))

    def put_at(self, where: str, document: Document) -> httpx.Response:
        """Write one resource under a path that need not be its own."""
        return self._client.put(where, json=document)

    def delete(self, *documents: Document | str) -> None:
        for document in _documents(documents):
            self._noted(self._client.delete(path(document))).raise_for_status()

    def in_force(self, within: str = "5s") -> None:
        """Wait until every proxy has answered what was written last, or cannot answer within that time."""
        asked = {"revision": str(self._written), "wait": within}
        self._client.get("/_delivery", params=asked, timeout=30).raise_for_status()

    def _noted(self, answer: httpx.Response) -> httpx.Response:
        self._written = max(self._written, int(answer.headers.get("koguma-revision", "0")))
        return answer

    def find(self, document: Document) -> Document | None:
        """A resource as it is stored, if it is."""
        answer = self._client.get(path(document))
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        written: Document = answer.raise_for_status().json()
        return {name: value for name, value in written.items() if name not in WRITTEN_BY_THE_STORE}

    def get(self, where: str, **parameters: str) -> Any:
        return self._client.get(where, params=parameters).raise_for_status().json()

    def metrics(self) -> dict[str, float]:
        """Every sample that it has, by its name and labels."""
        text = self._client.get(f"{self.diagnostics.url}/metrics").raise_for_status().text
        return {name: float(value) for name, value in _SAMPLE.findall(text)}

    def request(self, method: str, where: str, content: bytes = b"", **headers: str) -> httpx.Response:
        """Any request, good or bad."""
        return self._client.request(method, where, content=content, headers={**_YAML, **headers})

    def bootstrap(
        self, dataplane: Document, *, delta: bool = True, system_ca: str = "", listener_drain_seconds: int = 1
    ) -> dict[str, Any]:
        """The Envoy configuration with which a proxy of this dataplane starts."""
        asked = {
            "mesh": dataplane["mesh"],
            "name": dataplane["name"],
            "dataplaneResource": yaml.safe_dump(dict(dataplane)),
            "features": ["feature-delta-grpc"] if delta else [],
            "systemCaPath": system_ca,
            "listenerDrainSeconds": listener_drain_seconds,
        }
        answer = self._client.post("/bootstrap", json=asked).raise_for_status()
        config: dict[str, Any] = yaml.safe_load(answer.text)
        return config

    def events(self, name: str) -> list[dict[str, Any]]:
        """Every event of a name that it has logged since it was started last."""
        lines = self.log.read_text().splitlines()[self._logged :]
        events = [json.loads(line) for line in lines if line.startswith("{")]
        return [event for event in events if event["event"] == name]

    def _is_ready(self) -> bool:
        self.process.check()
        return self._client.get(f"{self.diagnostics.url}/ready").is_success

    def close(self) -> None:
        self._client.close()
        if self._running is not None:
            self._running.stop()
        assert not self._leaks, f"the control plane has told secrets: {self._leaks}"

    def _look_for_leaks(self, answer: httpx.Response) -> None:
        of_answer = leaks_of_answer(answer.url.path, answer.url.query, answer.read())
        self._leaks.extend(f"{answer.url}: {leak}" for leak in of_answer)

    def __enter__(self) -> Self:
        try:
            return self.start().ready()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def path(document: Document) -> str:
    """Where the API keeps a resource."""
    kind, name = document["type"], document["name"]
    plural = KINDS[kind].plural
    if kind in GLOBAL:
        return f"/{plural}/{name}"
    return f"/meshes/{document.get('mesh', DEFAULT_MESH)}/{plural}/{name}"


def _documents(documents: Iterable[Document | str]) -> Iterable[Document]:
    for document in documents:
        if isinstance(document, str):
            yield from (parsed for parsed in yaml.safe_load_all(document) if parsed)
        else:
            yield document
