"""Doors that an operator leaves open are told, and others are not."""

from __future__ import annotations

from typing import Any

import pytest

from cp.insight.lint import CATALOGUE
from cp.serving.exposure import CODE, exposures
from cp.settings import load

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
