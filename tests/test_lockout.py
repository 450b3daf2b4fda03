"""Rights with which nobody can become an administrator are told, and others are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from cp.access.keys import OfflineKeys
from cp.access.rights import BESIDE_RESOURCES
from cp.app import control_plane
from cp.insight.lint import CATALOGUE
from cp.serving.access_keeper import AccessKeeper
from cp.serving.lockout import CODE
from cp.settings import load
from tests.access import forge
from tests.test_api_over_tls import played, settings

PLATFORM = "administrators: {groups: [platform]}\n"
LOCAL = "as whom callers from this machine"
NO_TOKEN = {"makes_admin_token": False, "localhost_is_admin": False}
MAKERS = PLATFORM + "rights: [{users: [mesh-system:admin], may: [write], kinds: [UserToken]}]\n"


def told(folder: Path, text: str, changes: dict[str, Any], keys: OfflineKeys | None = None) -> list[str]:
    file = folder / "access.yaml"
    file.write_text(text)
    keeper = AccessKeeper(load(access_file=file, **changes), tuple(BESIDE_RESOURCES), keys)
    assert all(finding.code == CODE and finding.hint for finding in keeper.findings)
    assert all(finding.severity is CATALOGUE[CODE].severity for finding in keeper.findings)
    return [finding.message for finding in keeper.findings]


@pytest.mark.parametrize(
    ("text", "changes", "locked"),
    [
        ("rights: []", {}, ""),
        ("rights: []", {"localhost_is_admin": False}, ""),
        ("rights: []", NO_TOKEN, "neither takes callers"),
        ("rights: []", {"admin_groups": "platform", "admin_users": "ann"}, "group `platform`, user `ann`"),
        (PLATFORM, {}, LOCAL),
        (PLATFORM, {"localhost_is_admin": False}, LOCAL),
        (PLATFORM, {"authentication": "none"}, ""),
        (MAKERS, {}, ""),
        (MAKERS, {"issues_user_tokens": False}, LOCAL),
        (MAKERS, {"takes_user_token_secrets": False}, LOCAL),
        (MAKERS.replace("mesh-system:admin", "ann"), {}, LOCAL),
    ],
)
def test_rights_that_lock_everybody_out_are_told(
    tmp_path: Path, text: str, changes: dict[str, Any], locked: str
) -> None:
    messages = told(tmp_path, text, changes)

    assert len(messages) == bool(locked)
    assert all(locked in message for message in messages)


def test_whoever_signs_elsewhere_makes_administrators(tmp_path: Path) -> None:
    public = forge.private_key().public_key()

    assert told(tmp_path, PLATFORM, {}, OfflineKeys({("user", ""): {"1": public}})) == []
    assert told(tmp_path, PLATFORM, {}, OfflineKeys({("dataplane", "default"): {"1": public}})) != []


def test_the_token_of_an_administrator_ends_the_finding(tmp_path: Path) -> None:
    file = tmp_path / "access.yaml"
    file.write_text("rights: []\n")
    readers = "rights: [{users: [mesh-system:admin], may: [read]}]\n"

    async def scene() -> None:
        async with (
            control_plane(settings(tmp_path, access_file=file)) as running,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{running.http_port}") as local,
        ):
            wanted = {"name": "ann", "groups": ["platform"], "validFor": "1h"}
            token = (await local.post("/tokens/user", json=wanted)).text
            file.write_text(PLATFORM + readers)
            assert running.reread is not None
            running.reread()
            assert CODE in (await local.get("/_lint")).text
            shown = await local.get("/_lint", headers={"authorization": f"Bearer {token}"})
            assert shown.status_code == httpx.codes.OK
            assert CODE not in shown.text
            file.write_text("administrators: {groups: [others]}\n" + readers)
            running.reread()
            assert CODE in (await local.get("/_lint")).text

    played(scene)


def test_it_is_told_at_the_start_by_ready_and_by_lint(tmp_path: Path) -> None:
    file = tmp_path / "access.yaml"
    file.write_text(PLATFORM + "rights: [{users: [mesh-system:admin], may: [read]}]\n")

    async def scene() -> None:
        with structlog.testing.capture_logs() as logs:
            async with control_plane(settings(tmp_path, access_file=file)) as running:
                assert [line["reason"] for line in logs if line.get("code") == CODE]
                async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{running.http_port}") as local:
                    assert "no caller can become" in str((await local.get("/ready")).json()["warnings"])
                    assert CODE in (await local.get("/_lint")).text

                file.write_text("rights: []\n")
                assert running.reread is not None
                running.reread()
                async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{running.http_port}") as local:
                    assert CODE not in (await local.get("/_lint")).text

    played(scene)
