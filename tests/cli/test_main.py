"""The command line as a whole."""

from __future__ import annotations

import errno
import importlib
import inspect
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer

from cp.cli import environment, output, tables
from cp.cli.commands import COMMANDS, CommandEntry
from cp.cli.examples import EXAMPLES
from cp.cli.main import build
from cp.cli.reporting import reporting_problems
from cp.listening import CannotListen
from cp.version import VERSION
from tests.cli.conftest import Koguma


def test_the_version_is_told(offline: Koguma) -> None:
    assert offline("version").out == offline("--version").out == f"koguma {version('koguma')}\n"


def test_without_a_command_there_is_help(offline: Koguma) -> None:
    ended = offline()

    assert "Run the control plane" in ended.out + ended.err


def test_a_command_that_does_not_exist_is_a_mistake_of_usage(offline: Koguma) -> None:
    ended = offline("app")

    assert ended.status == 2
    assert "apply" in ended.err


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (("xplain",), "'explain'"),
        (("config", "control-plane"), "'control-planes'"),
        (("generate", "user-tokn"), "'user-token'"),
        (("get", "meshtimeot"), "meshtimeouts"),
        (("get", "meshes", "--meshh", "x"), "--mesh"),
    ],
)
def test_a_word_that_is_nearly_right_is_proposed(offline: Koguma, words: tuple[str, ...], near: str) -> None:
    ended = offline(*words)

    assert ended.status in {1, 2}
    assert near in ended.err


def test_a_fault_of_ours_is_told_without_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    @reporting_problems
    def command() -> None:
        raise KeyError("oh")

    with pytest.raises(typer.Exit):
        command()

    err = capsys.readouterr().err
    assert "a fault of koguma itself: KeyError" in err
    assert "Traceback" not in err
    file = Path(err.split("the contents of ")[1].strip().removesuffix("."))
    assert "Traceback" in file.read_text()
    file.unlink()


def test_it_runs_as_a_module_and_warns_of_nothing() -> None:
    command = [sys.executable, "-W", "error", "-m", "cp", "version"]

    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == f"koguma {VERSION}\n"


HEAVY = {
    "cryptography",
    "envoy",
    "grpc",
    "httpx",
    "msgspec",
    "re2",
    "rich",
    "starlette",
    "structlog",
    "uvicorn",
    "yaml",
}
OF_SERVERS = {"cryptography", "grpc", "pydantic_settings", "starlette", "structlog", "uvicorn"}

IMPORTED = """
import sys
from cp.cli.main import build
try:
    build()(sys.argv[1:])
finally:
    print(*{name.partition(".")[0] for name in sys.modules}, file=sys.stderr)
"""


def imported(*words: str) -> set[str]:
    """The packages that a command imports."""
    command = [sys.executable, "-c", IMPORTED, *words]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    return set(ended.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("words", [("version",), ("--version",), ("--help",), ("dp", "--help"), ()])
def test_who_asks_for_the_version_or_for_help_waits_for_no_library(words: tuple[str, ...]) -> None:
    assert not imported(*words) & HEAVY


SOON = {("version",): 290, ("--help",): 200, ("get", "meshes"): 330}
"""Commands for which people wait often, and how many modules they may import. An import takes 0.2 ms at the least."""


@pytest.mark.parametrize(("words", "most"), SOON.items())
def test_a_command_that_is_typed_often_imports_little(words: tuple[str, ...], most: int) -> None:
    code = f"{IMPORTED.rpartition('print(')[0]}print(len(sys.modules), file=sys.stderr)"
    command = [sys.executable, "-c", code, *words]
    address = {**os.environ, "KOGUMA_ADDRESS": "http://127.0.0.1:9"}  # noqa: TID251  # the command's
    ended = subprocess.run(command, check=False, capture_output=True, text=True, env=address)

    assert int(ended.stderr.splitlines()[-1]) < most
    assert not imported(*words) & HEAVY


@pytest.mark.parametrize(
    "words",
    [
        ("get", "meshes"),
        ("delete", "mesh", "shop"),
        ("inspect", "dataplanes"),
        ("inspect", "rules", "web-1"),
        ("explain", "web-1", "backend/"),
        ("render", "web-1"),
        ("lint",),
    ],
)
def test_a_command_that_asks_a_control_plane_does_not_wait_for_what_that_needs(words: tuple[str, ...]) -> None:
    assert not imported(*words, "--address", "http://127.0.0.1:9") & OF_SERVERS


@pytest.mark.parametrize(("words", "command"), COMMANDS.items())
def test_the_line_of_a_command_in_a_list_begins_as_its_help_does(words: tuple[str, ...], command: CommandEntry) -> None:
    help_ = inspect.getdoc(getattr(importlib.import_module(command.module), command.function)) or ""

    assert re.findall(r"\w+", command.summary)[:2] == re.findall(r"\w+", help_)[:2], words


@pytest.mark.parametrize("words", COMMANDS)
def test_the_help_of_a_command_has_examples(offline: Koguma, words: tuple[str, ...]) -> None:
    help_ = offline(*words, "--help").out

    assert "Examples:" in help_, "give it examples in cp/cli/examples.py"
    assert f"koguma {' '.join(words)}" in help_.partition("Examples:")[2]


def test_there_are_examples_of_commands_alone() -> None:
    assert set(EXAMPLES) == set(COMMANDS)


def options() -> Iterator[tuple[str, Any]]:
    """Every option and argument of the command line, with the command that it belongs to."""

    def walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, (*words, name))
        yield from ((" ".join(words), parameter) for parameter in getattr(command, "params", ()))

    return walk(typer.main.get_command(build()), ())


OF_FEW_VALUES = re.compile(r"level|format|--output|--type")


def test_every_option_with_a_few_values_lists_them(offline: Koguma) -> None:
    named = [(command, option.opts[0]) for command, option in options() if OF_FEW_VALUES.search(option.opts[0])]
    help_ = {command: " ".join(offline(*command.split(), "--help").out.split()) for command, _ in named}

    assert len(named) > 5
    assert not [
        (command, name) for command, name in named if not re.search(rf"{name}(, -\w)? <[\w-]+\|", help_[command])
    ]


def test_every_argument_says_what_it_is_called() -> None:
    arguments = [(command, option) for command, option in options() if not option.opts[0].startswith("-")]

    assert not [(command, argument.name) for command, argument in arguments if not argument.metavar]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "--log-level", "loud"), "'loud' is not one of 'debug', 'info', 'warning', 'error'"),
        (("get", "mt", "-o", "tall"), "'tall' is not one of 'table', 'wide', 'yaml', 'json'"),
        (("run", "--ads-port", "x"), ": should be a valid integer"),
        (("dp", "run", "--concurrency", "x"), "'--concurrency' (or KUMA_DATAPLANE_RUNTIME_CONCURRENCY): should be a"),
        (("dp", "run", "--envoy-log-level", "loud"), "'loud' is not one of 'trace', 'debug'"),
    ],
)
def test_a_value_that_cannot_be_is_told_in_our_words(offline: Koguma, words: tuple[str, ...], message: str) -> None:
    ended = offline(*words)

    assert ended.status == 2
    assert message in " ".join(ended.err.split())
    assert "Value error" not in ended.err


def test_the_variables_that_options_read_are_known() -> None:
    read = {name for _, option in options() for name in getattr(option, "envvar", None) or []}

    assert read == environment.OF_OPTIONS


@pytest.mark.parametrize(
    ("name", "warning"),
    [
        ("KOGUMA_BINDD", "KOGUMA_BINDD is no setting of koguma, and has no effect; did you mean KOGUMA_BIND?"),
        ("KOGUMA_ADDRESS_", "KOGUMA_ADDRESS_ is no setting of koguma, and has no effect; did you mean KOGUMA_ADDRESS?"),
        (
            "KOGUMA_HTTP_PORT",
            "KOGUMA_HTTP_PORT is no setting of koguma, and has no effect; did you mean KUMA_API_SERVER_HTTP_PORT?",
        ),
        ("KOGUMA_ADS_PORT", "KOGUMA_ADS_PORT is no setting of koguma, and has no effect"),
        ("KOGUMA_XYZZY_PLUGH", "KOGUMA_XYZZY_PLUGH is no setting of koguma, and has no effect"),
        (
            "KUMA_DP_SERVERPORT",
            "KUMA_DP_SERVERPORT is no setting of koguma, and has no effect; did you mean KUMA_DP_SERVER_PORT?",
        ),
    ],
)
def test_a_variable_that_looks_like_a_setting_is_told(
    offline: Koguma, monkeypatch: pytest.MonkeyPatch, name: str, warning: str
) -> None:
    monkeypatch.setenv(name, "1")

    assert offline("version").err == f"Warning: {warning}\n"


@pytest.mark.parametrize("name", ["KUMA_STORE_POSTGRES_HOST", "KOGUMA_LOG_KEY", "KOGUMA_BIND", "HOME"])
def test_a_variable_that_is_a_setting_or_somebody_elses_is_not_told(
    offline: Koguma, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "1")

    assert not offline("version").err


LISTENERS = ("--ads-port", "--http-port", "--diagnostics-port")


def started(*words: str) -> subprocess.CompletedProcess[str]:
    """A control plane that cannot listen, and so ends by itself."""
    ports = [word for listener in LISTENERS if listener not in words for word in (listener, "0")]
    command = [sys.executable, "-m", "cp", "run", *ports, *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("listener", "workers"),
    [
        ("--ads-port", "2"),
        ("--http-port", "1"),
        *(
            pytest.param(*others, marks=pytest.mark.long)
            for others in (
                ("--ads-port", "1"),
                ("--http-port", "2"),
                ("--diagnostics-port", "1"),
                ("--diagnostics-port", "2"),
            )
        ),
    ],
)
def test_a_port_that_is_taken_is_told(tmp_path: Path, listener: str, workers: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = started("--store", f"sqlite:///{tmp_path}/koguma.db", listener, port, "--workers", workers)

    assert ended.returncode == 1
    assert f"Error: cannot listen on 127.0.0.1:{port}: Address already in use\n" in ended.stderr
    assert "Choose other ports" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("address", "hint"),
    [
        ("192.0.2.1", "This machine does not have that address."),
        pytest.param("nowhere.invalid", "Name an IP address", marks=pytest.mark.long),
    ],
)
def test_an_address_that_is_not_this_machines_is_told(address: str, hint: str) -> None:
    ended = started("--store", "memory:", "--bind", address)

    assert ended.returncode == 1
    assert f"Error: cannot listen on {address}:0: " in ended.stderr
    assert hint in ended.stderr


def test_a_fault_of_the_file_of_settings_is_told_with_its_line(tmp_path: Path) -> None:
    (file := tmp_path / "koguma.yaml").write_text('store: "memory:"\nlgLevel: debug\n')

    ended = started("--config", str(file))

    assert ended.returncode == 1
    assert ended.stderr.startswith(f"Error: {file}:2 lgLevel: unknown setting; did you mean `logLevel`?\n")


def test_a_log_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    ended = started("--store", "memory:", "--log-file", str(tmp_path / "none" / "log"))

    assert f"Error: KOGUMA_LOG_FILE={tmp_path}/none/log: cannot be written: No such file or directory" in ended.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may listen on every port")
def test_a_port_that_one_may_not_have_is_told() -> None:
    ended = started("--store", "memory:", "--http-port", "1")

    assert "Error: cannot listen on 127.0.0.1:1: Permission denied\nChoose a port above 1023" in ended.stderr


def test_what_follows_from_the_reason_is_told_by_the_kind_of_error() -> None:
    error = CannotListen("::1", 80, PermissionError(errno.EACCES, "Permission denied"))

    assert (str(error), error.hint.partition(",")[0]) == (
        "cannot listen on [::1]:80: Permission denied",
        "Choose a port above 1023",
    )


@pytest.mark.usefixtures("own_logging")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--store", "mysql://x"], "there is no store 'mysql://x'"),
        (["--http-port", "70000"], "KUMA_API_SERVER_HTTP_PORT=70000"),
        (["--store", "sqlite:////proc/koguma.db"], "/proc/koguma.db"),
    ],
)
def test_a_setting_that_cannot_be_is_told(offline: Koguma, arguments: list[str], message: str) -> None:
    ended = offline("run", "--ads-port", "0", "--diagnostics-port", "0", *arguments)

    assert ended.status == 1
    assert message in ended.err


@pytest.mark.usefixtures("own_logging")
def test_a_control_plane_does_not_start_with_public_keys_that_it_cannot_read(
    offline: Koguma, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KOGUMA_TOKEN_PUBLIC_KEYS", "/nowhere.yaml")

    result = offline("run", "--store", "memory:", "--ads-port", "0", "--http-port", "0", "--diagnostics-port", "0")

    assert result.status == 1
    assert "KOGUMA_TOKEN_PUBLIC_KEYS=/nowhere.yaml: cannot be read: No such file or directory" in result.err


# What is printed


def test_columns_are_three_spaces_apart() -> None:
    assert tables.table(("NAME", "AGE"), [("a", "1s"), ("backend", "")]) == ("NAME      AGE\na         1s\nbackend\n")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (0, "0s"), (59, "59s"), (60, "1m"), (7200, "2h"), (86400 * 3, "3d"), (86400 * 800, "2y")],
)
def test_an_age_is_in_its_largest_unit(seconds: int, text: str) -> None:
    assert output.age("1970-01-12T13:46:40.000Z", 1_000_000 + seconds) == text


@pytest.mark.parametrize("value", ["y", "n", "on", "yes", "1e3", "null", "0x1", "15s", "a: b"])
def test_a_text_in_yaml_stays_a_text_for_envoy_too(value: str) -> None:
    assert output.as_yaml({"x": value}).strip() in {f"x: {value}", f"x: '{value}'", f'x: "{value}"'}
    assert value not in {"y", "n"} or '"' in output.as_yaml(value)


def test_nothing_in_yaml_is_an_alias() -> None:
    shared = ["a"]

    assert "*" not in output.as_yaml({"x": shared, "y": shared})
