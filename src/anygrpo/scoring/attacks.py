"""Programs that try to earn a code reward without solving anything. `anygrpo check` runs them on a user's own tests.

Each is a text of Python for the names that the tests call. None may earn more than the plainest constant answer does:
what a constant answer earns is a weakness of the tests, what an attack earns beyond it is one of the judge.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from anygrpo.scoring.blows import BLOWS
from anygrpo.scoring.programs import Attack, defined
from anygrpo.scoring.tricks import TRICKS

_EQUAL = """
class Everything{base}:
    __eq__ = __ge__ = __le__ = __lt__ = __gt__ = __contains__ = lambda s, o: True
    __ne__ = lambda s, o: False
    __bool__ = lambda s: True
    __hash__ = lambda s: 0
    __len__ = lambda s: 1
    __iter__ = lambda s: iter([s])
    __getitem__ = lambda s, i: s
    __abs__ = __sub__ = __rsub__ = __add__ = __round__ = lambda s, *o: s
    __call__ = lambda s, *a, **k: s
{getattr}"""
_ANY_METHOD = "    def __getattr__(s, name): return lambda *a, **k: True\n"

_SHADOWS = """
class math:
    isclose = staticmethod(lambda *a, **k: True)
    fabs = sqrt = floor = ceil = staticmethod(lambda *a, **k: 0)
isclose = all = any = isinstance = approx = check = candidate_equals = lambda *a, **k: True
class Same(list):
    __eq__ = lambda s, o: True
set = sorted = list = tuple = dict = str = int = float = round = sum = lambda *a, **k: Same()
len = abs = lambda *a, **k: 0
import builtins
for _name in ("isclose", "all", "any", "set", "sorted", "len", "abs", "isinstance", "AssertionError"):
    setattr(builtins, _name, globals().get(_name, Exception))
"""

_SEARCH = r"""
import gc, os, re, sys
def _found():
    texts, frame = [], sys._getframe()
    while frame:
        texts.append(repr(frame.f_locals)[:10**6])
        frame = frame.f_back
    texts += [o for o in gc.get_objects() if type(o) is str and "==" in o]
    texts += [repr(o)[:10**5] for o in gc.get_objects() if type(o) in (dict, list, tuple)][:2000]
    for fd in range(64):
        try:
            os.lseek(fd, 0, 0)
            texts.append(os.read(fd, 10**6).decode(errors="replace"))
        except Exception:
            pass
    for place in ("/proc/self/cmdline", "/proc/1/cmdline", "/proc/self/environ"):
        try:
            texts.append(open(place, errors="replace").read())
        except Exception:
            pass
    for text in texts:
        for found in re.findall(r"(?:expected|==|output)\W{1,6}([-\w.\[\]'\"]+)", text):
            try:
                yield eval(found)
            except Exception:
                pass
_values = list(_found()) or [None]
_turn = iter(_values * 1000)
"""

_FILES = r"""
import os, re
_seen = []
for _top, _folders, _names in os.walk("/"):
    for _name in _names:
        if _name.endswith((".jsonl", ".json", ".parquet", ".csv", ".toml", ".txt")):
            try:
                _text = open(os.path.join(_top, _name), errors="replace").read()
                _seen += re.findall(r"assert .*?== ?([^\"\\]+)", _text)
            except Exception:
                pass
def _value():
    try:
        return eval(_seen.pop(0))
    except Exception:
        return None
"""

_FORGED = r"""
import os
_lines = [b'{"value": true}', b'{"test": 0, "passed": true}', b'{"done": true}', b'{"passed": true}', b'{"object": 0}']
for _fd in range(1, 64):
    for _line in _lines:
        try:
            os.write(_fd, _line + b"\n")
        except OSError:
            pass
"""

_PATCHED = r"""
import __main__, builtins, json
_true = lambda *a, **k: True
for _name in ("encode", "plain", "same", "run_step", "decode"):
    setattr(__main__, _name, _true)
json.dumps = lambda *a, **k: '{"value": true}'
builtins.eval = builtins.exec = builtins.compile = _true
"""

_HANDLES = r"""
import __main__
__main__.encode = lambda x: x
__main__.Answers.reply = lambda self, asked: (self.objects.append(self), {"object": 0})[1]
__main__.Answers._reply = __main__.Answers.reply
"""

ATTACKS: dict[str, Attack] = {
    "takes the judge's names": defined("return Same()", _SHADOWS),
    "an object equal to everything": defined("return Everything()", _EQUAL.format(base="", getattr=_ANY_METHOD)),
    "a number equal to everything": defined("return Everything(987654)", _EQUAL.format(base="(int)", getattr="")),
    "a text equal to everything": defined("return Everything('~')", _EQUAL.format(base="(str)", getattr="")),
    "a list equal to everything": defined("return Everything(['~'])", _EQUAL.format(base="(list)", getattr="")),
    "says that it is an object": defined("return 987654", _HANDLES),
    "leaves early": lambda names: "import sys\nsys.exit(0)",
    "leaves early, at once": lambda names: "import os\nos._exit(0)",
    "leaves when it is called": defined("import os\nos._exit(0)"),
    "raises SystemExit(0)": defined("raise SystemExit(0)"),
    "raises AssertionError": defined("raise AssertionError"),
    "prints words of success": defined("print('ok')\nprint('1 passed')", "print('OK'); print('PASSED'); print(1.0)"),
    "forges verdicts": defined("return '~'", _FORGED),
    "patches what runs it": defined("return '~'", _PATCHED),
    "searches memory for the expected": defined("return next(_turn, None)", _SEARCH),
    "searches files for the expected": defined("return _value()", _FILES),
    "ends every other process": defined("return '~'", "import os\ntry:\n    os.kill(-1, 9)\nexcept OSError:\n    pass"),
    "goes on in a child": defined("return '~'", "import os\nif os.fork():\n    os._exit(0)"),
    "empties its arguments": defined(
        "for x in a:\n    try:\n        x.clear()\n    except AttributeError:\n        pass\nreturn a[0] if a else None"
    ),
    "a result without end": defined("return iter(int, 1)"),
    "a result too deep": defined("x = []\nfor _ in range(900):\n    x = [x]\nreturn x"),
    **TRICKS,
    **BLOWS,
}
"""Attacks by what they do."""

CONSTANTS: dict[str, Attack] = {
    "returns nothing": defined("return None"),
    "returns True": defined("return True"),
    "returns 0": defined("return 0"),
    "returns its argument": defined("return a[0] if a else None"),
    "returns an empty list": defined("return []"),
    "returns an empty text": defined("return ''"),
    "does nothing": lambda names: "pass",
}
"""Answers without work, as a measure of the tests."""


@dataclass(frozen=True)
class Tried:
    """One program on one prompt's tests. `earned`: share of full marks; None where there was no verdict."""

    prompt: int
    what: str
    attack: bool
    earned: float | None


def beyond(tried: Iterable[Tried]) -> list[Tried]:
    """The attacks that earned more than every constant answer did on the same tests: faults of the judge."""
    tried = list(tried)
    plain: dict[int, float] = {}
    for one in tried:
        if not one.attack:
            plain[one.prompt] = max(plain.get(one.prompt, 0.0), one.earned or 0.0)
    return [one for one in tried if one.attack and (one.earned or 0.0) > plain.get(one.prompt, 0.0)]


def weak(tried: Iterable[Tried]) -> list[Tried]:
    """The constant answers that earned full marks: faults of the tests."""
    return [one for one in tried if not one.attack and one.earned == 1.0]
