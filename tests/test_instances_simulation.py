"""The simulation of several instances: its queues against queueing theory, and its messages against their number."""

from __future__ import annotations

import random
from dataclasses import replace
from math import inf
from statistics import median

import pytest

from bench.instances.costs import Costs
from bench.instances.events import SLICE, Clock, News, Process, Processors, Program, Queue
from bench.instances.forecast import simulated
from bench.instances.ground import TOGETHER, Ground, Spent
from bench.instances.model import Line
from bench.instances.results import InstancesResult, PacedResult, Percentiles, SteadyResult
from bench.instances.simulation import Layout, Outcome, Simulation, Traffic
from bench.instances.stand import Options
from cp.serving.reconcile import Pace

COSTS = Costs(
    client=0.0,
    request=0.0006,
    transaction=0.0003,
    row=0.0001,
    database_transaction=0.0003,
    database_row=0.0001,
    database_question=0.00005,
    disk=0.0004,
    database_notice=0.00005,
    read=0.0001,
    database_read=0.0001,
    turn=0.0008,
    change=0.0002,
    looked=0.00001,
    computed=0.00005,
    pushed=0.0001,
    proxy=0.0001,
    idle=0.0,
    database_idle=0.0,
    asked_peer=0.0,
)


def waits(servers: int, arrivals: float, seconds_of: random.Random | float, customers: int = 100_000) -> float:
    """The mean wait of customers that come by chance, and are served for a second each: always, or in the mean."""
    clock, chance, seconds = Clock(), random.Random(7), list[float]()
    queue = Queue(clock, servers)

    def customer() -> Process:
        came = clock.now
        yield queue.enter
        seconds.append(clock.now - came)
        yield clock.pause(seconds_of if isinstance(seconds_of, float) else seconds_of.expovariate(1))
        queue.leave()

    def come() -> Process:
        for _ in range(customers):
            yield clock.pause(chance.expovariate(arrivals))
            clock.start(customer())

    clock.start(come())
    clock.run(inf)
    assert len(seconds) == customers
    return sum(seconds) / customers


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_a_queue_with_equal_work_waits_as_long_as_m_d_1(load: float) -> None:
    assert waits(1, load, 1.0) == pytest.approx(load / (2 * (1 - load)), rel=0.05)


def test_a_queue_with_work_by_chance_waits_twice_as_long() -> None:
    assert waits(1, 0.6, random.Random(8)) == pytest.approx(0.6 / 0.4, rel=0.05)


def test_two_servers_wait_as_erlang_says() -> None:
    offered = 1.5
    waiting = offered**2 / 2 / (1 - offered / 2)
    of_all = waiting / (1 + offered + waiting)

    assert waits(2, offered, random.Random(9)) == pytest.approx(of_all / (2 - offered), rel=0.05)


def test_a_queue_knows_for_how_long_its_places_were_taken() -> None:
    clock = Clock()
    queue = Queue(clock, 2)

    def stay(seconds: float) -> Process:
        yield queue.enter
        yield clock.pause(seconds)
        queue.leave()

    for seconds in (1.0, 2.0, 3.0):
        clock.start(stay(seconds))
    clock.run(10)

    assert queue.used == pytest.approx(6)
    assert queue.share == pytest.approx(0.3)


def test_long_work_gives_way_to_short_work() -> None:
    clock, ends = Clock(), dict[str, float]()
    program = Program(clock, Processors(clock, 1))

    def work(name: str, seconds: float) -> Process:
        yield from program.work(seconds)
        ends[name] = clock.now

    clock.start(work("long", 10 * SLICE))
    clock.start(work("short", SLICE / 5))
    clock.run(1)

    assert ends["short"] == pytest.approx(1.2 * SLICE)
    assert ends["long"] == pytest.approx(10.2 * SLICE)
    assert program.spent == pytest.approx(10.2 * SLICE)


def test_processors_that_share_their_core_slow_each_other() -> None:
    clock, ends = Clock(), list[float]()
    processors = Processors(clock, 2, slowed=1.5)

    def work() -> Process:
        yield from processors.work(SLICE)
        ends.append(clock.now)

    clock.start(work())
    clock.start(work())
    clock.run(1)

    assert ends == pytest.approx([1.5 * SLICE, 1.5 * SLICE])


def test_who_has_not_seen_the_last_edition_does_not_wait() -> None:
    clock = Clock()
    news, woken = News(clock), list[float]()

    def wait(edition: int) -> Process:
        yield news.after(edition)
        woken.append(clock.now)

    def publish() -> Process:
        yield clock.pause(1)
        news.publish()

    for process in (publish(), wait(0), wait(-1)):
        clock.start(process)
    clock.run(2)

    assert woken == [0, 1]


# --- control planes ---


def measured(instances: int, proxies: int = 20) -> InstancesResult:
    """What a run would measure if things cost what they cost here."""
    paced = Simulation(COSTS, Layout(instances, proxies), Traffic(4, 50, is_even=True, asked=1))
    edited = Simulation(COSTS, Layout(instances, proxies), Traffic(4.5, edit_every=1))
    traffic = Traffic(10, 200, is_even=True, edit_every=1)
    steady = Simulation(COSTS, Layout(instances, proxies), traffic)
    of_paced, of_edits, of_steady = paced.run(), edited.run(), steady.run()
    asked, *told = (plane.program.spent / of_paced.begun for plane in paced.planes)
    bare_turn, nothing = COSTS.turn + COSTS.change, Percentiles(0.0, 0.0)
    turn = bare_turn + proxies * COSTS.looked
    return InstancesResult(
        instances=instances,
        until_answered=median(of_edits.in_force),
        cpu=sum(plane.program.spent for plane in edited.planes) / instances / of_edits.edits,
        turn=turn + proxies * COSTS.computed,
        bare_turn=bare_turn,
        load_cpu=proxies * COSTS.proxy,
        memory=0,
        messages={},
        transactions=0,
        idle=0,
        idle_cpu=0,
        idle_database_cpu=0,
        read_cpu=0,
        writes_a_second=0,
        database_cpu=0,
        cpu_of_a_write=0,
        connections=0,
        paced=PacedResult(asked, told[0] if told else None, paced.database.spent / of_paced.begun, 0, turn, 0),
        steady=SteadyResult(
            writes_a_second=traffic.writes,
            answered=nothing,
            served=nothing,
            at_proxies=nothing,
            in_force=nothing,
            fed=nothing,
            cpu=of_steady.instance_cpu,
            database_cpu=of_steady.database_cpu,
            turns=of_steady.turns / instances / traffic.seconds,
        ),
    )


def test_the_costs_of_the_simulation_are_read_out_of_what_it_is_measured_to_take() -> None:
    transaction = COSTS.transaction, COSTS.database_transaction + COSTS.database_notice  # of the one who writes
    here, there = transaction[0] + COSTS.row, transaction[1] + COSTS.database_row
    single = Spent(here, there, here + there + COSTS.disk)
    at_once = [of / TOGETHER for of in transaction]
    ground = Ground(
        single=single,
        together=Spent(at_once[0] + COSTS.row, at_once[1] + COSTS.database_row, 0),
        question=Spent(0, COSTS.database_question, 0),
        read=Spent(COSTS.read, COSTS.database_read, 0),
        slowed=1,
    )
    results = [measured(instances) for instances in (1, 2)]
    costs = Costs.of(results, ground, Options(proxies=20))

    for name in Costs.__slots__:
        assert getattr(costs, name) == pytest.approx(getattr(COSTS, name), rel=0.1, abs=1e-5), name


def outcome(instances: int, traffic: Traffic, costs: Costs = COSTS, proxies: int = 10, network: float = 0.0) -> Outcome:
    return simulated(costs, Layout(instances, proxies, network=network), traffic)


@pytest.mark.parametrize("instances", [1, 3, 10])
@pytest.mark.parametrize("writes", [5.0, 150.0])
def test_nothing_is_lost_and_nothing_comes_twice(instances: int, writes: float) -> None:
    of_all = outcome(instances, Traffic(4, writes, edit_every=1))

    assert of_all.edits == 4
    assert of_all.is_kept_up
    assert len(of_all.answered) == of_all.begun
    assert len(of_all.served) == of_all.begun * instances
    assert len(of_all.at_proxies) == of_all.edits * instances * 10
    assert len(of_all.in_force) == of_all.edits


def test_the_same_seed_has_the_same_outcome_and_another_one_has_another() -> None:
    once, twice, other = (outcome(2, Traffic(2, 50, seed=seed)) for seed in (1, 1, 2))

    assert once == twice
    assert once.answered != other.answered


def test_what_a_write_costs_the_database_is_on_the_line_of_its_instances() -> None:
    traffic = Traffic(5, 20, is_even=True)
    spent = {}
    for instances in (1, 2, 3, 4):
        of_all = outcome(instances, traffic)
        spent[instances] = of_all.database_cpu * traffic.seconds / of_all.begun
    line = Line.through(spent)
    of_each = COSTS.database_notice + COSTS.database_read

    assert line.worst < 0.01
    assert line.of_each == pytest.approx(of_each, rel=0.02)
    assert line.fixed == pytest.approx(
        COSTS.database_question + COSTS.database_transaction + COSTS.database_row, rel=0.02
    )


def test_an_edit_takes_what_its_steps_take_while_nothing_else_happens() -> None:
    proxies = 10
    [took] = outcome(1, Traffic(1.5, edit_every=1), proxies=proxies).in_force
    written = COSTS.request + COSTS.transaction + COSTS.row + COSTS.disk
    at_database = COSTS.database_question + COSTS.database_transaction + COSTS.database_row + COSTS.database_notice
    turn = COSTS.turn + COSTS.change + proxies * (COSTS.looked + COSTS.computed)
    sent = proxies * COSTS.pushed

    steps = written + at_database + COSTS.read + COSTS.database_read + 0.005 + turn + sent
    assert took == pytest.approx(steps, abs=0.001)


def test_a_network_delays_a_write_by_each_of_its_round_trips() -> None:
    near, far = (outcome(1, Traffic(2, 10, is_even=True), network=network) for network in (0.0, 0.001))

    assert far.answered[0] - near.answered[0] == pytest.approx(7 * 0.002, rel=0.01)  # with that of who asks


def test_writers_of_all_instances_stand_in_one_line() -> None:
    slow = replace(COSTS, disk=0.01)
    rates = [outcome(instances, Traffic(3, clients=1), slow).writes_a_second for instances in (1, 4, 8)]

    assert rates[0] < 100
    assert rates[1:] == pytest.approx([95, 95], rel=0.1)


def test_writes_that_wait_at_one_instance_share_a_commit() -> None:
    slow = replace(COSTS, disk=0.01)
    alone, together = (outcome(1, Traffic(3, clients=clients), slow) for clients in (1, 8))

    assert alone.transactions == pytest.approx(alone.begun, abs=2)
    assert together.transactions < together.begun / 3
    assert together.writes_a_second > 3 * alone.writes_a_second


def test_changes_that_come_close_together_are_one_turn_and_wait_for_it_no_longer_than_they_may() -> None:
    rarely, often = (outcome(1, Traffic(4, writes, is_even=True)) for writes in (10, 400))

    assert rarely.turns == rarely.begun
    assert often.turns < often.begun / 20
    assert median(often.served) == pytest.approx(Pace().at_most / 2, rel=0.5)
    assert Pace().at_most < max(often.served) < 1.5 * Pace().at_most


def test_too_many_writes_are_noticed_and_it_is_said_what_is_too_busy() -> None:
    slow = replace(COSTS, database_read=0.01)
    of_all = outcome(10, Traffic(3, 100), slow)

    assert not of_all.is_kept_up or max(of_all.served) > 0.25
    assert of_all.busiest == "the processors of the database"
    assert of_all.shares[of_all.busiest] > 0.95


def test_who_reads_the_feeds_costs_each_instance_as_much_as_there_are_others() -> None:
    asking = replace(COSTS, asked_peer=0.001)
    spent = [
        simulated(asking, Layout(instances, 0, has_readers=True), Traffic(4)).instance_cpu for instances in (1, 2, 5)
    ]

    assert spent == pytest.approx([0, 0.004, 0.016], rel=0.15, abs=0.0005)
