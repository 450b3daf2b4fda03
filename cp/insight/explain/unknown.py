"""Where a fault of ours keeps an answer from being worked out, that is the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cp.insight.explain.query import AmbiguousCall
from cp.insight.simulate import UnsimulatedFeature
from cp.model.failure import failure
from cp.resources.resource import Resource

T = TypeVar("T")


def of_proxy(dataplane: Resource, make: Callable[[], T]) -> T:
    """What is worked out of a proxy. Raises `UnsimulatedFeature` where a fault of ours comes between.

    To find out what a value does, something is built that can fail as what the proxy is served can.
    """
    try:
        return make()
    except (AmbiguousCall, UnsimulatedFeature):
        raise
    except Exception as error:  # whatever it is, it is no fault of who asks
        raise UnsimulatedFeature(f"what {dataplane.key} is served {failure(error).unknown}") from error
