"""What is written again because somebody else wrote the same meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from cp.api.attempts import ATTEMPTS, attempted
from cp.model.names import Key
from cp.store.port import Conflict

KEY = Key("Dataplane", "default", "web-1")


class Writes:
    """The first so many meet a conflict."""

    def __init__(self, conflicts: int) -> None:
        self._conflicts, self.count = conflicts, 0

    async def write(self) -> int:
        self.count += 1
        if self.count <= self._conflicts:
            raise Conflict(KEY, 0, self.count)
        return self.count


@pytest.mark.parametrize("conflicts", [0, 1, ATTEMPTS - 1])
def test_a_write_is_tried_until_it_meets_no_conflict(conflicts: int) -> None:
    assert asyncio.run(attempted(Writes(conflicts).write)) == conflicts + 1


@pytest.mark.parametrize("most", [1, ATTEMPTS])
def test_the_last_conflict_is_told(most: int) -> None:
    writes = Writes(ATTEMPTS)
    with pytest.raises(Conflict) as conflict:
        asyncio.run(attempted(writes.write, most))

    assert (writes.count, conflict.value.actual) == (most, most)
