"""Machines of a test's own: network namespaces with addresses, joined by a cable."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import pytest

P = ParamSpec("P")
T = TypeVar("T")

NEEDED: Final = ("ip", "iptables", "setpriv")
"""What is needed to make a machine that redirects its traffic, beside the right to do so."""

_NETWORK: Final = 0x40000000
"""CLONE_NEWNET: what a thread changes to another namespace of."""


class Machine:
    """A network namespace. What is run on it belongs to it, with every socket and every process that it makes."""

    def __init__(self, name: str, address: str) -> None:
        self.name, self.address = name, address
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name, initializer=self._enter)

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.submit(function, *args, **kwargs).result(120)

    def sh(self, script: str) -> None:
        """Run a script as an operator does, as root."""
        ended = self.run(subprocess.run, ["sh", "-e"], input=script, text=True, capture_output=True, check=False)
        assert ended.returncode == 0, ended.stderr

    def close(self) -> None:
        self._thread.shutdown()

    def _enter(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        with Path(f"/run/netns/{self.name}").open() as namespace:
            if libc.setns(namespace.fileno(), _NETWORK) != 0:
                raise OSError(ctypes.get_errno(), f"cannot enter {self.name}")


def missing() -> str:
    """Why no machines can be made here; empty where they can."""
    lacking = [name for name in NEEDED if shutil.which(name) is None]
    if lacking:
        return f"{' and '.join(lacking)} not found"
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    probe = subprocess.run(["ip", "netns", "add", _named("probe")], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        return f"no network namespace can be made: {probe.stderr.strip()}"
    _ip("netns", "del", _named("probe"))
    return ""


@contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine]]:
    """A machine with a default route, and one at the other end of the cable with more than one address."""
    if reason := missing():
        pytest.skip(f"needs iptables, iproute2, setpriv and root: {reason}")
    near, far = Machine(_named("near"), "10.99.0.1"), Machine(_named("far"), "10.99.0.2")
    try:
        for machine in (near, far):
            _ip("netns", "add", machine.name)
        _ip("-n", near.name, *("link", "add", "eth0", "type", "veth", "peer", "eth0", "netns", far.name))
        for machine in (near, far):
            _ip("-n", machine.name, "addr", "add", f"{machine.address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _ip("-n", machine.name, "link", "set", device, "up")
        _ip("-n", far.name, "addr", "add", "10.99.0.3/24", "dev", "eth0")
        _ip("-n", near.name, "route", "add", "default", "via", far.address)
        yield near, far
    finally:
        for machine in (near, far):
            machine.close()
            subprocess.run(["ip", "netns", "del", machine.name], capture_output=True, check=False)


def _named(purpose: str) -> str:
    return f"koguma-{os.getpid()}-{purpose}"


def _ip(*words: str) -> Any:
    return subprocess.run(["ip", *words], check=True, capture_output=True)
