"""The process with workers reports the state of its own reconciler."""

from types import SimpleNamespace
from typing import cast

from cp.serving.reconcile import Reconciler
from cp.serving.workers.crew import Crew
from cp.serving.workers.front import WorkersFront


def test_workers_front_passes_on_reconciler_state() -> None:
    state = {
        "loaded_world": object(),
        "follows": False,
        "late_meshes": {"default": 1.5},
        "is_stuck": True,
        "is_stopping": False,
    }
    front = WorkersFront(cast("Reconciler", SimpleNamespace(**state)), cast("Crew", SimpleNamespace()))

    assert {name: getattr(front, name) for name in state} == state
