"""A seccomp filter as the bytes that bubblewrap takes: classic BPF that refuses a list of system calls.

Format: struct sock_filter {u16 code; u8 jump_true; u8 jump_false; u32 k} (linux/filter.h), run over struct seccomp_data
{int nr; u32 arch; u64 instruction_pointer; u64 args[6]} (linux/seccomp.h).
"""

from __future__ import annotations

import functools
import platform
import struct

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER_AT, ARCH_AT, FIRST_ARGUMENT_AT = 0, 4, 16
ALLOW, KILL, REFUSE, ABSENT = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
"""Allow; kill the process; fail with EPERM; fail with ENOSYS (a C library then falls back to what can be filtered)."""

NEW_USER_NAMESPACE = 0x10000000
X32_CALLS = 0x40000000

REFUSED = {
    # name: (x86-64, arm64)
    "shmget": (29, 194),  # memory that no limit of a process counts
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "socket": (41, 198),  # vsock and kernel crypto are not part of the network namespace
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "open_by_handle_at": (304, 265),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
}
CLONE, CLONE3 = (56, 220), (435, 435)
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""machine -> (column of the tables above, AUDIT_ARCH constant)."""


def known() -> bool:
    """Whether there are tables for this machine."""
    return platform.machine() in MACHINES


@functools.cache
def program() -> bytes:
    """The filter for this machine. Raises KeyError where `known()` is False."""
    column, arch = MACHINES[platform.machine()]
    refused = [numbers[column] for numbers in REFUSED.values()]
    lines = [
        (LOAD, 0, 0, ARCH_AT),
        (EQUAL, 1, 0, arch),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER_AT),
        (AT_LEAST, 0, 1, X32_CALLS),
        (RETURN, 0, 0, REFUSE),
        (EQUAL, 0, 1, CLONE3[column]),
        (RETURN, 0, 0, ABSENT),
    ]
    for number in refused:
        lines += [(EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE)]
    lines += [
        (EQUAL, 0, 3, CLONE[column]),
        (LOAD, 0, 0, FIRST_ARGUMENT_AT),
        (ANY_BIT, 0, 1, NEW_USER_NAMESPACE),
        (RETURN, 0, 0, REFUSE),
        (RETURN, 0, 0, ALLOW),
    ]
    return b"".join(struct.pack("<HBBI", *line) for line in lines)
