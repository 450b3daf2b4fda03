"""The table at the head of `Channel` is what a channel does, whatever the conversation."""

from __future__ import annotations

import ast
import gc
import inspect
import re
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from cp.ads.session import base, delta, sotw
from cp.ads.session import channel as described
from cp.ads.session.channel import Channel, ChannelState
from cp.translate.packing import CLUSTER, version_of
from cp.translate.snapshot import Snapshot
from tests.ads.content import cluster, snapshot
from tests.ads.test_against_a_model import MACHINES, Conversation

Transition: TypeAlias = tuple[str, str, str]

METHODS: Final = {
    name: method for name, method in inspect.getmembers(Channel, inspect.isfunction) if not name.startswith("_")
}


def rows() -> frozenset[Transition]:
    """State, event and next state of each row of the table."""
    state = "|".join(state.name for state in ChannelState)
    row = re.compile(rf"^    ({state}) +(\w+) +({state})\b", re.MULTILINE)
    return frozenset(row.findall(described.__doc__ or ""))


EVENTS: Final = frozenset(event for _, event, _ in rows())


@pytest.fixture
def transitions(monkeypatch: pytest.MonkeyPatch) -> set[Transition]:
    """What channels do during a test: each call of an event, and any other call that changes the state."""
    seen: set[Transition] = set()
    for name, method in METHODS.items():
        monkeypatch.setattr(Channel, name, recorded(method, name, seen))
    return seen


def recorded(method: Callable[..., Any], name: str, seen: set[Transition]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Channel, *arguments: Any, **options: Any) -> Any:
        state = self.state
        result = method(self, *arguments, **options)
        if name in EVENTS or self.state is not state:
            seen.add((state.name, name, self.state.name))
        return result

    return call


# --- a channel in each state, and whatever may happen to it ---

OLD = snapshot(cluster("a"), cluster("b"))
NEW = snapshot(cluster("a", revision=1), cluster("b"))


def unopened() -> Channel:
    return Channel(CLUSTER, sends_all=False, can_remove=True, reports_missing=True, trusts_versions=True)


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


def acknowledged_with_all() -> Channel:
    channel = acknowledged()
    channel.subscribe_to_all()
    send(channel, OLD)
    channel.receive_answer(channel.nonce, None)
    return channel


def pending_and_subscribed_to_all() -> Channel:
    channel = pending()
    channel.subscribe_to_all()
    return channel


def send(channel: Channel, newer: Snapshot) -> None:
    """Send what is new in a snapshot, as a session does."""
    if update := channel.advance_to(newer):
        version = version_of(sum(batch.digest for batch in update.batches))
        channel.respond(version, update.batches, update, update.removed)


BEGINNINGS = (
    *(unopened, subscribed, acknowledged, acknowledged_with_all, pending, pending_and_subscribed_to_all),
    *(nacked, nacked_as_a_whole, pending_and_nacked),
)

FIRST_CALLS: tuple[Callable[[Channel], Any], ...] = (
    lambda channel: channel.open(),
    lambda channel: channel.receive_answer("of another stream", None),
    # A session calls these whether or not the client has asked for the type.
    lambda channel: channel.resend(frozenset({"a"})),
    lambda channel: channel.cancel_resends(),
    lambda channel: channel.distrust_versions(),
    lambda channel: channel.stop_blocking(),
)

LATER_CALLS: tuple[Callable[[Channel], Any], ...] = (
    *FIRST_CALLS[1:],
    lambda channel: channel.subscribe(frozenset({"a"})),
    lambda channel: channel.subscribe(frozenset({"c"})),
    lambda channel: channel.unsubscribe_from_all(),
    lambda channel: channel.request_all(),
    lambda channel: channel.repeat(channel.nonce),
    lambda channel: channel.note_names(),
    lambda channel: channel.share_names(frozenset),
    lambda channel: channel.note_initial_version("of an earlier stream"),
    lambda channel: channel.note_initial_versions({"a": "of an earlier stream"}),
    lambda channel: channel.rebase(OLD),
    lambda channel: channel.rewind(),
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
        for call in FIRST_CALLS if begin is unopened else LATER_CALLS:
            call(begin())

    assert transitions == rows()


@pytest.mark.parametrize("begin", [acknowledged, acknowledged_with_all, nacked])
def test_rebased_channel_frees_the_older_snapshot(begin: Callable[[], Channel]) -> None:
    channel, newer = begin(), snapshot(*OLD.parts[0])
    older = channel._resources.base
    channel.rebase(newer)

    assert channel.is_based_on(newer)
    assert not any(referent is older for referent in gc.get_referents(channel))


@pytest.mark.parametrize("variant", [base, sotw, delta])
def test_sessions_change_a_channel_by_its_methods_alone(variant: ModuleType) -> None:
    fields = (node for node in ast.walk(ast.parse(inspect.getsource(variant))) if isinstance(node, ast.Attribute))
    written = [ast.unparse(node) for node in fields if isinstance(node.ctx, ast.Store)]

    assert not [field for field in written if not field.startswith("self.")]


@pytest.mark.parametrize("machine", MACHINES)
def test_every_transition_is_in_the_table(machine: type[Conversation], transitions: set[Transition]) -> None:
    # Always the same conversations: what they say about sessions is for another test to find out.
    always_the_same = settings(max_examples=40, stateful_step_count=25, deadline=None, derandomize=True, database=None)
    run_state_machine_as_test(machine, settings=always_the_same)

    assert transitions - rows() == set()
