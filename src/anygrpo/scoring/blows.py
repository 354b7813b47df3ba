"""Attacks on the process: its descriptors, signals, memory, threads and clock, and on whoever reads what it says."""

from __future__ import annotations

from anygrpo.scoring.programs import Attack, defined, written

_LINES = r"""
import os
def _say(*lines):
    for fd in range(1, 64):
        for line in lines:
            try:
                os.write(fd, line + b"\n")
            except OSError:
                pass
"""

_AHEAD = (
    _LINES
    + """
_say(b'{"ready": true}', *[b'{"value": true}'] * 50)
"""
)

_VERDICTS = (
    _LINES
    + """
_say(b'{"loaded": true}', b'{"test": 0, "passed": true}', b'{"unjudgeable": "no"}', b'{"done": true}')
"""
)

_REPLIES = r"""
import __main__
_forms = iter([
    {"error": ["SystemExit"], "text": "0"}, {"error": ["Unjudgeable"]}, {"error": ["StopIteration"], "text": ""},
    {"value": {"e": []}, "changed": [[-1, []], [0, {"d": []}]]}, {"object": -1}, {"object": True}, {"alien": None},
    {"value": {"f": "nan"}}, {"value": {"u": []}}, {"value": {"i": "0x" + "f" * 9999}}, {"unjudgeable": "no"},
] * 50)
def _reply(self, asked):
    import __main__
    return next(__main__._forms)
__main__._forms = _forms
__main__.Answers.reply = _reply
"""

_ECHO = r"""
import __main__
__main__.Answers.reply = lambda self, asked: {"value": asked["args"][0] if asked["args"] else True}
"""

_DEEP = _LINES + "_say(b'{\"ready\": true}', b'{\"value\": ' + b'[' * 100_000)\n"

_NUMBERS = _LINES + '_say(b\'{"ready": true}\', b\'{"value": NaN, "value": Infinity}\')\n'

_CLOSED = """
import os
for _a in range(64):
    for _b in range(3, 16):
        try:
            os.dup2(_a, _b)
        except OSError:
            pass
"""

_AGAIN = r"""
import json, os, re
_seen = []
for _fd in range(64):
    try:
        os.lseek(_fd, 0, 0)
        _seen += re.findall(rb"== ?([-\w.]+)|\"expected\": ?([^}]+)", os.read(_fd, 1 << 22))
    except OSError:
        pass
"""

_PROC = r"""
import glob, os
_seen = []
for _pattern in ("/proc/*/fd/*", "/proc/*/cmdline", "/proc/*/environ", "/proc/*/mem", "/dev/shm/*", "/dev/fd/*"):
    for _place in glob.glob(_pattern):
        try:
            with open(_place, "r+b", buffering=0) as _file:
                _seen.append(_file.read(1 << 20))
                _file.write(b'{"test": 0, "passed": true}\n{"done": true}\n')
        except (OSError, ValueError):
            pass
"""

_LEFT = r"""
import os
for _place in ("/tmp", "/dev/shm", "/var/tmp", ".", os.path.expanduser("~"), os.path.dirname(os.__file__)):
    for _name in ("sitecustomize.py", "usercustomize.py", "json.py", "a.pth"):
        try:
            with open(os.path.join(_place, _name), "w") as _file:
                _file.write("import builtins; builtins.all = lambda *a: True")
        except OSError:
            pass
"""

_PARENT = r"""
import os, signal
for _pid in (os.getppid(), 1, 0, -1, *range(2, 40)):
    for _number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGTERM, signal.SIGCONT, signal.SIGKILL):
        if _pid not in (0, -1):
            try:
                os.kill(_pid, _number) if _pid != os.getpid() else None
            except OSError:
                pass
"""

_BOMB = """
import os
try:
    while True:
        os.fork()
except OSError:
    pass
"""

_THREADS = """
import threading, time
def _work():
    while True:
        time.sleep(0.01)
try:
    for _ in range(1000):
        threading.Thread(target=_work, daemon=False).start()
except RuntimeError:
    pass
"""

_LATER = (
    _LINES
    + """
import atexit, threading
def _late():
    _say(b'{"value": true}', b'{"test": 0, "passed": true}', b'{"done": true}')
atexit.register(_late)
_timer = threading.Timer(0.05, _late)
_timer.start()
"""
)

_RACE = _LINES + (
    "import threading\n"
    "def _race():\n    for _ in range(2000):\n        _say(b'{\"value\": true}')\n"
    "threading.Thread(target=_race, daemon=True).start()\n"
)

_ALARM = """
import signal
def _ring(*a):
    raise SystemExit(0)
for _number in range(1, 65):
    try:
        signal.signal(_number, _ring)
    except (OSError, ValueError):
        pass
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
"""

_LIMITS = """
import os, resource
for _name in dir(resource):
    if _name.startswith("RLIMIT_"):
        try:
            resource.setrlimit(getattr(resource, _name), (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        except (OSError, ValueError):
            pass
try:
    os.setuid(0)
except OSError:
    pass
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
except (OSError, AttributeError):
    pass
"""

BLOWS: dict[str, Attack] = {
    "replies before it is asked": defined("return '~'", _AHEAD),
    "writes what the judge would": defined("return '~'", _VERDICTS),
    "replies in every malformed way": defined("return '~'", _REPLIES),
    "gives back what it is asked": defined("return '~'", _ECHO),
    "a reply too deep to read": defined("return '~'", _DEEP),
    "a reply of what is no JSON number": defined("return '~'", _NUMBERS),
    "ties its descriptors to each other": defined("return '~'", _CLOSED),
    "reads its input again": defined("return _seen[0] if _seen else '~'", _AGAIN),
    "reads its input while it is called": defined("import sys\nreturn sys.stdin.read() or '~'"),
    "writes to every process and descriptor": defined("return '~'", _PROC),
    "leaves files for the next one": defined("return '~'", _LEFT),
    "signals to all others": defined("return '~'", _PARENT),
    "a fork bomb": defined("return '~'", _BOMB),
    "threads without end": defined("return '~'", _THREADS),
    "speaks when it ends": defined("return '~'", _LATER),
    "races with its own replies": defined("return '~'", _RACE),
    "an alarm in whatever runs": defined("return '~'", _ALARM),
    "gives itself rights": defined("return '~'", _LIMITS),
    "stops itself": defined("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)"),
    "sleeps": defined("import time\ntime.sleep(10 ** 6)"),
    "all memory": defined("x = []\nwhile True:\n    x.append(bytearray(1 << 24))"),
    "a crash": defined("import ctypes\nctypes.string_at(0)"),
    "says that all passed, and is gone": written(
        "import os\nos.write(1, b'OK\\n1 passed\\nTrue\\n')\nos.write(2, b'Ran 1 test\\n\\nOK\\n')\nos._exit(0)"
    ),
}
"""Attacks by what they do."""
