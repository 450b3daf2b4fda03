"""Doors that an operator leaves open are told, and others are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from cp.insight.lint import CATALOGUE
from cp.serving import exposure
from cp.serving.exposure import CODE, exposures
from cp.settings import load
from tests.cli.conftest import running_control_plane

ADMIN = "callers from this machine"
PLAIN = "without TLS"
NONE = "everybody who reaches"
ANY_PROXY = "of any proxy"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, []),
        ({"authentication": "none"}, []),
        ({"https_enabled": True}, []),
        ({"bind": "0.0.0.0", "localhost_is_admin": False}, []),
        ({"bind": "0.0.0.0"}, [ADMIN]),
        ({"bind": "0.0.0.0", "https_enabled": False}, []),
        ({"http_bind": "10.0.0.1"}, [PLAIN, ADMIN]),
        ({"http_bind": "10.0.0.1", "localhost_is_admin": False}, [PLAIN]),
        ({"bind": "0.0.0.0", "authentication": "none"}, [NONE]),
        ({"bind": "0.0.0.0", "localhost_is_admin": False, "ads_tls": "off"}, [PLAIN]),
        ({"bind": "0.0.0.0", "localhost_is_admin": False, "proxy_authentication": "none"}, [ANY_PROXY]),
        ({"ads_tls": "off", "proxy_authentication": "none"}, []),
    ],
)
def test_open_doors_are_told(changes: dict[str, Any], told: list[str]) -> None:
    findings = list(exposures(load(**changes)))

    assert len(findings) == len(told)
    assert all(text in finding.message and finding.hint for text, finding in zip(told, findings, strict=True))
    assert all(finding.code == CODE and finding.severity is CATALOGUE[CODE].severity for finding in findings)


def test_an_open_door_is_told_in_the_log_when_asked_for_readiness_and_by_lint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exposure, "is_loopback", lambda _: False)  # a test listens there alone
    with running_control_plane(tmp_path, ads_tls="off", proxy_authentication="none") as running:
        ready = httpx.get(f"http://127.0.0.1:{running.diagnostics_port}/ready").json()
        lint = httpx.get(f"http://127.0.0.1:{running.http_port}/_lint").json()
    log = (tmp_path / "log").read_text()

    findings = [finding["message"] for finding in lint["findings"] if finding["code"] == CODE]
    for told in ("the HTTP API is served without TLS", ADMIN, "proxies are served without TLS", ANY_PROXY):
        assert [warning for warning in ready["warnings"] if told in warning]
        assert [message for message in findings if told in message]
        assert told in log
