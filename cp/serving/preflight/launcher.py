"""Launcher of the sandbox: starts one program where it can reach nothing, and ends with it.

It is a program of its own that needs only Python: a process with threads cannot enter namespaces safely. It reads a
plan from standard input, as JSON that `Sandbox` writes. It writes to standard error why there is no sandbox; if it
writes nothing, the program runs.

There are two processes. The supervisor stays outside and waits. The other process is the first one in new namespaces:
it replaces the machine's root folder with an empty one, gives up all rights, and becomes the program.
"""

from __future__ import annotations

import base64
import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_CLONE: Final[Mapping[str, int]] = {"x86_64": 56, "aarch64": 220}
_EXECVEAT: Final[Mapping[str, int]] = {"x86_64": 322, "aarch64": 281}
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_MOUNT_SETATTR: Final = 442
_PIVOT_ROOT: Final[Mapping[str, int]] = {"x86_64": 155, "aarch64": 41}

_NEW_NS, _NEW_CGROUP, _NEW_UTS, _NEW_IPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
_NEW_USER, _NEW_PID, _NEW_NET = 0x10000000, 0x20000000, 0x40000000
_NAMESPACES: Final = _NEW_USER | _NEW_NS | _NEW_NET | _NEW_PID | _NEW_IPC | _NEW_UTS | _NEW_CGROUP

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 8, 0x1000, 0x4000, 0x40000
_ATTR_RDONLY, _ATTR_NOSUID = 1, 2
_MNT_DETACH: Final = 2
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 22, 24, 38
_SECCOMP_MODE_FILTER: Final = 2
_LAST_CAPABILITY: Final = 63
_CAPABILITY_VERSION: Final = 0x20080522
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1

_LANDLOCK_RIGHTS: Final = {1: 13, 2: 14, 3: 15, 4: 15}
"""How many rights on files each version knows. Versions 5 and later know 16."""
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER, _REMOVE_FOLDER, _REMOVE_FILE = 1, 2, 4, 8, 16, 32
_MAKE_FOLDER, _MAKE_FILE, _MAKE_SOCKET, _TRUNCATE = 1 << 7, 1 << 8, 1 << 9, 1 << 14
_READS: Final = _EXECUTE | _READ_FILE | _READ_FOLDER
_CHANGES: Final = _REMOVE_FOLDER | _REMOVE_FILE | _MAKE_FOLDER | _MAKE_FILE | _MAKE_SOCKET | _TRUNCATE
_OWN_SIGNALS_AND_SOCKETS: Final = 0b11
_SCOPED_SINCE: Final = 6

_NOBODY: Final = 65534
_LONGEST: Final = 1024 * 1024
_NICE: Final = 5
"""More than the control plane's: with ten, Envoy could not start in time next to other busy processes."""


class NoSandbox(Exception):
    """A step towards the sandbox is not possible here."""


def main() -> None:
    """Start the program, and end with its status."""
    plan = json.loads(sys.stdin.buffer.read(_LONGEST))
    try:
        status = _supervise(plan)
    except (NoSandbox, OSError) as error:
        _report(2, error)
        status = 1
    os._exit(status)


def _supervise(plan: Mapping[str, Any]) -> int:
    _die_with_parent()
    if os.getppid() != plan["parent"]:
        return 1
    signal.alarm(plan["lifetime"])  # ends the supervisor, and all with it
    reading, writing = os.pipe()
    child = _call("clone", _LIBC.syscall, _CLONE[plan["machine"]], _NAMESPACES | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os.close(writing)
        _become(plan, reading)
    _map_users(child)
    os.write(writing, b"1")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # the reader of standard error waits for its end
        os.dup2(null, descriptor)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status if status >= 0 else 128 - status  # as shells tell of a signal


def _die_with_parent() -> None:
    _call("prctl", _LIBC.prctl, _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _map_users(child: int) -> None:
    """Map the users of the sandbox. For root, the process stays root until the sandbox is made, and then is nobody."""
    users = groups = f"0 0 1\n{_NOBODY} {_NOBODY} 1"
    if os.geteuid() != 0:
        users, groups = f"{_NOBODY} {os.geteuid()} 1", f"{_NOBODY} {os.getegid()} 1"
        _write(f"/proc/{child}/setgroups", "deny")
    _write(f"/proc/{child}/uid_map", users)
    _write(f"/proc/{child}/gid_map", groups)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        raise NoSandbox(f"write {path}: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _become(plan: Mapping[str, Any], go_ahead: int) -> None:
    """Turn the first process of the new namespaces into the program."""
    errors = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, 3)
    try:
        _die_with_parent()
        if os.read(go_ahead, 1) != b"1":
            os._exit(1)
        os.setsid()
        _yield_to_others()
        os.umask(0o022)  # the program may run as another user than this process
        _enter_root(plan)
        _start_loopback()
        socket.sethostname("preflight")
        program = os.open(plan["program"], os.O_PATH)
        _give_up_rights()
        _die_with_parent()  # a change of user clears it
        os.chdir(plan["scratch"])
        _restrict_files(plan)
        _limit(plan, program)
        _filter_calls(base64.b64decode(plan["seccomp"]))
        if plan["probe"] is not None:
            _probe(plan["probe"], errors)
        _execute(plan)
    except (NoSandbox, OSError) as error:
        _report(errors, error)
    os._exit(1)


def _yield_to_others() -> None:
    """Lower the priority. Where memory is short, the kernel ends this process first."""
    try:
        os.nice(_NICE)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except OSError as error:
        raise NoSandbox(f"lower the priority: {error.strerror}") from None
    with suppress(NoSandbox, OSError):
        _write("/proc/self/oom_score_adj", "1000")


def _enter_root(plan: Mapping[str, Any]) -> None:
    """Enter an empty file system, with some files of the machine that can only be read."""
    root, scratch = plan["root"], plan["root"] + plan["scratch"]
    owner = f",uid={_NOBODY},gid={_NOBODY}"
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", root, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=1m,nr_inodes=256,mode=755")
    for path, text in plan["files"].items():
        _fill(root + path, text.encode())
    for path, source in plan["binds"].items():
        _fill(root + path)
        _mount(source, root + path, None, _MS_BIND)
        _make_read_only(root + path)
    Path(scratch).mkdir()
    _mount("tmpfs", scratch, "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, f"{plan['scratch_size']},mode=700{owner}")
    _make_read_only(root)
    os.chdir(root)
    _call("pivot_root", _LIBC.syscall, _PIVOT_ROOT[plan["machine"]], b".", b".")
    _call("umount", _LIBC.umount2, b".", _MNT_DETACH)
    os.chdir("/")


def _fill(path: str, content: bytes = b"") -> None:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    texts = [None if text is None else text.encode() for text in (source, target, kind, options)]
    step = f"mount {source or 'nothing'} at {target}"
    _call(step, _LIBC.mount, texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])


def _make_read_only(path: str) -> None:
    attributes = struct.pack("=QQQQ", _ATTR_RDONLY | _ATTR_NOSUID, 0, 0, 0)
    step = f"mount_setattr {path}"
    _call(step, _LIBC.syscall, _MOUNT_SETATTR, _AT_FDCWD, path.encode(), 0, attributes, ctypes.c_size_t(32))


def _start_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))


def _give_up_rights() -> None:
    for capability in range(_LAST_CAPABILITY + 1):
        _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # fails for those that this kernel does not have
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    _call("capset", _LIBC.capset, struct.pack("=II", _CAPABILITY_VERSION, 0), bytes(24))
    _call("prctl", _LIBC.prctl, _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _restrict_files(plan: Mapping[str, Any]) -> None:
    """Allow changes in the scratch folder only, by Landlock, where the kernel has it."""
    version = _LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return
    known = (1 << _LANDLOCK_RIGHTS.get(version, 16)) - 1
    scoped = _OWN_SIGNALS_AND_SOCKETS if version >= _SCOPED_SINCE else 0
    described = struct.pack("=QQQ", known, 0, scoped)
    size = ctypes.c_size_t(24 if scoped else 8)
    ruleset = _call("landlock", _LIBC.syscall, _CREATE_RULESET, described, size, 0)
    for path, rights in (("/", _READS), (plan["scratch"], _WRITE_FILE | _CHANGES), ("/dev/null", _WRITE_FILE)):
        opened = os.open(path, os.O_PATH)
        rule = struct.pack("=Qi", rights & known, opened)
        _call("landlock", _LIBC.syscall, _ADD_RULE, ruleset, 1, rule, 0)
        os.close(opened)
    _call("landlock", _LIBC.syscall, _RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _limit(plan: Mapping[str, Any], program: int) -> None:
    """Set limits. No file descriptor can then be as high as that of the program, which closes when it starts."""
    os.dup2(program, plan["exec_fd"], inheritable=False)
    limits = {**plan["limits"], "NOFILE": plan["exec_fd"]}
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))


def _filter_calls(program: bytes) -> None:
    instructions = ctypes.create_string_buffer(program)
    described = struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions))
    _call("seccomp", _LIBC.prctl, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, described, 0, 0)


def _execute(plan: Mapping[str, Any]) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    arguments = [text.encode() for text in (plan["program"], *plan["arguments"])]
    environment = [b"LD_LIBRARY_PATH=" + plan["libraries"].encode()]
    call = _EXECVEAT[plan["machine"]]
    texts = _texts(arguments), _texts(environment)
    _call(f"execute {plan['program']}", _LIBC.syscall, call, plan["exec_fd"], b"", *texts, _AT_EMPTY_PATH)


def _texts(values: list[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * (len(values) + 1))(*values, None)


def _probe(target: Mapping[str, Any], errors: int) -> None:
    """Try all that must not be possible, and report each success."""
    escapes = [name for name, attempt in _attempts(target) if _succeeds(attempt)]
    if escapes:
        _report(errors, NoSandbox(f"from inside, one can still {', '.join(escapes)}"))
    os._exit(1 if escapes else 0)


def _attempts(target: Mapping[str, Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "read a file of the machine", lambda: os.open(target["file"], os.O_RDONLY)
    yield "write into the root folder", lambda: os.open("/new", os.O_WRONLY | os.O_CREAT)
    yield "connect to a port of the machine", lambda: _connect(socket.AF_INET, ("127.0.0.1", target["port"]))
    yield "connect to an abstract socket of the machine", lambda: _connect(socket.AF_UNIX, f"\0{target['name']}")
    yield "start a process", _fork
    yield "signal a process of the machine", lambda: os.kill(target["process"], 0)
    yield "run a program", _run_missing_program
    yield "mount a file system", lambda: _mount("tmpfs", target["scratch"], "tmpfs", 0)
    yield "enter another namespace", lambda: _call("unshare", _LIBC.unshare, _NEW_USER)


def _connect(family: int, address: Any) -> None:
    with socket.socket(family) as any_socket:
        any_socket.connect(address)


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _run_missing_program() -> None:
    with suppress(FileNotFoundError):  # the kernel would have run it
        os.execv("/missing", ["missing"])  # noqa: S606  # there is nothing to start


def _succeeds(attempt: Callable[[], Any]) -> bool:
    try:
        attempt()
    except (NoSandbox, OSError):
        return False
    return True


def _call(step: str, function: Callable[..., int], *arguments: object) -> int:
    """Call a function of libc. Raises `NoSandbox` with the step that is not possible."""
    result = function(*arguments)
    if result == -1:
        raise NoSandbox(f"{step}: {os.strerror(ctypes.get_errno())}")
    return result


def _report(descriptor: int, error: Exception) -> None:
    os.write(descriptor, str(error).encode())


if __name__ == "__main__":
    main()
