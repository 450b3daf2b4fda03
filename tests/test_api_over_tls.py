"""The API of a whole control plane, called with a real client: HTTPS, tokens, and rights that change."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import structlog

from cp.access.rights_file import BadAccessFile
from cp.ads.loop import DrainLoop
from cp.app import RunningControlPlane, control_plane
from cp.insight.lint import CATALOGUE
from cp.serving import access_keeper
from cp.settings import Settings, load
from tests.access import forge
from tests.api.samples import timeout
from tests.support.leaks import leaks_of_answer

PORTS: Final = {"ads_port": 0, "http_port": 0, "https_port": 0, "diagnostics_port": 0, "store": "memory:"}
SLOW: Final = "/meshes/default/meshtimeouts/slow"
RIGHT: Final = "rights: [{{groups: [team], may: [{}], kinds: [MeshTimeout]}}]\n"


def settings(folder: Path, **changes: Any) -> Settings:
    return load(work_dir=folder, https_enabled=True, **{**PORTS, **changes})


def played(scene: Callable[[], Coroutine[None, None, None]]) -> None:
    with asyncio.Runner(loop_factory=DrainLoop) as runner:
        runner.run(scene())


def token(*groups: str) -> str:
    now = time.time()  # the control plane has a real clock here
    return forge.token({**forge.USER, "Groups": list(groups), "iat": now, "nbf": now - 5, "exp": now + 60})


def over_tls(folder: Path, running: RunningControlPlane, *groups: str) -> httpx.AsyncClient:
    """A client that trusts the authority of the control plane, and nobody else."""
    context = ssl.create_default_context(cafile=folder / "koguma-cp-ca.crt")
    return client(f"https://localhost:{running.https_port}", *groups, verify=context)


def client(url: str, *groups: str, verify: ssl.SSLContext | bool = True) -> httpx.AsyncClient:
    headers = {"authorization": f"Bearer {token(*groups)}"} if groups else {}
    return httpx.AsyncClient(base_url=url, headers=headers, verify=verify, event_hooks={"response": [keeps_secrets]})


async def keeps_secrets(answer: httpx.Response) -> None:
    assert not list(leaks_of_answer(answer.url.path, answer.url.query, await answer.aread()))


async def with_keys(running: RunningControlPlane) -> None:
    """Give the control plane the key that signs the tokens of these tests."""
    async with client(f"http://127.0.0.1:{running.http_port}") as local:
        for document in forge.signing_keys():
            if document.key.type == "GlobalSecret":
                path = f"/globalsecrets/{document.key.name}"
                (await local.put(path, json=dict(document.data))).raise_for_status()
        (await local.get("/_lint")).raise_for_status()  # which waits until the key is in force


def test_a_client_that_trusts_the_authority_is_served_with_its_token(tmp_path: Path) -> None:
    async def scene() -> None:
        async with control_plane(settings(tmp_path, localhost_is_admin=True)) as running:
            await with_keys(running)
            async with over_tls(tmp_path, running, "mesh-system:admin") as admin, over_tls(tmp_path, running) as local:
                assert (await admin.get("/who-am-i")).json()["name"] == "jane"
                assert (await admin.put(SLOW, json=timeout())).status_code == 201
                assert (await local.get("/who-am-i")).json()["name"] == "mesh-system:admin"
            async with over_tls(tmp_path, running, "team") as member:
                assert (await member.get(SLOW)).status_code == 200
                assert (await member.delete(SLOW)).status_code == 403
                assert (await member.get("/metrics")).status_code == 200

    played(scene)


def test_a_client_that_trusts_another_authority_is_not(tmp_path: Path) -> None:
    async def scene() -> None:
        async with control_plane(settings(tmp_path)) as running:
            async with client(f"https://localhost:{running.https_port}") as stranger:
                with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                    await stranger.get("/")
            async with client(f"http://localhost:{running.https_port}") as plain:
                with pytest.raises(httpx.RemoteProtocolError):
                    await plain.get("/")

    played(scene)


def test_websites_are_refused_over_tls_too(tmp_path: Path) -> None:
    asked: list[tuple[int, dict[str, str]]] = [
        (200, {}),
        (421, {"host": "evil.example"}),
        (403, {"origin": "https://evil.example"}),
    ]

    async def scene() -> None:
        async with control_plane(settings(tmp_path)) as running, over_tls(tmp_path, running) as local:
            for status, headers in asked:
                assert (await local.get("/meshes", headers=headers)).status_code == status
            form = {"content-type": "text/plain"}
            assert (await local.post("/validate", content="type: Mesh", headers=form)).status_code == 415

    played(scene)


def test_rights_are_read_again_when_the_file_changes_and_a_bad_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "access.yaml"
    file.write_text(RIGHT.format("read"))

    async def scene() -> None:
        async with control_plane(settings(tmp_path, access_file=file)) as running:
            await with_keys(running)
            assert running.reread is not None
            async with over_tls(tmp_path, running, "team") as member, over_tls(tmp_path, running) as admin:

                async def statuses() -> tuple[int, int]:
                    return (await member.put(SLOW, json=timeout())).status_code, (await member.get(SLOW)).status_code

                assert await statuses() == (403, 404)

                file.write_text(RIGHT.format("read, write"))
                running.reread()
                assert await statuses() == (201, 200)

                file.write_text(RIGHT.format("reed"))
                running.reread()
                assert await statuses() == (200, 200)
                assert "did you mean `read`?" in (await admin.get("/_lint")).text
                assert "access.yaml:1 rights[0].may[0]" in str((await admin.get("/ready")).json()["warnings"])
                warnings = (await member.get("/ready")).json()["warnings"]
                assert warnings == [CATALOGUE["bad-access-file"].meaning]

                file.write_text("rights: []\n")
                running.reread()
                assert await statuses() == (403, 403)
                assert "warnings" not in (await admin.get("/ready")).json()

    played(scene)


def test_a_bad_file_stops_the_start(tmp_path: Path) -> None:
    async def scene() -> None:
        async with control_plane(settings(tmp_path, access_file=tmp_path / "none.yaml")):
            pass

    with pytest.raises(BadAccessFile, match=r"none\.yaml: cannot be read: no such file"):
        played(scene)


def kept(folder: Path, text: str) -> tuple[access_keeper.AccessKeeper, Path]:
    file = folder / "access.yaml"
    file.write_text(text)
    return access_keeper.AccessKeeper(load(access_file=file), ("MeshTimeout",)), file


def test_a_file_is_read_when_it_is_another_one_and_told_once_if_it_is_bad(tmp_path: Path) -> None:
    keeper, file = kept(tmp_path, "rights: []\n")
    before = keeper.rights

    with structlog.testing.capture_logs() as logs:
        keeper.look()
        file.unlink()
        keeper.look()
        keeper.look()
        assert (keeper.rights, [finding.code for finding in keeper.findings]) == (before, ["bad-access-file"])
        file.write_text(RIGHT.format("read"))
        keeper.look()

    assert [line["event"] for line in logs] == ["access.refused", "access.loaded"]
    assert (len(keeper.rights.rights), keeper.findings) == (1, ())


UNNAMED: Final = "rights: [{groups: [team], may: [write], meshes: [default]}]\n"


def test_rights_without_kinds_are_reported_while_they_are_tolerated(tmp_path: Path) -> None:
    file = tmp_path / "access.yaml"
    file.write_text(UNNAMED)
    told = {}
    for unnamed in ("deny", "warn"):
        keeper = access_keeper.AccessKeeper(load(access_file=file, access_unnamed=unnamed), ("MeshTimeout",))
        with structlog.testing.capture_logs() as logs:
            keeper.warn()
        codes = [(finding.code, finding.line) for finding in keeper.findings]
        told[unnamed] = (keeper.rights.tolerates_unnamed, codes, [(line["event"], line["log_level"]) for line in logs])

    assert told == {
        "deny": (False, [], [("access.unnamed", "info")]),
        "warn": (True, [("unnamed-rights", 1)], [("setting", "warning")]),
    }


GATEWAY: Final = {
    "type": "MeshGateway",
    "mesh": "default",
    "name": "edge",
    "selectors": [{"match": {"kuma.io/service": "edge"}}],
    "conf": {
        "listeners": [
            {"port": 443, "protocol": "HTTPS", "tls": {"mode": "TERMINATE", "certificates": [{"secret": "tls-key"}]}}
        ]
    },
}
PATCH: Final = {
    "type": "MeshProxyPatch",
    "mesh": "default",
    "name": "p",
    "spec": {
        "targetRef": {"kind": "Mesh"},
        "default": {"appendModifications": [{"cluster": {"operation": "Remove"}}]},
    },
}


@pytest.mark.parametrize(("unnamed", "status"), [("deny", 403), ("warn", 201)])
def test_a_team_s_right_is_worth_traffic_and_not_the_machines_of_proxies(
    tmp_path: Path, unnamed: str, status: int
) -> None:
    file = tmp_path / "access.yaml"
    file.write_text(UNNAMED)

    async def scene() -> None:
        options = settings(tmp_path, access_file=file, access_unnamed=unnamed)
        async with control_plane(options) as running:
            await with_keys(running)
            async with over_tls(tmp_path, running, "team") as team, over_tls(tmp_path, running) as admin:
                (await admin.put("/meshes/default/meshgateways/edge", json=GATEWAY)).raise_for_status()
                assert (await team.put(SLOW, json=timeout())).status_code == 201
                assert (await team.put("/meshes/default/meshproxypatches/p", json=PATCH)).status_code == status
                mine = {**GATEWAY, "selectors": [{"match": {"kuma.io/service": "mine"}}]}
                changed = await team.put("/meshes/default/meshgateways/edge", json=mine)
                assert changed.status_code == (200 if unnamed == "warn" else 403)
                warnings = (await admin.get("/_lint")).json()["findings"]
                assert ("unnamed-rights" in {each["code"] for each in warnings}) is (unnamed == "warn")

    played(scene)


@pytest.mark.parametrize(
    ("content", "mode", "told"),
    [
        (b"rights: []", 0o646, "can be written by everybody"),
        (b"\xff", 0o600, "is not UTF-8"),
        (b"#" * (1 << 20) + b"\n", 0o600, "is larger than 1 MiB"),
    ],
)
def test_a_file_that_cannot_be_trusted_or_read_is_refused(tmp_path: Path, content: bytes, mode: int, told: str) -> None:
    keeper, file = kept(tmp_path, "rights: []\n")

    file.write_bytes(content)
    file.chmod(mode)
    keeper.reread()

    assert told in str(keeper.findings[0])
