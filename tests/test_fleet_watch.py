"""What a process tells of its proxies is of the revision that it names, or of a newer one."""

from __future__ import annotations

import asyncio

from cp.ads.hub import Hub
from cp.model.failure import Failure
from cp.serving.fleet_watch import FleetWatch


def test_a_revision_that_comes_while_proxies_are_looked_at_is_not_named_yet() -> None:
    async def test() -> None:
        revision = 1
        failures = {f"default.web-{number}": tuple[Failure, ...]() for number in range(100)}
        watch = FleetWatch(Hub().observer, lambda: failures, lambda: revision)
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(watch.delta({}))
            await asyncio.sleep(0)
            revision = 2

        assert asking.result().revision == 1
        assert (await watch.delta({})).revision == 2

    asyncio.run(test())
