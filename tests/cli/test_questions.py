"""What an agent answers when it is asked about its Envoy, and the level of Envoy's log that goes back."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cp.agent import log_level as agent_log_level
from cp.agent import questions
from cp.agent.admin import EnvoyAdmin
from cp.agent.log_level import LogLevel
from cp.agent.questions import answer_to
from cp.model.envoy_questions import (
    LARGEST_SENT,
    AgentFault,
    EnvoyQuestion,
    EnvoySubject,
)
from tests.support.waiting import eventually


class Page(io.BytesIO):
    def __init__(self, content: bytes, status: int = 200) -> None:
        super().__init__(content)
        self.status = status


@dataclass
class Admin:
    """An admin interface with this behind each path."""

    page: Page = field(default_factory=lambda: Page(b"{}"))
    levels: dict[str, str] = field(default_factory=lambda: {"admin": "warning", "upstream": "info", "http": "warning"})
    paths: list[str] = field(default_factory=list)
    is_away: bool = False

    @contextmanager
    def opened(self, path: str, patience: float) -> Iterator[Page]:
        self.paths.append(path)
        if self.is_away:
            raise ConnectionRefusedError(111, "Connection refused")
        yield self.page

    def post(self, path: str) -> bool:
        return self.answer_to_post(path) is not None

    def answer_to_post(self, path: str) -> bytes | None:
        if self.is_away:
            return None
        _, _, query = path.partition("?")
        name, _, value = query.partition("=")
        if name == "level":
            self.levels = dict.fromkeys(self.levels, value)
        elif name == "paths":
            self.levels |= dict(pair.split(":") for pair in value.split(","))
        return b"active loggers:\n" + "".join(f"  {k}: {v}\n" for k, v in self.levels.items()).encode()


def asked(admin: Admin, question: EnvoyQuestion, within: float = 5) -> Any:
    answer = answer_to(cast("EnvoyAdmin", admin), LogLevel(cast("EnvoyAdmin", admin), print), question, within)
    assert len(answer) <= LARGEST_SENT
    return json.loads(gzip.decompress(answer))["answer"]


def test_an_answer_is_what_envoy_says_without_secrets() -> None:
    admin = Admin(Page(b'{\n "a": 1,\n "password": "secret"\n}\n'))

    assert asked(admin, EnvoyQuestion(EnvoySubject.SERVER_INFO)) == {"a": 1, "password": "[redacted]"}
    assert admin.paths == ["/server_info"]


def test_a_page_for_people_is_one_text() -> None:
    admin = Admin(Page('a: "1"\nä: Bearer secret\n'.encode()))

    assert asked(admin, EnvoyQuestion(EnvoySubject.STATS, as_text=True)) == 'a: "1"\nä: Bearer [redacted]\n'


def test_what_is_asked_becomes_no_other_path() -> None:
    admin = Admin()
    asked(admin, EnvoyQuestion(EnvoySubject.STATS, filter="a&b=/quitquitquit?#\n"))

    assert admin.paths == ["/stats?usedonly&format=json&filter=a%26b%3D%2Fquitquitquit%3F%23%0A"]


MIB = 1 << 20


def noise(size: int) -> bytes:
    """What hardly gets shorter by being compressed."""
    chance = random.Random(1)
    return b"\n".join(chance.randbytes(48).hex().encode() for _ in range(size // 97))


@pytest.mark.parametrize(
    ("page", "filter_", "reason"),
    [
        (Page(b"a" * 3 * MIB), "", "more than 2 MiB"),
        (Page(noise(2 * MIB)), "", "too long to be sent"),
        (Page(b"no such thing", 404), "", "Envoy answers 404: no such thing"),
        (Page(b""), "a" * 1001, "more than 1000 characters"),
    ],
    ids=["size", "compressed", "status", "filter"],
)
def test_why_there_is_no_answer_is_told(page: Page, filter_: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "LARGEST_ANSWER", 2 * MIB)
    monkeypatch.setattr(questions, "LARGEST_SENT", MIB // 2)

    with pytest.raises(AgentFault, match=reason):
        asked(Admin(page), EnvoyQuestion(EnvoySubject.STATS, filter=filter_), within=60)


def test_an_envoy_that_does_not_answer_is_told() -> None:
    with pytest.raises(AgentFault, match=r"does not answer: .*Connection refused"):
        asked(Admin(is_away=True), EnvoyQuestion(EnvoySubject.CERTS))


def test_what_takes_too_long_ends() -> None:
    with pytest.raises(AgentFault, match="takes too long"):
        asked(Admin(Page(b"{\n}\n")), EnvoyQuestion(EnvoySubject.STATS), within=0)


# --- the level of the log ---------------------------------------------------------------------------------------------

BEFORE = {"admin": "warning", "upstream": "info", "http": "warning"}


def test_a_level_goes_back_to_what_each_logger_had() -> None:
    admin, said = Admin(), list[str]()
    log_level = LogLevel(cast("EnvoyAdmin", admin), said.append)

    log_level.change("debug", 0.05)

    assert set(admin.levels.values()) == {"debug"}
    eventually(lambda: admin.levels == BEFORE)
    eventually(lambda: said == ["Envoy logs at level debug for 0.05 s, as an operator asked", "Envoy logs as before"])
    assert log_level.as_data() == {"level": "warning", "loggers": {"upstream": "info"}, "setBackIn": None}


def test_a_level_that_is_set_twice_goes_back_to_the_first() -> None:
    admin = Admin()
    log_level = LogLevel(cast("EnvoyAdmin", admin), print)

    log_level.change("debug", 60)
    log_level.change("trace", 0.05)

    eventually(lambda: admin.levels == BEFORE)


def test_an_envoy_that_takes_no_level_keeps_its_own() -> None:
    log_level = LogLevel(cast("EnvoyAdmin", Admin(is_away=True)), print)

    with pytest.raises(AgentFault, match="does not say at which level"):
        log_level.change("debug", 1)


def test_log_level_shows_tenths_of_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    log_level, moments = LogLevel(cast("EnvoyAdmin", Admin()), print), iter([0.0, 0.06])
    monkeypatch.setattr(agent_log_level, "time", SimpleNamespace(monotonic=lambda: next(moments)))

    log_level.change("debug", 60)

    assert log_level.as_data()["setBackIn"] == 59.9
    log_level.end()
