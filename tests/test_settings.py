"""Settings: from the environment, once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from cp.settings import BadSettings, Settings, load, rows, shown, variable


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, _, _ in rows():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_kumas_ports_are_ours() -> None:
    settings = load()

    assert (settings.ads_port, settings.http_port, settings.diagnostics_port) == (5678, 5681, 5680)


def test_nobody_else_reaches_a_control_plane_that_nothing_was_said_to() -> None:
    assert (load().bind, load().http_bind) == ("127.0.0.1", "127.0.0.1")


def test_resources_are_kept_in_a_file_of_the_work_folder(tmp_path: Path) -> None:
    assert load().store == f"sqlite:///{tmp_path}/.koguma/koguma.db"
    assert load(work_dir=Path("/var/lib/koguma")).store == "sqlite:////var/lib/koguma/koguma.db"


def test_the_type_of_store_that_kuma_has_decides_where_no_store_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUMA_STORE_TYPE", "memory")

    assert load().store == "memory:"
    assert load(store="dir:/etc/mesh").store == "dir:/etc/mesh"


def test_a_command_line_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUMA_DP_SERVER_PORT", "1000")

    assert load().ads_port == 1000
    assert load(ads_port=2000).ads_port == 2000
    assert load(ads_port=None).ads_port == 1000


def test_an_empty_variable_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUMA_DP_SERVER_PORT", "")

    assert load().ads_port == 5678


def test_one_address_holds_for_all_servers_but_for_one_that_has_its_own() -> None:
    assert load(bind="127.0.0.7").http_bind == "127.0.0.7"
    assert load(bind="127.0.0.7", http_bind="127.0.0.1").http_bind == "127.0.0.1"


def test_beyond_loopback_the_api_has_tls_unless_the_operator_says_otherwise() -> None:
    assert (load(bind="0.0.0.0").http_bind, load(bind="0.0.0.0").https_bind) == ("127.0.0.1", "0.0.0.0")
    assert load(bind="0.0.0.0").serves_https
    assert not load().serves_https
    assert load(https_enabled=True).serves_https
    assert load(https_bind="10.0.0.1").serves_https
    assert not load(bind="0.0.0.0", https_enabled=False).serves_https
    assert load(bind="0.0.0.0", http_bind="0.0.0.0").http_bind == "0.0.0.0"


def test_not_everybody_can_be_an_administrator_by_a_list() -> None:
    with pytest.raises(BadSettings, match="AUTHN_TYPE=none"):
        load(admin_groups="ops, mesh-system:unauthenticated")


def test_every_fault_is_told_with_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUMA_DP_SERVER_PORT", "http")
    monkeypatch.setenv("KUMA_DEFAULTS_POLICY_ENGINE", "Old")

    with pytest.raises(BadSettings) as raised:
        load()

    assert [fault.partition(":")[0] for fault in raised.value.faults] == [
        "KUMA_DP_SERVER_PORT=http",
        "KUMA_DEFAULTS_POLICY_ENGINE=Old",
    ]


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        load().ads_port = 1


def test_every_setting_has_a_variable_and_a_description() -> None:
    assert all(name.startswith(("KUMA_", "KOGUMA_")) and text for name, _, text in rows())
    assert len({variable(name) for name in Settings.model_fields}) == len(Settings.model_fields)


def test_the_settings_are_shown_as_kuma_shows_them() -> None:
    told = shown(load(store="memory:"))

    assert told["store"]["type"] == "memory"
    assert told["apiServer"]["http"]["port"] == 5681
    assert told["defaults"]["policyEngine"] == "TargetRef"
