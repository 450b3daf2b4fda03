"""No configuration gets out of the sandbox, also not one that `harmless` would never let through."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from cp.serving.preflight.sandbox import LIMITS, Sandbox
from cp.serving.preflight.scratch import EnvoyUnavailable
from tests.sandbox.hostile import HostileSandbox, Hostilities, NoSandbox
from tests.sandbox.ways import ALONE, CLUSTERS, LISTENERS, SCRIPTED, TOGETHER, WAYS, Attempt, Way
from tests.support.namespaces import sandboxed_envoy

pytestmark = pytest.mark.envoy
LIFETIME = 30.0


def named(ways: Iterable[Way]) -> list[object]:
    return [pytest.param((way,), id=way.name) for way in ways]


def shown(ways: Iterable[Way]) -> list[Way]:
    return [way for way in ways if way.is_shown_to_work]


def begun(attempts: Hostilities, sandbox: Sandbox, *, are_awaited: bool = False) -> None:
    try:
        asyncio.run(attempts.begin(sandbox, LIFETIME, are_awaited=are_awaited))
    finally:
        attempts.close()


def bootstrap(attempts: Hostilities, ways: Sequence[Way]) -> Attempt:
    """An Envoy has one bootstrap configuration."""
    return attempts.attempts[ways[0].name] if len(ways) == 1 else Attempt()


def test_resources_reach_nothing_from_the_sandbox(tmp_path: Path) -> None:
    sandbox = Sandbox(sandboxed_envoy())
    attempts = Hostilities(TOGETHER, tmp_path)
    begun(attempts, HostileSandbox(sandbox, Attempt()))

    assert {name: reached for name, reached in attempts.escaped.items() if reached} == {}


@pytest.mark.long
@pytest.mark.parametrize("ways", named(ALONE))
def test_settings_of_envoy_reach_nothing_from_the_sandbox(ways: Sequence[Way], tmp_path: Path) -> None:
    sandbox = Sandbox(sandboxed_envoy(), {**LIMITS, **ways[0].limits})
    attempts = Hostilities(ways, tmp_path)
    try:
        begun(attempts, HostileSandbox(sandbox, bootstrap(attempts, ways)))
    except EnvoyUnavailable as error:
        assert "it ended with status" in str(error)  # noqa: PT017  # most end with an error, some are answered

    assert attempts.escaped == {ways[0].name: []}


@pytest.mark.long
@pytest.mark.parametrize("ways", [shown(LISTENERS), shown(CLUSTERS), shown(SCRIPTED), *named(shown(ALONE))])
def test_ways_work_without_a_sandbox(ways: Sequence[Way], tmp_path: Path) -> None:
    """So the other tests would fail if the sandbox let anything through."""
    attempts = Hostilities(ways, tmp_path, tmp_path / "plain" / "ads")
    begun(attempts, NoSandbox(bootstrap(attempts, ways), tmp_path / "plain"), are_awaited=True)

    assert [name for name, reached in attempts.escaped.items() if not reached] == []


def test_ways_have_different_names() -> None:
    assert len({way.name for way in WAYS}) == len(WAYS) > 100
