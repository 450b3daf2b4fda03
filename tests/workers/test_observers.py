"""What the workers of a control plane see together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from cp.serving.workers.crew import Crew
from cp.serving.workers.observers import CombinedObserver


class Workers:
    """Two, with what each of them answers."""

    async def ask(self, what: str, *about: Any) -> Mapping[int, Any]:
        if what == "owners":
            return {
                1: {"default.a": frozenset({"one"})},
                2: {"default.a": frozenset({"two"}), "default.b": frozenset()},
            }
        return {1: "", 2: f"what {about} brought"}


def test_a_proxy_is_connected_wherever_one_of_its_runs_is() -> None:
    observers = CombinedObserver(cast("Crew", Workers()))

    assert asyncio.run(observers.owners()) == {"default.a": frozenset({"one", "two"}), "default.b": frozenset()}
    assert asyncio.run(observers.brought("default.a", "two")) == "what ('default.a', 'two') brought"
