"""Commands reach a control plane over TLS, say who calls, and what to do where that is not enough."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cp.app import RunningControlPlane
from tests.cli.conftest import Koguma, running_control_plane

TIMEOUT = """\
type: MeshTimeout
mesh: default
name: slow
spec:
  targetRef: {kind: Mesh}
  to: [{targetRef: {kind: Mesh}, default: {http: {requestTimeout: 10s}}}]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("https")


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[RunningControlPlane]:
    with running_control_plane(folder, https_enabled=True, https_port=0) as running:
        yield running


@pytest.fixture
def local(running: RunningControlPlane) -> Koguma:
    """The command line of the administrator on the control plane's machine."""
    return Koguma(f"http://127.0.0.1:{running.http_port}")


@pytest.fixture
def member(running: RunningControlPlane, local: Koguma, folder: Path, tmp_path: Path) -> Koguma:
    """The command line of somebody with a token."""
    token = local("generate", "user-token", "--name", "jane", "--group", "team", "--valid-for", "1h")
    (tmp_path / "token").write_text(token.out)
    koguma = Koguma(f"https://localhost:{running.https_port}")
    koguma.environment |= {
        "KOGUMA_TOKEN_FILE": str(tmp_path / "token"),
        "KOGUMA_CA_CERT_FILE": str(folder / "koguma-cp-ca.crt"),
    }
    return koguma


def test_a_holder_of_a_token_reads_over_tls(member: Koguma) -> None:
    assert "default" in member("get", "meshes").out


def test_options_come_before_the_environment(member: Koguma, tmp_path: Path) -> None:
    ended = member("get", "meshes", "--token-file", tmp_path / "none")

    assert (ended.status, "none cannot be read" in ended.err) == (1, True)


def test_a_missing_right_is_told(member: Koguma, tmp_path: Path) -> None:
    (tmp_path / "timeout.yaml").write_text(TIMEOUT)

    ended = member("apply", "-f", tmp_path / "timeout.yaml")

    assert ended.status == 1
    assert "user `jane` (groups `team`, `mesh-system:authenticated`) may not write anything" in ended.err


def test_a_bad_token_is_told_and_not_shown(member: Koguma, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x.y.z")

    ended = member("get", "meshes")

    assert (ended.status, "the token is not accepted" in ended.err) == (1, True)
    assert "x.y.z" not in ended.err


def test_whoever_does_not_trust_the_authority_is_told_what_to_copy(member: Koguma) -> None:
    del member.environment["KOGUMA_CA_CERT_FILE"]

    ended = member("get", "meshes")

    assert (ended.status, "koguma-cp-ca.crt" in ended.err) == (1, True)


def test_a_token_and_a_file_with_a_token_are_one_too_many(member: Koguma) -> None:
    assert member("get", "meshes", "--token", "a").status == 2


def test_a_token_that_goes_out_in_plain_text_is_warned_about(offline: Koguma) -> None:
    ended = offline("get", "meshes", "--token", "a", "--address", "http://192.0.2.1.invalid:5681")

    assert "in plain text; write https://" in ended.err
    assert "plain text" not in offline("get", "meshes", "--token", "a").err


def test_only_an_administrator_reveals_a_secret(local: Koguma, member: Koguma) -> None:
    hidden = local("get", "globalsecret", "admin-user-token", "-o", "yaml")
    shown = local("get", "globalsecret", "admin-user-token", "-o", "yaml", "--reveal")
    refused = member("get", "globalsecret", "admin-user-token", "-o", "yaml", "--reveal")

    assert "[redacted]" in hidden.out
    assert (shown.status, "[redacted]" in shown.out) == (0, False)
    assert (refused.status, refused.out) == (1, "")
    assert local("get", "globalsecrets", "--reveal").status == 2


def test_a_source_that_is_not_trusted_says_which_option_names_its_authority(
    member: Koguma, running: RunningControlPlane
) -> None:
    ended = member("migrate", "default", "--from-kuma", f"https://localhost:{running.https_port}")

    assert (ended.status, "with --source-ca-cert-file." in ended.err) == (1, True)
