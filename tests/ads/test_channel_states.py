"""The table at the head of `Channel` is what a channel does, whatever the conversation."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from cp.ads.session import channel as described
from cp.ads.session.channel import Channel, ChannelState
from cp.translate.packing import CLUSTER, version_of
from cp.translate.snapshot import Snapshot
from tests.ads.content import cluster, snapshot
from tests.ads.test_against_a_model import MACHINES, Conversation

Transition: TypeAlias = tuple[str, str, str]

EVENTS: Final = ("open", "subscribe_to_all", "advance_to", "respond", "receive_answer", "unsubscribe")


def rows() -> frozenset[Transition]:
    """State, event and next state of each row of the table."""
    state = "|".join(state.name for state in ChannelState)
    row = re.compile(rf"^    ({state}) +({'|'.join(EVENTS)}) +({state})\b", re.MULTILINE)
    return frozenset(row.findall(described.__doc__ or ""))


@pytest.fixture
def transitions(monkeypatch: pytest.MonkeyPatch) -> set[Transition]:
    """What channels do during a test."""
    seen: set[Transition] = set()
    for event in EVENTS:
        monkeypatch.setattr(Channel, event, recorded(getattr(Channel, event), event, seen))
    return seen


def recorded(method: Callable[..., Any], event: str, seen: set[Transition]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Channel, *arguments: Any, **options: Any) -> Any:
        state = self.state
        result = method(self, *arguments, **options)
        seen.add((state.name, event, self.state.name))
        return result

    return call


# --- a channel in each state, and whatever may happen to it ---

OLD = snapshot(cluster("a"), cluster("b"))
NEW = snapshot(cluster("a", revision=1), cluster("b"))


def unopened() -> Channel:
    return Channel(CLUSTER, sends_all=False, trusts_versions=True)


def subscribed() -> Channel:
    channel = unopened()
    channel.open()
    channel.subscribe(frozenset({"a", "b"}))
    return channel


def acknowledged() -> Channel:
    channel = subscribed()
    send(channel, OLD)
    channel.receive_answer(channel.nonce, None)
    return channel


def pending() -> Channel:
    channel = acknowledged()
    send(channel, NEW)
    return channel


def nacked() -> Channel:
    channel = pending()
    channel.receive_answer(channel.nonce, "cluster a: no")
    return channel


def nacked_as_a_whole() -> Channel:
    channel = acknowledged()
    send(channel, snapshot())
    channel.receive_answer(channel.nonce, "no")
    return channel


def pending_and_nacked() -> Channel:
    channel = nacked()
    send(channel, snapshot(cluster("a", revision=1), cluster("b", revision=1)))
    return channel


def send(channel: Channel, newer: Snapshot) -> None:
    """Send what is new in a snapshot, as a session does."""
    if update := channel.advance_to(newer):
        version = version_of(sum(batch.digest for batch in update.batches))
        channel.respond(version, update.batches, update, update.removed)


BEGINNINGS = (unopened, subscribed, acknowledged, pending, nacked, nacked_as_a_whole, pending_and_nacked)

FIRST_EVENTS: tuple[Callable[[Channel], Any], ...] = (
    lambda channel: channel.open(),
    lambda channel: channel.receive_answer("of another stream", None),
)

LATER_EVENTS: tuple[Callable[[Channel], Any], ...] = (
    lambda channel: channel.receive_answer("of another stream", None),
    lambda channel: channel.receive_answer(channel.nonce, None),
    lambda channel: channel.receive_answer(channel.nonce, "no"),
    lambda channel: channel.unsubscribe(frozenset({"a"})),
    lambda channel: channel.unsubscribe(frozenset({"b"})),
    lambda channel: channel.subscribe_to_all(),
    lambda channel: send(channel, NEW),
    lambda channel: send(channel, snapshot(cluster("a", revision=2))),
)


def test_every_row_of_the_table_is_a_transition(transitions: set[Transition]) -> None:
    for begin in BEGINNINGS:
        for happen in FIRST_EVENTS if begin is unopened else LATER_EVENTS:
            happen(begin())

    assert transitions == rows()


@pytest.mark.parametrize("machine", MACHINES)
def test_every_transition_is_in_the_table(machine: type[Conversation], transitions: set[Transition]) -> None:
    # Always the same conversations: what they say about sessions is for another test to find out.
    always_the_same = settings(max_examples=40, stateful_step_count=25, deadline=None, derandomize=True, database=None)
    run_state_machine_as_test(machine, settings=always_the_same)

    assert transitions - rows() == set()
