"""What is believed of things that change while they are looked at."""

from __future__ import annotations

from dataclasses import dataclass, field

from cp.store.settling import SettledValues


@dataclass
class Looking:
    """Somebody who looks at letters, at times that the test chooses."""

    time: float = 0.0
    settling: SettledValues[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.settling = SettledValues(1.0, lambda: self.time)

    def at(self, time: float, **seen: int) -> tuple[dict[str, int], bool]:
        self.time = time
        return dict(self.settling.believe(seen)), self.settling.in_doubt


def test_the_first_sight_is_believed() -> None:
    assert Looking().at(0, a=1, b=2) == ({"a": 1, "b": 2}, False)


def test_nothing_at_the_first_sight_is_a_sight_too() -> None:
    looking = Looking()
    looking.at(0)

    assert looking.at(1, a=1) == ({}, True)


def test_a_change_is_believed_when_it_has_lasted() -> None:
    looking = Looking()
    looking.at(0, a=1)

    assert looking.at(1, a=2) == ({"a": 1}, True)
    assert looking.at(1.9, a=2) == ({"a": 1}, True)
    assert looking.at(2, a=2) == ({"a": 2}, False)


def test_each_change_begins_anew() -> None:
    looking = Looking()
    looking.at(0, a=1)
    looking.at(1, a=2)

    assert looking.at(1.9, a=3) == ({"a": 1}, True)
    assert looking.at(2.5, a=3) == ({"a": 1}, True)
    assert looking.at(2.9, a=3) == ({"a": 3}, False)


def test_what_is_as_it_was_is_in_doubt_no_longer() -> None:
    looking = Looking()
    looking.at(0, a=1)
    looking.at(1, a=2)

    assert looking.at(1.5, a=1) == ({"a": 1}, False)
    assert looking.at(2.2, a=2) == ({"a": 1}, True)


def test_what_comes_and_goes_has_to_last_too() -> None:
    looking = Looking()
    looking.at(0, a=1)

    assert looking.at(1, b=1) == ({"a": 1}, True)
    assert looking.at(1.5, a=1) == ({"a": 1}, False)
    looking.at(2, b=1)
    assert looking.at(3, b=1) == ({"b": 1}, False)


def test_one_that_never_settles_holds_up_no_other() -> None:
    looking = Looking()
    looking.at(0, a=0, b=0)

    for time in range(1, 10):
        believed, in_doubt = looking.at(time * 0.5, a=time, b=1)
        assert (believed["a"], believed["b"], in_doubt) == (0, int(time >= 3), True)
