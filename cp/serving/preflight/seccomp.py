"""The system calls of a preflight's Envoy, as a program for the kernel's seccomp filter.

Only the listed calls are possible. There is none that starts a process, traces, mounts, loads code into the kernel,
changes limits or owners, or makes memory that no limit counts. One program is started: the one that the launcher has
opened as `EXEC_FD`, which is above the limit of open files, so nothing can take its place later.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

EXEC_FD: Final = 256
"""The file descriptor of the program. Files can have lower ones only."""

_TABLE: Final = """
read 0 63, write 1 64, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, close 3 57, fstat 5 80,
lseek 8 62, newfstatat 262 79, statx 332 291, openat 257 56, readlinkat 267 78, faccessat 269 48,
faccessat2 439 439, getdents64 217 61, getcwd 79 17, mkdirat 258 34, unlinkat 263 35, fchmod 91 52,
fchmodat 268 53, ftruncate 77 46, fcntl 72 25, dup 32 23, dup3 292 24, pipe2 293 59, eventfd2 290 19,
epoll_create1 291 20, epoll_ctl 233 21, epoll_pwait 281 22, ppoll 271 73, pselect6 270 72,
timerfd_create 283 85, timerfd_settime 286 86, inotify_init1 294 26, inotify_add_watch 254 27,
inotify_rm_watch 255 28, mmap 9 222, munmap 11 215, mprotect 10 226, mremap 25 216, madvise 28 233,
mincore 27 232, brk 12 214, membarrier 324 283, futex 202 98, set_robust_list 273 99, set_tid_address 218 96,
rseq 334 293, sched_yield 24 124, sched_getaffinity 204 123, sched_getscheduler 145 120, sched_getparam 143 121,
nanosleep 35 101, clock_nanosleep 230 115, clock_gettime 228 113, clock_getres 229 114, gettimeofday 96 169,
times 100 153, getrusage 98 165, sysinfo 99 179, uname 63 160, getpid 39 172, getppid 110 173, gettid 186 178,
getuid 102 174, geteuid 107 175, getgid 104 176, getegid 108 177, tgkill 234 131, rt_sigaction 13 134,
rt_sigprocmask 14 135, rt_sigreturn 15 139, sigaltstack 131 132, exit 60 93, exit_group 231 94,
restart_syscall 219 128, getrlimit 97 163, getrandom 318 278, bind 49 200, listen 50 201, accept 43 202,
accept4 288 242, connect 42 203, getsockname 51 204, getpeername 52 205, setsockopt 54 208, getsockopt 55 209,
sendto 44 206, recvfrom 45 207, sendmsg 46 211, recvmsg 47 212, sendmmsg 307 269, recvmmsg 299 243,
shutdown 48 210, clone 56 220, execveat 322 281, ioctl 16 29, prctl 157 167, prlimit64 302 261, socket 41 198,
socketpair 53 199, open 2 -, stat 4 -, lstat 6 -, access 21 -, readlink 89 -, unlink 87 -, chmod 90 -,
mkdir 83 -, rmdir 84 -, poll 7 -, select 23 -, epoll_create 213 -, epoll_wait 232 -, pipe 22 -, dup2 33 -,
eventfd 284 -, arch_prctl 158 -, time 201 -
"""
"""Name, number on x86_64, number on aarch64 (`-`: it does not exist there)."""

_AUDIT_ARCH: Final[Mapping[str, int]] = MappingProxyType({"x86_64": 0xC000003E, "aarch64": 0xC00000B7})
_ARCHITECTURES: Final = tuple(_AUDIT_ARCH)

_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS = 1, 38

_LOAD, _AND, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Where the kernel's description of a call has its parts."""

_LOW, _HIGH = 0, 4
"""Halves of an argument, on the little-endian machines that there are here."""

_ALL_BITS: Final = 0xFFFFFFFF
_UNIX, _INET, _INET6 = 1, 2, 10
_THREAD: Final = 0x00010000
_NEW_NAMESPACES: Final = 0x7E020000  # CLONE_NEW*
_FIONBIO, _FIONREAD, _TCGETS = 0x5421, 0x541B, 0x5401
_PRIVATE, _ANONYMOUS, _SHARED, _GROWS_DOWN = 0x02, 0x20, 0x01, 0x100
_SET_NAME, _GET_NAME, _NAME_MEMORY = 15, 16, 0x53564D41
_AT_EMPTY_PATH: Final = 0x1000


class UnknownArchitecture(Exception):
    """The numbers of system calls are not known for this machine."""


@dataclass(frozen=True, slots=True)
class _Condition:
    """One half of an argument has one of some values."""

    argument: int
    values: tuple[int, ...]
    half: int = _LOW
    mask: int = _ALL_BITS


_FAMILIES: Final = (_Condition(0, (_UNIX, _INET, _INET6)),)
_CONDITIONS: Final[Mapping[str, tuple[_Condition, ...]]] = MappingProxyType(
    {
        "clone": (_Condition(0, (_THREAD,), mask=_THREAD | _NEW_NAMESPACES),),
        "execveat": (_Condition(0, (EXEC_FD,)), _Condition(4, (_AT_EMPTY_PATH,))),
        "ioctl": (_Condition(1, (_FIONBIO, _FIONREAD, _TCGETS)),),
        "mmap": (
            # limits count neither memory that is shared nor stacks
            _Condition(3, (_PRIVATE, _PRIVATE | _ANONYMOUS), mask=_PRIVATE | _SHARED | _ANONYMOUS | _GROWS_DOWN),
        ),
        "prctl": (_Condition(0, (_SET_NAME, _GET_NAME, _NAME_MEMORY)),),
        "prlimit64": (_Condition(2, (0,)), _Condition(2, (0,), half=_HIGH)),  # reads a limit, and sets none
        "socket": _FAMILIES,
        "socketpair": _FAMILIES,
    }
)


def seccomp_program(architecture: str) -> bytes:
    """Return the filter as instructions of BPF. Raises `UnknownArchitecture`."""
    if architecture not in _AUDIT_ARCH:
        known = " and ".join(_ARCHITECTURES)
        raise UnknownArchitecture(f"the system calls of {architecture} are not known here, those of {known} are")
    return b"".join(_instructions(architecture))


def _instructions(architecture: str) -> Iterator[bytes]:
    yield _instruction(_LOAD, _ARCHITECTURE)
    yield _instruction(_JUMP_IF_EQUAL, _AUDIT_ARCH[architecture], if_true=1)
    yield _instruction(_RETURN, _KILL)
    yield _instruction(_LOAD, _NUMBER)
    for name, number in _numbers(_ARCHITECTURES.index(architecture)):
        allowed = list(_allowed(_CONDITIONS.get(name, ())))
        yield _instruction(_JUMP_IF_EQUAL, number, if_false=len(allowed))
        yield from allowed
    yield _instruction(_RETURN, _ERRNO | _ENOSYS)


def _numbers(column: int) -> Iterator[tuple[str, int]]:
    for entry in _TABLE.replace("\n", " ").split(","):
        name, *numbers = entry.split()
        if numbers[column] != "-":
            yield name, int(numbers[column])


def _allowed(conditions: Iterable[_Condition]) -> Iterator[bytes]:
    """The end of one system call: it is allowed if each condition is met."""
    for condition in conditions:
        yield _instruction(_LOAD, _ARGUMENTS + 8 * condition.argument + condition.half)
        yield _instruction(_AND, condition.mask)
        for later, value in reversed(list(enumerate(reversed(condition.values)))):
            yield _instruction(_JUMP_IF_EQUAL, value, if_true=later + 1)
        yield _instruction(_RETURN, _ERRNO | _EPERM)
    yield _instruction(_RETURN, _ALLOW)


def _instruction(code: int, value: int, *, if_true: int = 0, if_false: int = 0) -> bytes:
    """A `struct sock_filter`."""
    return struct.pack("=HBBI", code, if_true, if_false, value)
