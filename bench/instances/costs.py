"""`Costs`: what things cost, as a run has measured it with one instance and with two. With these it is simulated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from bench.instances.ground import TOGETHER, Ground, Spent
from bench.instances.model import Line
from bench.instances.results import InstancesResult
from bench.instances.stand import EDIT_EVERY, Options
from cp.serving.instances.fleet import EVERY


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of processor time, but for `disk`, which is a wait, and `slowed`, which is a factor."""

    client: float
    """Of who writes, for a write."""

    request: float
    """Of the instance that is asked, for a write without its transaction."""

    transaction: float
    """Of that instance, for a transaction, and `row` for each write in it."""

    row: float
    database_transaction: float
    """Of the database, for the same."""

    database_row: float
    database_question: float
    """Of the database, for a question how far the store is."""

    disk: float
    """Until a commit is answered, without work."""

    database_notice: float
    """Of the database, for a notification to an instance."""

    read: float
    """Of an instance, for a question what is new."""

    database_read: float
    turn: float
    """Of an instance, for a turn, and `change` for each write in it."""

    change: float
    looked: float
    """Of an instance, in a turn, for each proxy, to find out whether it is concerned."""

    computed: float
    """Of an instance, in a turn, for each proxy that an edit concerns, beside that."""

    pushed: float
    """Of an instance, for what such a proxy is sent and answers."""

    proxy: float
    """Of the proxy, for the same."""

    idle: float
    """Of an instance, in a second in which nothing happens."""

    database_idle: float
    """Of the database in such a second, for each instance."""

    asked_peer: float
    """Of an instance that asks another one how its proxies are, and as much of the other one."""

    slowed: float = 1.0
    """By how much work takes longer while another processor of the machine is busy as well."""

    @classmethod
    def of(cls, results: Sequence[InstancesResult], ground: Ground, options: Options) -> Self:
        """The first result is of one instance, and there is another one."""
        alone, several = results[0], results[1:]
        told = _mean(result.paced.told for result in several if result.paced.told is not None)
        transaction, row = _of_group(ground.single.here, ground.together.here)
        _, database_row = _of_group(ground.single.there, ground.together.there)
        # By writes that come one by one: processes that have slept in between cost more than busy ones.
        database = Line.through({result.instances: result.paced.database_cpu for result in results})
        asked = alone.paced.asked - told
        turn = max(0.0, told - ground.read.here)
        change = _mean(_change(result, alone, asked, turn, ground.read.here) for result in several)
        looked = max(0.0, (alone.paced.turn - alone.bare_turn) / options.proxies)
        computed = max(0.0, (alone.turn - alone.paced.turn) / options.proxies)
        return cls(
            client=alone.paced.client,
            request=max(0.0, asked - transaction - row),
            transaction=transaction,
            row=row,
            database_transaction=max(0.0, database.fixed - ground.question.there - database_row),
            database_row=database_row,
            database_question=ground.question.there,
            disk=_wait(ground.single),
            database_notice=max(0.0, database.of_each - ground.read.there),
            read=ground.read.here,
            database_read=ground.read.there,
            turn=max(0.0, turn - change - looked * options.proxies),
            change=change,
            looked=looked,
            computed=computed,
            pushed=max(0.0, (alone.cpu - alone.paced.asked) / options.proxies - computed),
            proxy=alone.load_cpu / options.proxies,
            idle=_mean(result.idle_cpu for result in results),
            database_idle=_mean(result.idle_database_cpu / result.instances for result in results),
            asked_peer=_asked_peer(results),
            slowed=ground.slowed,
        )


def _change(result: InstancesResult, alone: InstancesResult, asked: float, turn: float, read: float) -> float:
    """What a write adds to a turn: turns of many writes cost less than as many turns of one."""
    steady, rate = result.steady, result.steady.writes_a_second
    edits = (alone.cpu - alone.paced.asked) / EDIT_EVERY
    of_turns = steady.cpu - result.read_cpu - rate * asked / result.instances - rate * read - edits
    return min(turn, max(0.0, (of_turns - steady.turns * turn) / max(1.0, rate - steady.turns)))


def _of_group(single: float, together: float) -> tuple[float, float]:
    """What a transaction costs, and each write in it: measured with one of them, and with many."""
    transaction = max(0.0, (single - together) * TOGETHER / (TOGETHER - 1))
    return transaction, single - transaction


def _wait(spent: Spent) -> float:
    return max(0.0, spent.took - spent.here - spent.there)


def _asked_peer(results: Sequence[InstancesResult]) -> float:
    """An instance asks each other one, and answers it, as often."""
    line = Line.through({result.instances: result.read_cpu - result.idle_cpu for result in results})
    return max(0.0, line.of_each * EVERY / 2)


def _mean(values: Iterable[float]) -> float:
    all_values = list(values)
    return sum(all_values) / len(all_values)
