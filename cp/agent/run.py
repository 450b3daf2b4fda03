"""`koguma dp run` once its options are read: joins the mesh, and runs Envoy with all that the agent does beside it.

It takes the place of the process that read the options and checked the file, which takes twice the memory.

See record 0081.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from cp.agent import envoys, guard, joining, ports, readiness, supervise, work_folder
from cp.agent.admin import EnvoyAdmin
from cp.agent.drain import ProxyDrain
from cp.agent.link import held_link
from cp.agent.log_lines import forwarded_output, redacted_log
from cp.agent.log_sinks import LogSinks
from cp.agent.membership import Membership
from cp.agent.metrics_push import pushed_metrics
from cp.agent.retrying import RetryTime
from cp.agent.say import say
from cp.agent.token_secret import TokenSecret
from cp.client.client import Client
from cp.client.credentials import Credentials
from cp.client.problem import INTERRUPTED, Problem, problem_of
from cp.model import envelope
from cp.model.registration import OWNER

_AFTER_DRAINING: Final = 20.0
"""Seconds that a guard needs beside the drain time: to start, to report to the control plane, and to end Envoy."""


@dataclass(frozen=True, slots=True)
class AgentOrders:
    """What the options of `koguma dp run` come to."""

    address: str
    credentials: Credentials
    dataplane: joining.ProxyDataplane
    envoy: str
    flags: envoys.EnvoyFlags
    drain_seconds: float
    retry_seconds: float
    system_ca: str
    work_dir: str = ""
    """Empty: a new folder, removed at the end."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> AgentOrders:
        """From the data that `asdict` makes of them."""
        parts: Mapping[str, Any] = {
            "credentials": Credentials(**data["credentials"]),
            "flags": envoys.EnvoyFlags(**data["flags"]),
            "dataplane": joining.ProxyDataplane(**data["dataplane"]),
        }
        return cls(**{**data, **parts})


def become(orders: AgentOrders, execv: Callable[[str, Sequence[str]], Any]) -> None:
    """Carry out the orders in this process, but with an interpreter that has imported nothing yet."""
    descriptor = _in_memory(json.dumps(asdict(orders)).encode())
    sys.stdout.flush()
    # Without -P it would import what is in the folder in which it was started.
    execv(sys.executable, [sys.executable, "-P", "-m", "cp.agent.run", str(descriptor)])


def _in_memory(content: bytes) -> int:
    """A file without a name, which the next program can read. There may be a token in it."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("orders")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    with os.fdopen(os.dup(descriptor), "wb") as written:
        written.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.set_inheritable(descriptor, True)  # noqa: FBT003  # its only argument
    return descriptor


def main() -> None:
    """Carry out the orders in the file whose descriptor is the argument."""
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        orders = AgentOrders.of(json.load(file))
    try:
        status = run(orders)
    except KeyboardInterrupt:
        status = INTERRUPTED
    except Exception as error:  # noqa: BLE001  # nothing outside of this catches it
        problem = problem_of(error)
        print(problem, file=sys.stderr)  # noqa: T201  # where every command prints its problems
        status = problem.status
    sys.exit(status)


def run(orders: AgentOrders) -> int:
    """Run Envoy until it ends. Returns its status."""
    patience = RetryTime(orders.retry_seconds, say)
    wait = orders.drain_seconds + _AFTER_DRAINING
    with supervise.tidied_up(), _folder(orders.work_dir) as folder, work_folder.folder_lock(folder, wait, say) as lock:
        token = TokenSecret(folder, orders.credentials, say)
        token.write()
        _end_orphan(folder, orders)
        membership = Membership(orders.address, _mesh_join(orders, folder, token), say, orders.credentials)
        bootstrap = _join_mesh(membership, orders.dataplane, patience)
        command = envoys.command(Path(orders.envoy), _write_bootstrap(bootstrap, folder), orders.flags)
        drain = ProxyDrain(EnvoyAdmin(bootstrap), membership, orders.drain_seconds, say)
        with token.kept():
            watch = GuardedFolder(lock, is_temporary=not orders.work_dir)
            status = _supervised(command, drain, membership, bootstrap, watch)
        membership.conclude()
    return status


def _mesh_join(orders: AgentOrders, folder: Path, token: TokenSecret) -> joining.MeshJoin:
    return joining.MeshJoin(
        orders.dataplane.mesh,
        orders.dataplane.name,
        str(folder),
        system_ca=orders.system_ca,
        owner=uuid.uuid4().hex,
        resource=orders.dataplane.text,
        token_secret=token.path,
        listener_drain_seconds=orders.flags.drain_time,
    )


def _join_mesh(membership: Membership, dataplane: joining.ProxyDataplane, patience: RetryTime) -> str:
    join, credentials = membership.joining, membership.credentials
    client = Client(membership.address, credentials=credentials)
    if dataplane.text:
        ports.must_not_be_shared(dataplane.data)
        joining.register(client, join, dataplane, patience)
        bootstrap = joining.bootstrap(client, join, patience, credentials.authority)
    else:
        bootstrap = joining.bootstrap(client, join, patience, credentials.authority)
        ports.must_not_be_shared(client.get(join.path))
    joining.warn_of_another_run(client, join, say)
    return bootstrap


@contextmanager
def _folder(requested: str) -> Iterator[Path]:
    if not requested:
        with tempfile.TemporaryDirectory(prefix="koguma-dp-") as folder:
            yield Path(folder)
        return
    path = Path(requested)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Problem(f"{requested} cannot be used as the work folder: {error.strerror}") from None
    yield path.resolve()


def _write_bootstrap(bootstrap: str, folder: Path) -> Path:
    """Write the bootstrap to a file that only its owner can read: it may contain a token."""
    file = folder / work_folder.BOOTSTRAP
    try:
        file.touch(0o600)
        file.chmod(0o600)
        file.write_text(bootstrap, encoding="utf-8")
    except OSError as error:
        raise Problem(f"{file} cannot be written: {error.strerror}") from None
    return file


@dataclass(frozen=True, slots=True)
class GuardedFolder:
    """The work folder, as the guard sees it."""

    lock: int
    is_temporary: bool
    """True if the guard removes it."""


def _supervised(
    command: Sequence[str], drain: ProxyDrain, membership: Membership, bootstrap: str, guarded: GuardedFolder
) -> int:
    """Run Envoy until it ends, with all that the agent does meanwhile."""
    key, sinks = secrets.token_hex(16), LogSinks(say)
    say(f"starting {command[0]}; its admin interface: {drain.admin.where}")
    orders = {
        "bootstrap": bootstrap,
        "address": membership.address,
        "credentials": asdict(membership.credentials),
        "joining": asdict(membership.joining),
        "seconds": drain.seconds,
        "is_temporary": guarded.is_temporary,
    }
    with guard.standing_guard(guarded.lock) as standing, supervise.started(command, {envelope.VARIABLE: key}) as child:
        standing.give({"envoy": child.pid, **orders})
        folder = Path(membership.joining.work_dir)
        with (
            work_folder.envoy_note(folder, child.pid),
            forwarded_output(supervise.output(child), key, sinks, sys.stdout.buffer),
            redacted_log(supervise.log(child), sys.stderr.buffer),
            readiness.announced_readiness(drain.admin, say, membership.enter),
            pushed_metrics(drain.admin, bootstrap, say),
            held_link(drain.admin, membership, say),
        ):
            return supervise.run(child, drain.run)


def _end_orphan(folder: Path, orders: AgentOrders) -> None:
    """Drain and end an Envoy that is left because both its `koguma dp run` and the guard were killed."""
    envoy = work_folder.orphan(folder)
    if envoy is None:
        return
    say(f"draining Envoy, process {envoy}, which a killed koguma dp run left here")
    bootstrap = (folder / work_folder.BOOTSTRAP).read_text(encoding="utf-8")
    membership = replace(_membership_of_orphan(bootstrap, folder, orders.address), credentials=orders.credentials)
    ProxyDrain(EnvoyAdmin(bootstrap), membership, orders.drain_seconds, say).run(threading.Event())
    guard.end(envoy)


def _membership_of_orphan(bootstrap: str, folder: Path, address: str) -> Membership:
    """The membership of a run that left only its bootstrap configuration. It does not remove the Dataplane."""
    node = json.loads(bootstrap)["node"]
    mesh, _, name = node["id"].partition(".")
    join = joining.MeshJoin(mesh, name, str(folder), owner=node["metadata"].get(OWNER, ""))
    return Membership(address, join, say)


if __name__ == "__main__":
    main()
