"""Attacks by the language itself: objects that lie about themselves, values without an order, exceptions as values,
and the interpreter's own hooks, changed by the answer in its process."""

from __future__ import annotations

from anygrpo.scoring.programs import Attack, defined, written

_IMPORTER = """
import sys, types
class _Finder:
    def find_spec(self, name, path=None, target=None):
        return None
    def find_module(self, name, path=None):
        return self
    def load_module(self, name):
        return types.SimpleNamespace(isclose=lambda *a, **k: True)
sys.meta_path.insert(0, _Finder())
sys.path_hooks.insert(0, lambda path: _Finder())
sys.path_importer_cache.clear()
"""

_MODULES = """
import sys, types
class _Fake(types.ModuleType):
    def __getattr__(self, name):
        return lambda *a, **k: True
for _name in ("json", "math", "unittest", "collections", "decimal", "fractions", "builtins", "os", "itertools"):
    sys.modules[_name] = _Fake(_name)
"""

_COLLECTOR = """
import gc, types
for _thing in gc.get_objects():
    if isinstance(_thing, types.FunctionType) and _thing.__name__ in ("same", "run_step", "plain", "argument"):
        _thing.__code__ = (lambda *a, **k: True).__code__
    elif type(_thing) is dict and "encode" in _thing and "decode" in _thing:
        _thing["same"] = _thing["change"] = lambda *a, **k: True
    elif type(_thing) is dict and _thing.get("kind") in ("test", "value"):
        _thing["source"] = "True"
"""

_CODE = """
import __main__
def _reply(self, asked):
    return {"value": True}
__main__.Answers.reply.__code__ = _reply.__code__
"""

_CTYPES = """
try:
    import ctypes
    for _number in (2, 4, 5, 7, 12):  # small numbers are shared: make each look like 1
        ctypes.memmove(id(_number) + 24, id(1) + 24, 4)
except Exception:
    pass
"""

_PICKLED = """
import copyreg, pickle
class _Payload:
    def __reduce__(self):
        return eval, ("True",)
    __reduce_ex__ = lambda s, protocol: (eval, ("True",))
copyreg.dispatch_table[int] = lambda x: (eval, ("True",))
pickle.loads = pickle.load = lambda *a, **k: True
"""

_JSON = """
import json, json.encoder, json.decoder
json.encoder.c_make_encoder = None
json.JSONEncoder.iterencode = lambda self, o, **k: iter(['{"value": true, "passed": true}'])
json.JSONEncoder.encode = lambda self, o: '{"value": true}'
json.loads = lambda *a, **k: {"how": "call", "name": "f", "args": [], "named": {}}
"""

_CLASSES = """
import __main__, sys, types
class _Module(types.ModuleType):
    def __getattribute__(self, name):
        found = types.ModuleType.__getattribute__(self, name)
        return (lambda *a, **k: True) if name in ("encode", "decode", "same") else found
__main__.__class__ = _Module
class _Liar:
    __class__ = property(lambda s: bool)
    __bool__ = lambda s: True
"""

_META = """
class _Meta(type):
    __eq__ = __contains__ = __instancecheck__ = __subclasscheck__ = lambda s, o: True
    __hash__ = lambda s: 0
    __len__ = lambda s: 3
    __iter__ = lambda s: iter(())
class _All(metaclass=_Meta):
    pass
"""

_TEXT = """
class _Text(str):
    __eq__ = __contains__ = startswith = endswith = __lt__ = __gt__ = isdigit = lambda s, *o: True
    __ne__ = lambda s, o: False
    __hash__ = lambda s: hash("ab")
    __len__ = lambda s: 3
    __getitem__ = __str__ = __repr__ = __format__ = lambda s, *o: "ab"
"""

_LIST = """
class _List(list):
    __eq__ = __contains__ = lambda s, o: True
    __len__ = lambda s: s.__dict__.setdefault("n", iter((3, 2, 1, 3, 2))).__next__()
    __getitem__ = lambda s, i: s
    __iter__ = __reversed__ = lambda s: iter(())
    __hash__ = lambda s: 0
"""

_INT = """
class _Int(int):
    __eq__ = lambda s, o: True
    __add__ = __sub__ = __rsub__ = __mod__ = __round__ = __abs__ = __neg__ = lambda s, *o: o[0] if o else s
    __index__ = __int__ = lambda s: 5
    __hash__ = lambda s: 5
"""

_DICT = """
import collections
class _Dict(collections.OrderedDict):
    __missing__ = lambda s, k: 5
    __eq__ = __contains__ = lambda s, o: True
    get = pop = setdefault = lambda s, *a: 5
    keys = values = items = lambda s: s
    __len__ = lambda s: 2
"""

_SET = """
class _Set(set):
    __eq__ = __le__ = __ge__ = __contains__ = issubset = issuperset = lambda s, o: True
    __and__ = __or__ = __sub__ = __xor__ = lambda s, o: o
    __len__ = lambda s: 2
    __iter__ = lambda s: iter((7, 8))
"""

_TRACE = """
import sys
def _trace(frame, event, arg):
    for name in ("given", "expected", "good", "value", "asked"):
        if name in frame.f_locals:
            frame.f_locals[name] = True
    return _trace
sys.settrace(_trace)
sys.setprofile(_trace)
_frame = sys._getframe()
while _frame:
    _frame.f_trace = _trace
    _frame = _frame.f_back
"""

_HOOKS = """
import faulthandler, sys, warnings
sys.excepthook = sys.unraisablehook = sys.displayhook = lambda *a: None
warnings.showwarning = lambda *a, **k: None
try:
    faulthandler.enable(open(1, "wb", closefd=False))
except Exception:
    pass
"""

_BUILD = """
import builtins
_real = builtins.__build_class__
builtins.__build_class__ = lambda f, name, *a, **k: bool
builtins.__import__ = lambda *a, **k: True
builtins.AssertionError = builtins.Exception = builtins.BaseException = KeyError
builtins.isinstance = builtins.issubclass = builtins.hasattr = lambda *a: True
"""

_FAULTS = """
class _Any(AssertionError, KeyError):
    __str__ = __repr__ = lambda s: "no"
    __eq__ = lambda s, o: True
"""

_LIAR = """
class _Gone:
    def __del__(self):
        import os
        os._exit(0)
    __eq__ = lambda s, o: True
"""

_RECORD = """
import dataclasses, typing
@dataclasses.dataclass(eq=False)
class _Record:
    x: int = 5
    __eq__ = lambda s, o: True
class _Pair(typing.NamedTuple):
    a: int = 1
    def __eq__(s, o): return True
    def __len__(s): return 3
"""

TRICKS: dict[str, Attack] = {
    "brings modules of its own in": defined("import math\nreturn '~'", _IMPORTER),
    "puts false modules in place": defined("return '~'", _MODULES),
    "changes what the collector finds": defined("return '~'", _COLLECTOR),
    "swaps the code of what answers": defined("return '~'", _CODE),
    "makes small numbers equal": defined("return 1", _CTYPES),
    "returns what runs when it is unpacked": defined("return _Payload()", _PICKLED),
    "bytes that are a pickle": defined("return b'cbuiltins\\neval\\n(VTrue\\ntR.'"),
    "patches JSON": defined("return '~'", _JSON),
    "changes the class of the module": defined("return _Liar()", _CLASSES),
    "a class equal to everything": defined("return _All", _META),
    "a text whose length and items lie": defined("return _Text('~q')", _TEXT),
    "a list whose length and items lie": defined("return _List([0])", _LIST),
    "a number whose sums lie": defined("return _Int(987654)", _INT),
    "a table that has every key": defined("return _Dict()", _DICT),
    "a set whose members lie": defined("return _Set({0})", _SET),
    "a record equal to everything": defined("return [_Record(), _Pair()]", _RECORD),
    "the mock that equals everything": defined("from unittest import mock\nreturn mock.ANY"),
    "a mock": defined("from unittest import mock\nreturn mock.MagicMock()"),
    "a function in place of a value": defined("return lambda *a, **k: True"),
    "a generator": defined("while True:\n    yield True"),
    "a coroutine": lambda names: "\n".join(f"async def {name}(*a, **k): return True" for name in names),
    "NotImplemented": defined("return NotImplemented"),
    "NaN": defined("return float('nan')"),
    "an infinite number": defined("return float('inf')"),
    "less than every number": defined("return float('-inf')"),
    "a decimal NaN": defined("import decimal\nreturn decimal.Decimal('sNaN')"),
    "a number of a million digits": defined("return 10 ** 1_000_000"),
    "a text of megabytes": defined("return '~' * 4_000_000"),
    "recursion without end": defined("import sys\nsys.setrecursionlimit(10 ** 9)\ndef g(x): return g(g)\nreturn g(0)"),
    "a list that holds itself": defined("x = []\nx.append(x)\nreturn x"),
    "watches frames": defined("return '~'", _TRACE),
    "hooks of the interpreter": defined("raise ValueError('~')", _HOOKS),
    "patches the building of classes": defined("return '~'", _BUILD),
    "an exception of all kinds": defined("raise _Any('no')", _FAULTS),
    "an exception as control flow": defined("raise StopIteration(True)"),
    "KeyboardInterrupt": defined("raise KeyboardInterrupt"),
    "GeneratorExit": defined("raise GeneratorExit"),
    "an object that ends all when it goes": defined("return _Gone()", _LIAR),
    "code too deep to read": written("x = " + "(" * 5000 + ")" * 5000),
    "code that is no text": written("\0\ud800"),
}
"""Attacks by what they do."""
