"""One MeshTimeout on its way from a file to Envoy: what it is at each stage, as the documentation shows it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from typer.testing import CliRunner

from cp.ads.session.messages import Response, SotwRequest
from cp.ads.session.sotw import SotwSession
from cp.ads.session.wire import encoded
from cp.api.envoy_json import decoded
from cp.cli import main
from cp.model.document import Document
from cp.model.lines import Lines
from cp.model.names import Key
from cp.model.source import read_documents
from cp.policies import Policies, discover, kinds
from cp.resources.world import World
from cp.rules import build
from cp.rules.matching import match
from cp.rules.merging import MergedConf, MergedField
from cp.translate.compiler import Compiler
from cp.translate.outbound import OutboundResult
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SHORT, PackedResource
from cp.translate.snapshot import Snapshot
from tests.golden import dump
from tests.support import rooms

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = (ROOT / "README.md", ROOT / "docs/concepts/architecture.md")
RESOURCES: Final = ROOT / "examples/demo/resources"
POLICY: Final = Key("MeshTimeout", "default", "timeout-on-backend-route")
PROXY: Final = Key("Dataplane", "default", "frontend-1")
EDITED: Final = "2500ms"

_BLOCK: Final = re.compile(r"(<!-- stage: ([a-z-]+) -->\n```[a-z]*\n)(.*?)(```)", re.DOTALL)


def blocks(page: str) -> dict[str, str]:
    """What the page shows of each stage."""
    return {block[2]: block[3] for block in _BLOCK.finditer(page)}


def with_blocks(page: str, stages: Mapping[str, str]) -> str:
    """The page with what each stage really is."""
    return _BLOCK.sub(lambda block: block[1] + stages.get(block[2], block[3]) + block[4], page)


def stages() -> dict[str, str]:
    """Each stage by its name, as text."""
    return {name: f"{text.rstrip()}\n" for name, text in _Journey().stages()}


class _Journey:
    def __init__(self) -> None:
        self.policies = discover()
        self.documents = list(_documents())
        self.world = World.of(self.documents, kinds(self.policies), revision=1)
        self.compiler = Compiler(self.policies)

    def stages(self) -> Iterator[tuple[str, str]]:
        document = next(document for document in self.documents if document.key == POLICY)
        yield "yaml", _written(document)
        yield "document", _document(document)
        yield "resource", str(self.world.get(POLICY).spec.to[0])  # type: ignore[union-attr]
        yield "matched", self._matched()
        yield "rule", self._rules()
        entry = self._entry(self.world)
        (of_route,) = entry.of_routes.values()
        yield "effective", _fields(of_route["MeshTimeout"])
        yield "task", _task(entry)
        yield "fragment", "\n".join(map(_packed, entry.fragment))
        yield "route", dump(_route(entry.fragment))
        yield "snapshot", _snapshot(self._snapshot(self.world))
        yield from self._served()
        yield "policies", _policies(self.policies)
        yield "rooms", rooms.picture()
        yield "purposes", rooms.table()
        yield "faults", _faults()

    def _matched(self) -> str:
        matched = match(self.world, self.world.get(PROXY))["MeshTimeout"]  # type: ignore[arg-type]
        return "\n".join(f"{policy.policy.name}, by its inbounds {list(policy.inbounds)}" for policy in matched)

    def _rules(self) -> str:
        matched = match(self.world, self.world.get(PROXY))["MeshTimeout"]  # type: ignore[arg-type]
        rules = build(self.world, matched, self.world.kinds["MeshTimeout"])
        return dump(
            {
                "resourceRules": {
                    rule.identity.name: {
                        "conf": dict(rule.combined.conf.value),
                        "origin": [_place(origin) for origin in rule.combined.origins],
                    }
                    for rule in rules.to.all
                }
            }
        )

    def _entry(self, world: World) -> OutboundResult:
        (entry,) = self.compiler.proxy(world, world.get(PROXY)).proxy_class.outbounds.values()  # type: ignore[arg-type]
        return entry

    def _snapshot(self, world: World) -> Snapshot:
        return self.compiler.snapshot(world, world.get(PROXY))  # type: ignore[arg-type]

    def _served(self) -> Iterator[tuple[str, str]]:
        """An Envoy that starts, then the edit of the timeout."""
        session, lines = SotwSession(), []
        before = self._snapshot(self.world)
        session.publish(before)
        for type_url, names in ((CLUSTER, ()), (ENDPOINTS, _names(before, ENDPOINTS)), (LISTENER, ())):
            lines += self._exchange(session, type_url, names)
        lines += self._exchange(session, ROUTES, _names(before, ROUTES))
        yield "session", "\n".join(lines)
        built = self.compiler.fragments.built
        responses = session.publish(self._snapshot(self._edited()))
        lines = [f"Envoy is sent {_response(response)}" for response in responses]
        yield "change", "\n".join([f"fragments built: {self.compiler.fragments.built - built}", *lines])
        yield "bytes", _bytes(responses[0])

    def _exchange(self, session: SotwSession, type_url: str, names: frozenset[str] | tuple[()]) -> list[str]:
        asked = f"Envoy asks for {SHORT[type_url]}{f' {sorted(names)}' if names else ''}"
        responses = session.receive(SotwRequest(type_url, frozenset(names)))
        lines = [asked, *(f"  and is sent {_response(response)}" for response in responses)]
        for response in responses:
            session.receive(
                SotwRequest(response.type_url, frozenset(names), nonce=response.nonce, version=response.version)
            )
        return lines

    def _edited(self) -> World:
        text = (RESOURCES / "timeouts.yaml").read_text().replace("requestTimeout: 2s", f"requestTimeout: {EDITED}")
        edited = {document.key: document for document in read_documents(text, "timeouts.yaml").documents}
        return self.world.next({POLICY: edited[POLICY]}, revision=2)


def _documents() -> Iterator[Document]:
    for file in sorted(RESOURCES.rglob("*.yaml")):
        yield from read_documents(file.read_text(), file.name).documents


def _policies(policies: Policies) -> str:
    """Which policies do something: those that fill in a hook."""
    writing = {"cluster", "endpoints", "listener", "route", "clients", "sidecar", "finish"}
    hooks = {"shape", "arrange", "capture", "secure", *writing}
    acting = [policy.kind.name for policy in policies if hooks & vars(type(policy)).keys()]
    unused = [policy.kind.name for policy in policies if policy.kind.name not in acting]
    lines = [("in effect:", acting), ("read and checked, without effect yet:", unused)]
    return "\n".join(f"{title}\n  {', '.join(sorted(names))}" for title, names in lines if names)


def _faults() -> str:
    """What `koguma validate` prints of the timeouts with three mistakes in them."""
    text = (RESOURCES / "timeouts.yaml").read_text().replace("requestTimeout: 1s", "requestTimeout: 1")
    mistakes = "streamIdletimeout: 1h\n        connectionTimeout: 1s"
    with TemporaryDirectory() as folder:
        (file := Path(folder, "timeouts.yaml")).write_text(text.replace("streamIdleTimeout: 1h", mistakes))
        checked = CliRunner().invoke(main.build(), ["validate", "-f", str(file)])
    return f"{checked.stderr}{checked.stdout}".replace(f"{folder}/", "")


def _written(document: Document) -> str:
    lines = (RESOURCES / document.source.file).read_text().splitlines()
    first, last = document.source.line("type"), _last(document.source.lines)
    return "\n".join(f"{number:2}  {lines[number - 1]}" for number in range(first, last + 1))


def _last(lines: Lines) -> int:
    """The last line on which a value begins."""
    return max((lines.line, *map(_last, (*lines.fields.values(), *lines.items))))


def _document(document: Document) -> str:
    paths = ("spec.to[0].targetRef.name", "spec.to[0].default.http.requestTimeout")
    lines = "\n".join(f"{path}: line {document.source.line(path)}" for path in paths)
    return f"{document.key!r}\n{document.source.file}\n{lines}"


def _place(origin: Any) -> str:
    return f"{origin.policy.name} {origin.path}, {origin.file}:{origin.line}"


def _fields(conf: MergedConf) -> str:
    return "\n".join(line for field in conf.fields.values() for line in _field(field))


def _field(field: MergedField) -> Iterator[str]:
    for setting, mark in ((field.winner, ""), *((loser, "  not ") for loser in field.losers)):
        origin = setting.origin
        where = f"{origin.file}:{setting.line} {origin.policy.name}" if origin.file else "built in"
        shown = f"{mark}{setting.value}" if mark else f"{field.path} = {setting.value}"
        yield f"{shown:36} {f'{origin.level}: ' if origin.level else ''}{where}"


def _task(entry: OutboundResult) -> str:
    outbound, task = entry.outbound, entry.task
    rows = [f"    {route.match.path.value:16} {route.owner or '(the service itself)'}" for route in outbound.routes]
    confs = [f"{kind} {conf.decode()}" for kind, conf in task.confs]
    of_routes = [f"{name}\n    {kind} {conf.decode()}" for name, confs in task.routes for kind, conf in confs]
    return "\n".join(
        [
            f"{outbound.name} on {outbound.address}:{outbound.port}, {outbound.protocol}",
            *("  routes", *rows),
            *("  confs", *(f"    {conf}" for conf in confs)),
            *("  confs of routes", *(f"    {conf}" for conf in of_routes)),
        ]
    )


def _packed(packed: PackedResource) -> str:
    return f"{packed.type_url.rpartition('.')[2]} {packed.name}: {len(packed.body)} bytes, version {packed.version}"


def _route(fragment: Iterable[PackedResource]) -> Any:
    (table,) = (packed for packed in fragment if packed.type_url == ROUTES)
    return decoded(table)["virtualHosts"][0]["routes"]


def _snapshot(snapshot: Snapshot) -> str:
    lines = []
    for whose, part in zip(("of the class", "its own"), snapshot.parts, strict=True):
        lines += [f"{whose}:", *(f"  {SHORT[packed.type_url]:10} {packed.name}" for packed in part)]
    types = (CLUSTER, ENDPOINTS, LISTENER, ROUTES)
    versions = [f"  {SHORT[type_url]:10} {snapshot.version(type_url)}" for type_url in types]
    return "\n".join([*lines, "versions:", *versions])


def _names(snapshot: Snapshot, type_url: str) -> frozenset[str]:
    return frozenset(snapshot.names(type_url))


def _response(response: Response) -> str:
    names = ", ".join(packed.name for packed in response.resources)
    return f"{SHORT[response.type_url]} at version {response.version}: {names}"


def _bytes(response: Response) -> str:
    message = encoded(response)
    (resource,) = response.resources
    header = len(message) - len(resource.frame)
    return f"{len(message)} bytes: a header of {header}, and the frame of {resource.name}, {len(resource.frame)}"
