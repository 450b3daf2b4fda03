"""`koguma config`, and which control plane a command asks, with whose token."""

from __future__ import annotations

import errno
import json
import stat
from pathlib import Path

import pytest
import yaml

from cp.app import RunningControlPlane
from cp.cli import connection
from cp.cli.connection import ADDRESS, ConnectionOptions
from cp.cli.contexts import ClientConfig, KnownControlPlane, config_file, read_config, write_config
from tests.cli.conftest import Koguma
from tests.support.loopback import new_address

TEST, PROD = (
    KnownControlPlane("test", "http://test.example:5681"),
    KnownControlPlane("prod", "https://prod.example:5682", token="of-prod"),
)


@pytest.fixture
def two() -> None:
    write_config(ClientConfig().adding(TEST).adding(PROD))


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> Koguma:
    """A command line of which neither options nor the environment name a control plane. Nor is there the usual one."""
    monkeypatch.setattr(connection, "ADDRESS", new_address().url)
    return Koguma()


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(
    ("options", "address", "token"),
    [
        (ConnectionOptions(), PROD.url, "of-prod"),
        (ConnectionOptions(context="test"), TEST.url, ""),
        (ConnectionOptions(address="http://a:1", context="test"), "http://a:1", ""),
        (ConnectionOptions(address="http://a:1", context="test", typed=frozenset({"context"})), TEST.url, ""),
        (ConnectionOptions(address="http://a:1", typed=frozenset({"address"})), "http://a:1", ""),
        (ConnectionOptions(address="http://a:1", token="mine"), "http://a:1", "mine"),
    ],
)
def test_the_command_line_goes_before_the_environment_and_this_before_the_file(
    options: ConnectionOptions, address: str, token: str
) -> None:
    access = options.access()

    assert (access.address, access.credentials.current_token()) == (address, token)


@pytest.mark.usefixtures("two")
def test_a_token_of_the_environment_is_not_sent_to_the_control_plane_of_a_context() -> None:
    of_environment = ConnectionOptions(context="test", token="for-another")
    typed = ConnectionOptions(context="test", token="for-this", typed=frozenset({"token"}))

    assert of_environment.access().credentials.is_empty
    assert typed.access().credentials.current_token() == "for-this"


def test_without_a_file_it_is_this_machine() -> None:
    assert ConnectionOptions().access().address == ADDRESS


@pytest.mark.usefixtures("two")
def test_two_control_planes_at_once_are_a_mistake_of_usage(nowhere: Koguma) -> None:
    ended = nowhere("get", "meshes", "--context", "test", "--address", "http://a:1")

    assert (ended.status, ended.err.partition("\n")[0]) == (
        2,
        "Error: --address and --context each name a control plane",
    )


@pytest.mark.usefixtures("two")
def test_a_context_that_is_not_there_is_told_with_those_that_are(nowhere: Koguma) -> None:
    ended = nowhere("get", "meshes", "--context", "tset")

    assert ended.status == 2
    assert "there is no context tset" in ended.err
    assert "There is test, prod." in ended.err


def test_what_is_added_is_asked(nowhere: Koguma, running: RunningControlPlane, tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{running.http_port}"
    (tmp_path / "token").write_text("mine")
    nowhere("config", "control-planes", "add", "--name", "away", "--address", "http://127.0.0.1:9", "--skip-check")
    added = nowhere("config", "control-planes", "add", "--name", "here", "--address", address)

    assert (added.status, added.out) == (0, "control plane here is added, and asked from now on\n")
    assert nowhere("get", "meshes").status == 0
    assert nowhere("get", "meshes", "--context", "away").status == 1
    assert nowhere("config", "control-planes", "switch", "--name", "away").status == 0
    assert nowhere("get", "meshes").status == 1
    assert nowhere("config", "control-planes", "list").lines == [
        "ACTIVE   NAME   ADDRESS",
        "*        away   http://127.0.0.1:9",
        f"         here   {address}",
    ]
    nowhere("config", "control-planes", "remove", "--name", "away")
    assert [(name, read_config().current) for name in read_config().control_planes] == [("here", "")]


def test_what_does_not_answer_as_a_control_plane_is_not_added(nowhere: Koguma) -> None:
    ended = nowhere("config", "control-planes", "add", "--name", "x", "--address", "http://127.0.0.1:9")

    assert ended.status == 1
    assert not read_config().control_planes


@pytest.mark.usefixtures("two")
def test_a_name_is_not_taken_twice_unless_one_says_so(nowhere: Koguma) -> None:
    words = ("config", "control-planes", "add", "--name", "prod", "--address", "http://b:1", "--skip-check")

    assert "--overwrite" in nowhere(*words).err
    assert nowhere(*words, "--overwrite").status == 0
    assert read_config().named("prod").url == "http://b:1"


@pytest.mark.usefixtures("two")
def test_the_file_is_its_owners_alone_and_is_shown_without_tokens(nowhere: Koguma) -> None:
    assert stat.S_IMODE(config_file().stat().st_mode) == 0o600
    assert stat.S_IMODE(config_file().parent.stat().st_mode) == 0o700
    for words in (("view",), ("view", "-o", "json"), ("control-planes", "list", "-o", "json")):
        assert "of-prod" not in nowhere("config", *words).out

    config_file().chmod(0o644)
    assert "can be read by others" in nowhere("config", "view").err


OF_KUMACTL = """
controlPlanes:
- name: local
  coordinates:
    apiServer:
      url: https://localhost:5682
      authType: tokens
      authConf:
        token: abc
      skipVerify: true
- name: with-certificate
  coordinates:
    apiServer:
      url: "https://x:5682"
      clientCertFile: /a.pem
      clientKeyFile: /a.key
      headers: [{key: X-Tenant, value: "a, b"}, {key: x-key, value: of-gateway}]
- name: unused
  coordinates: {apiServer: {url: "https://y:5682", authType: tokens, authConf: {token: of-unused}}}
contexts:
- name: local
  controlPlane: local
  defaults: {mesh: shop}
- name: other
  controlPlane: with-certificate
- name: again
  controlPlane: with-certificate
- name: dangling
  controlPlane: gone
- later: {of: unheard}
currentContext: local
later: [2024, "007", unheard, null, {at: "2001-01-01"}]
"""


DEEP = ("[" * 200_000, f"{{a: {'[' * 300}{']' * 300}}}", f'{{"a": {"[" * 600}{"]" * 600}}}')


def test_a_file_of_kumactl_is_understood() -> None:
    config_file().parent.mkdir()
    config_file().write_text(OF_KUMACTL)

    access = ConnectionOptions().access()
    assert (access.address, access.credentials.token, access.credentials.verifies) == (
        "https://localhost:5682",
        "abc",
        False,
    )
    of_other = ConnectionOptions(context="other").access().credentials
    assert (of_other.client_certificate, of_other.client_key) == ("/a.pem", "/a.key")
    assert of_other.headers() == {"x-tenant": "a, b", "x-key": "of-gateway"}


def test_what_is_not_shown_or_not_hidden_without_tls_is_warned_of(nowhere: Koguma) -> None:
    config_file().parent.mkdir()
    config_file().write_text(OF_KUMACTL.replace("https://x:5682", "http://x.invalid:5681"))

    told = nowhere("get", "meshes", "--context", "other").err
    assert "Warning: http://x.invalid:5681 is not shown clientCertFile, as there is no TLS" in told
    assert "Warning: the header X-Tenant is sent to http://x.invalid:5681 in plain text" in told
    assert "of-gateway" not in told


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ("authType: oauth", "an authType that is not supported"),
        ("clientCertFile: /a.pem", "clientCertFile without clientKeyFile"),
        ("clientKeyFile: /a.key", "clientKeyFile without clientCertFile"),
        ('headers: [{key: "a b", value: c}]', "headers of which one"),
        ('headers: [{key: a, value: "b\\r\\nc: d"}]', "headers of which one"),
        ("headers: [{key: content-length, value: '0'}]", "headers of which one"),
        ("headers: {a: b}", "headers of which one"),
    ],
)
def test_what_the_file_asks_for_and_is_not_done_is_told(nowhere: Koguma, server: str, told: str) -> None:
    config_file().parent.mkdir()
    config_file().write_text(
        f"controlPlanes: [{{name: b, coordinates: {{apiServer: {{url: 'http://localhost:1', {server}}}}}}}]\n"
        "contexts: [{name: a, controlPlane: b}]\ncurrentContext: a\n"
    )

    ended = nowhere("get", "meshes")
    assert ended.status == 1
    assert told in ended.err


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (("switch", "--name", "other"), {"currentContext": "other"}),
        (("add", "--name", "new", "--address", "http://n:1", "--skip-check"), {"currentContext": "new"}),
        (("remove", "--name", "again"), {}),
    ],
)
def test_a_change_leaves_all_else_in_a_file_of_kumactl_as_it_is(
    nowhere: Koguma, words: tuple[str, ...], changes: dict[str, str]
) -> None:
    config_file().parent.mkdir()
    config_file().write_text(OF_KUMACTL)
    before = yaml.safe_load(OF_KUMACTL)

    assert nowhere("config", "control-planes", *words).status == 0

    after = json.loads(config_file().read_text())
    of_others = {"new", "again"}
    for data in (before, after):
        data["contexts"] = [each for each in data["contexts"] if each.get("name") not in of_others]
        data["controlPlanes"] = [each for each in data["controlPlanes"] if each.get("name") not in of_others]
    assert after == before | changes
    assert stat.S_IMODE(config_file().stat().st_mode) == 0o600


def test_a_control_plane_stays_until_its_last_context_is_removed(nowhere: Koguma) -> None:
    config_file().parent.mkdir()
    config_file().write_text(OF_KUMACTL)

    for name, is_left in (("other", True), ("again", False)):
        assert nowhere("config", "control-planes", "remove", "--name", name).status == 0
        assert ("with-certificate" in config_file().read_text()) is is_left
    assert read_config().control_planes.keys() == {"local"}
    assert "unused" in config_file().read_text()


def test_a_context_whose_control_plane_is_not_there_is_told_and_can_get_one(nowhere: Koguma) -> None:
    config_file().parent.mkdir()
    config_file().write_text(OF_KUMACTL)
    words = ("config", "control-planes", "add", "--name", "dangling", "--address", "http://b:1", "--skip-check")

    told = nowhere("get", "meshes", "--context", "dangling").err
    assert "the context dangling in" in told
    assert "is for a control plane gone, which is not in it" in told
    assert nowhere(*words, "--overwrite").status == 0
    assert read_config().named("dangling").url == "http://b:1"


def test_a_control_plane_without_a_context_is_not_replaced_unasked(nowhere: Koguma) -> None:
    config_file().parent.mkdir()
    config_file().write_text(OF_KUMACTL)
    words = ("config", "control-planes", "add", "--name", "unused", "--address", "http://b:1", "--skip-check")

    assert "--overwrite" in nowhere(*words).err
    assert nowhere(*words, "--overwrite").status == 0
    assert "of-unused" not in config_file().read_text()


def test_what_is_replaced_leaves_no_token_behind(nowhere: Koguma) -> None:
    config_file().parent.mkdir()
    config_file().write_text(OF_KUMACTL)
    words = ("config", "control-planes", "add", "--name", "local", "--address", "http://b:1", "--skip-check")

    assert nowhere(*words, "--overwrite").status == 0
    assert "abc" not in config_file().read_text()
    assert read_config().named("local").url == "http://b:1"
    assert json.loads(config_file().read_text())["contexts"][0]["defaults"] == {"mesh": "shop"}


def test_nothing_that_may_be_secret_is_shown(nowhere: Koguma) -> None:
    config_file().parent.mkdir()
    config_file().write_text(OF_KUMACTL)

    shown = nowhere("config", "view", "-o", "json").out
    assert not [secret for secret in ("abc", "of-unused", "of-gateway", "a, b", "unheard") if secret in shown]
    assert not [name for name in ("x-key", "/a.pem", "shop", "with-certificate", "later") if name not in shown]


@pytest.mark.usefixtures("two")
def test_a_write_that_fails_leaves_the_file_as_it_is_and_no_draft(
    nowhere: Koguma, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = config_file().read_text()

    def fail(draft: Path, file: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    ended = nowhere("config", "control-planes", "switch", "--name", "test")

    assert (ended.status, "cannot be written" in ended.err) == (1, True)
    assert [each.name for each in config_file().parent.iterdir()] == ["config"]
    assert config_file().read_text() == before


def test_a_link_stays_where_the_file_of_control_planes_is_kept_elsewhere(nowhere: Koguma, tmp_path: Path) -> None:
    kept = tmp_path / "dotfiles" / "koguma"
    kept.parent.mkdir()
    kept.write_text(OF_KUMACTL)
    config_file().parent.mkdir()
    config_file().symlink_to(kept)

    assert nowhere("config", "control-planes", "switch", "--name", "other").status == 0
    assert config_file().is_symlink()
    assert json.loads(kept.read_text())["currentContext"] == "other"
    assert [each.name for each in kept.parent.iterdir()] == ["koguma"]
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


@pytest.mark.parametrize("user", ["me:hunter2", "me:hunter2/@2", "hunter2", "me:x,hunter2"])
def test_an_address_with_a_password_is_neither_taken_nor_printed(nowhere: Koguma, user: str) -> None:
    url = f"http://{user}@localhost:5681"
    add = ("config", "control-planes", "add", "--name", "new", "--address", url, "--skip-check")
    write_config(ClientConfig().adding(KnownControlPlane("old", url, token="of-old")))

    added, asked = nowhere(*add), nowhere("get", "meshes")
    assert (added.status, asked.status) == (1, 1)
    assert "which are not sent" in added.err
    assert "which are not sent" in asked.err
    words = (("view",), ("control-planes", "list"), ("control-planes", "list", "-o", "json"))
    shown = [nowhere("config", *each) for each in words]
    changed = [nowhere("config", "control-planes", each, "--name", "old") for each in ("switch", "remove")]
    assert not [each for each in (added, asked, *shown, *changed) if "hunter2" in each.out + each.err]
    assert all("[redacted]@localhost:5681" in each.out for each in shown)


@pytest.mark.parametrize("text", [*DEEP, "[", "- a", '{"controlPlanes": 3}', "contexts: [{name: a}]", "\x00"])
def test_a_file_that_is_none_of_ours_is_told_and_hinders_nobody_who_needs_no_control_plane(
    nowhere: Koguma, text: str, tmp_path: Path
) -> None:
    config_file().parent.mkdir()
    config_file().write_text(text)
    (file := tmp_path / "mesh.yaml").write_text("type: Mesh\nname: default\n")

    ended = nowhere("get", "meshes")
    assert ended.status == 1
    assert "fault of koguma" not in ended.err
    assert nowhere("lint", "-f", file).status == 0


@pytest.mark.parametrize("text", DEEP)
def test_a_file_that_is_nested_too_deeply_is_told_with_the_line(nowhere: Koguma, text: str) -> None:
    config_file().parent.mkdir()
    config_file().write_text(text)

    for words in (("view",), ("control-planes", "list"), ("control-planes", "switch", "--name", "a")):
        assert f"{config_file()}:1 is no YAML: nested more than 64 levels deep" in nowhere("config", *words).err


def test_data_is_printed_for_programs(nowhere: Koguma) -> None:
    words = ("config", "control-planes", "add", "--name", "a", "--address", "http://a:1", "--skip-check", "-o", "json")

    assert json.loads(nowhere(*words).out) == {"name": "a", "address": "http://a:1"}
