"""Hostile programs. Where this machine can have no sandbox, the refusal is what is tested."""

import contextlib
import os
import shutil
import subprocess
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from anygrpo.errors import ConfigError
from anygrpo.scoring import sandbox, seccomp
from anygrpo.scoring.sandbox import Limits, run
from anygrpo.scoring.usage import descendants
from anygrpo.scoring.visible import interpreter

WORKS = sandbox.refusal() is None
needs_sandbox = pytest.mark.skipif(not WORKS, reason="no sandbox on this machine")
SHORT = Limits(seconds=1.0)


def printed(code, given="", limits=None):
    done = run(code, given, limits or Limits(seconds=10.0))
    assert done.fault == ""
    return done.output.decode()


@pytest.fixture
def no_bwrap(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    sandbox.refusal.cache_clear()
    yield
    sandbox.refusal.cache_clear()


def test_without_bubblewrap_it_refuses_and_says_how(no_bwrap):
    with pytest.raises(ConfigError, match=r"bwrap\) is not installed") as refused:
        sandbox.require()
    assert "apt-get install bubblewrap" in refused.value.cure


def test_a_bubblewrap_that_fails_is_refused_with_its_own_words(tmp_path, monkeypatch):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(fake))
    sandbox.refusal.cache_clear()
    try:
        with pytest.raises(ConfigError, match="No permissions to create new namespace"):
            sandbox.require()
    finally:
        sandbox.refusal.cache_clear()


def test_a_machine_without_a_filter_is_refused(monkeypatch):
    monkeypatch.setattr(seccomp.platform, "machine", lambda: "riscv64")
    sandbox.refusal.cache_clear()
    try:
        assert sandbox.refusal() == "no system call filter for riscv64"
    finally:
        sandbox.refusal.cache_clear()


@pytest.mark.skipif(not shutil.which("bwrap") or WORKS, reason="only where bubblewrap exists and cannot work")
def test_the_refusal_names_a_reason():
    assert sandbox.refusal()


@needs_sandbox
def test_a_program_reads_its_input_and_prints():
    done = run("print(int(input()) + int(input()))", "20\n22\n", Limits())
    assert (done.output, done.code, done.fault) == (b"42\n", 0, "")


@needs_sandbox
def test_fork_bomb_is_bounded_and_leaves_nothing(monkeypatch):
    code = (
        "import os, time\nn = 0\ntry:\n    while n < 1000:\n        if os.fork() == 0:\n            time.sleep(60)\n"
        "        n += 1\nexcept OSError:\n    pass\nprint(n, flush=True)\nwhile True: pass"
    )
    marker = f"# {uuid.uuid4()}"
    source = sandbox.inside() + marker
    monkeypatch.setattr(sandbox, "inside", lambda: source)
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(run, code, "", Limits(seconds=3.0, processes=6))
        seen = 0
        while not running.done():
            seen = max(seen, _processes(marker))
            time.sleep(0.1)
    done = running.result()
    assert done.code is None
    assert 0 < int(done.output) < 6
    assert seen > int(done.output)
    assert _wait_until_gone(marker)


def _processes(marker):
    count = 0
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it may end meanwhile
            count += marker.encode() in line.read_bytes()
    return count


def _wait_until_gone(marker):
    for _ in range(50):
        if not _processes(marker):
            return True
        time.sleep(0.05)
    return False


@needs_sandbox
def test_endless_loop_is_stopped_by_its_cpu_time():
    done = run("while True: pass", "", SHORT)
    assert (done.code, done.stopped, done.fault) == (None, "cpu", "")


@needs_sandbox
def test_cpu_time_is_that_of_all_processes_together():
    code = "import os\nfor _ in range(3): os.fork()\nwhile True: pass"
    began = time.monotonic()
    done = run(code, "", Limits(seconds=2.0))
    assert (done.stopped, done.fault) == ("cpu", "")
    assert time.monotonic() - began < 60


@needs_sandbox
def test_time_out_with_cpu_to_spare_is_no_verdict():
    began = time.monotonic()
    done = run("import time; time.sleep(99)", "", SHORT)
    assert done.code is None
    assert "with CPU time to spare" in done.fault
    assert time.monotonic() - began < 20


@needs_sandbox
def test_memory_is_that_of_all_processes_together():
    code = "import os, time\nfor _ in range(2): os.fork()\nx = bytearray(60 << 20)\ntime.sleep(30)"
    done = run(code, "", Limits(seconds=20.0, memory_mb=128))
    assert done.stopped == "memory"


@needs_sandbox
def test_it_is_offered_to_the_memory_killer_first():
    with sandbox.box(sandbox.inside(), {"code": "import time; time.sleep(30)"}, SHORT) as one:
        assert one.started()
        while len(found := descendants(one.process.pid)) < 2:  # the table of processes may be a moment old
            assert not one.exited(0.1)
        scores = [Path(f"/proc/{pid}/oom_score_adj").read_text().strip() for pid in found]
    assert set(scores) == {"1000"}


@needs_sandbox
def test_files_of_the_system_that_are_no_library_are_not_there():
    import sysconfig

    here = [sysconfig.get_path("purelib"), os.getcwd(), "/usr/share", "/usr/bin", "/usr/local", "/etc/hostname", "/opt"]
    packages = os.path.join(sysconfig.get_path("stdlib"), "site-packages")
    there = f"[os.path.join(at, f) for p in {here} for at, _, files in os.walk(p) for f in files]"
    there += f" + [p for p in {here} if os.path.isfile(p)]"
    code = f"import os\nprint({there}, os.path.isdir({packages!r}) and os.listdir({packages!r}))"
    assert printed(code).replace(repr(interpreter()), "") in ("[] []\n", "[] False\n")  # in /usr/bin on Debian


@needs_sandbox
def test_memory_is_bounded():
    assert printed("try:\n    bytearray(10**9)\nexcept MemoryError:\n    print('no')") == "no\n"
    done = run("x = []\nwhile True: x.append(bytes(10**6))", "", Limits(seconds=20.0, memory_mb=64))
    assert done.code in (1, -11)  # Python 3.13 has no memory left for the traceback and dies of that
    assert (done.fault, done.stopped) == ("", "")


@needs_sandbox
def test_memory_outside_the_limits_is_closed():
    code = (
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "print(libc.shmget(0, 1 << 30, 0o1600), ctypes.get_errno())\n"
        "print(libc.memfd_create(b'x', 0), ctypes.get_errno())\n"
        "print(libc.unshare(0x10000000), ctypes.get_errno())\n"
        "print(libc.ptrace(0, 0, 0, 0), ctypes.get_errno())"
    )
    assert printed(code) == "-1 1\n" * 4


@needs_sandbox
def test_no_new_user_namespace_by_clone_either():
    code = (
        "import ctypes, platform, signal\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "number = {'x86_64': 56, 'aarch64': 220}[platform.machine()]\n"
        "print(libc.syscall(number, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0), ctypes.get_errno())\n"
        "print(libc.syscall(435, 0, 0), ctypes.get_errno())"
    )
    assert printed(code) == "-1 1\n-1 38\n"


@needs_sandbox
def test_the_users_files_are_not_there(tmp_path):
    secret = tmp_path / "answers.jsonl"
    secret.write_text("secret")
    paths = [str(secret), os.getcwd(), "/proc", "/tmp", "/etc/passwd", "/sys", os.path.abspath(__file__)]
    code = f"import os\nfor path in {paths}:\n    print(os.path.exists(path))\nprint(sorted(os.environ))"
    lines = printed(code).splitlines()
    assert lines[:7] == ["False"] * 7
    assert "HOME" not in lines[7]


@needs_sandbox
def test_nothing_can_be_written():
    code = (
        "import os\nfor path in ['/x', '/dev/x', '/dev/shm/x', '/usr/x', os.__file__]:\n"
        "    try:\n        open(path, 'w')\n        print('wrote', path)\n    except OSError:\n        pass"
    )
    assert printed(code) == ""


@needs_sandbox
def test_no_network():
    code = (
        "import socket\nfor family in [socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, 40]:\n"
        "    try:\n        socket.socket(family, socket.SOCK_STREAM)\n        print('open')\n"
        "    except PermissionError:\n        print('closed')"
    )
    assert printed(code) == "closed\n" * 4


@needs_sandbox
def test_no_rights_are_left():
    code = (
        "import os, resource\nassert os.getuid() != 0\n"
        "for act in [lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.chroot('/'),\n"
        "            lambda: resource.setrlimit(resource.RLIMIT_NPROC, (1000, 1000))]:\n"
        "    try:\n        act()\n        print('could')\n    except (OSError, ValueError):\n        pass\n"
        "import ctypes\nprint(ctypes.CDLL(None).prctl(39, 0, 0, 0, 0))"  # PR_GET_NO_NEW_PRIVS
    )
    assert printed(code) == "1\n"


@needs_sandbox
def test_it_sees_and_reaches_only_its_own_processes():
    victim = subprocess.Popen(["sleep", "30"])
    try:
        code = f"import os\ntry:\n    os.kill({victim.pid}, 9)\n    print('killed')\nexcept OSError:\n    print('no')"
        assert printed(code) == "no\n"
        run("import os\nos.kill(-1, 9)", "", SHORT)
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


@needs_sandbox
def test_flooding_is_cut_off():
    done = run("while True: print('x' * 10000)", "", Limits(seconds=20.0))
    assert done.code not in (0, None)
    assert len(done.output) == 1 << 20


@needs_sandbox
def test_inherited_descriptors_hold_no_secrets():
    code = (
        "import os\nfor fd in range(3, 64):\n    try:\n        os.fstat(fd)\n        print(fd)\n    except OSError:\n"
        "        pass"
    )
    assert printed(code) == ""
    secret, other = os.pipe()
    os.set_inheritable(secret, True)
    try:
        assert printed(code) == ""
    finally:
        os.close(secret)
        os.close(other)


@needs_sandbox
def test_large_input_and_code():
    code = "data = '" + "x" * 300_000 + "'\nimport sys\nprint(len(data), len(sys.stdin.read()))"
    assert printed(code, given="y" * 500_000) == "300000 500000\n"


def test_the_filter_is_well_formed():
    size = 8
    program = seccomp.program()
    assert len(program) % size == 0
    count = len(program) // size
    codes = [program[i * size] for i in range(count)]
    assert codes[-1] == seccomp.RETURN
    for i in range(count):
        code, yes, no = program[i * size], program[i * size + 2], program[i * size + 3]
        if code in (seccomp.EQUAL, seccomp.AT_LEAST, seccomp.ANY_BIT):
            assert i + 1 + max(yes, no) < count


def test_a_link_in_the_librarys_folder_is_not_covered(tmp_path):
    """Debian's sitecustomize.py leads to /etc, which is not in the sandbox: bubblewrap could not create it there."""
    from anygrpo.scoring import visible

    (tmp_path / "sitecustomize.py").symlink_to("/etc/python3/sitecustomize.py")
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    words = visible._covered(str(tmp_path))
    assert words == ["--ro-bind", "/dev/null", str(tmp_path / "notes.txt"), "--tmpfs", str(tmp_path / "site-packages"),
                     "--remount-ro", str(tmp_path / "site-packages")]  # fmt: skip
