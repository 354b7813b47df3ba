"""A process for each sample: its own state, its own end; limits of time, memory and output."""

import json
import os
import time
from pathlib import Path

import pytest

from anygrpo.errors import ConfigError, DataError
from anygrpo.language.tools.sessions import Sessions, wait_for
from anygrpo.language.tools.settings import TurnsConfig

CODE = """
import asyncio, os, subprocess, time
SEEN = []

def count(x: int):
    SEEN.append(x)
    return len(SEEN)

async def later(seconds: float):
    await asyncio.sleep(seconds)
    return {"slept": seconds}

def hang():
    time.sleep(60)

def big():
    return "a" * 100

def eat():
    return len(bytearray(1 << 34))

def die():
    os._exit(3)

def leave(path: str):
    subprocess.Popen(["sleep", "60"])
    process = subprocess.Popen(["sh", "-c", f"echo $$ > {path}; sleep 60"])
    time.sleep(0.3)
    os._exit(1)

class World:
    def __init__(self, start=0):
        self.n = start
    def reset(self, row):
        self.n += row["n"]
        return f"begin {self.n}", [self.look, {"name": "jump", "parameters": {}}]
    def look(self, where: str) -> str:
        '''Looks.

        Args:
            where: there.
        '''
        return f"{where} {self.n}"
    async def step(self, messages, calls):
        self.n += 1
        return [{"role": "user", "content": str(self.n)}], 0.5, self.n > 5

class Light:
    def reset(self, row):
        return None, [self.read]
    def read(self) -> str:
        '''What this process has read.'''
        import sys
        return str([name for name in ("torch", "transformers") if name in sys.modules])
    def step(self, messages, calls):
        return None
"""
NAMES = ("count", "later", "hang", "big", "eat", "die", "leave")


@pytest.fixture
def place(tmp_path):
    (tmp_path / "code.py").write_text(CODE)
    return f"{tmp_path}/code.py"


@pytest.fixture
def sessions(place):
    made = Sessions(tuple(f"{place}:{n}" for n in NAMES), None, TurnsConfig(output=80, memory_mb=512))
    assert made.check() is None
    yield made
    made.close()


def asked(session, request, timeout=120.0):
    session.ask(request, timeout)
    while (answer := session.answer()) is None:
        wait_for([session], None)
    return answer


def calls(*made):
    return {"op": "call", "calls": [{"name": name, "arguments": arguments} for name, arguments in made]}


def texts(answer):
    return [(r["text"], r["failed"]) for r in answer["results"]]


def test_state_is_of_the_sample(sessions):
    one, other = sessions.open(), sessions.open()
    assert texts(asked(one, calls(("count", {"x": 1}), ("count", {"x": 2})))) == [("1", False), ("2", False)]
    assert texts(asked(one, calls(("count", {"x": 3})))) == [("3", False)]
    assert texts(asked(other, calls(("count", {"x": 4})))) == [("1", False)]


def test_faults_are_texts_for_the_model(sessions):
    made = texts(asked(sessions.open(), calls(("nope", {}), ("count", {"y": 1}), ("big", {}), ("eat", {}))))
    assert [failed for _, failed in made] == [True, True, False, True]
    assert "no tool 'nope'" in made[0][0]
    assert "TypeError" in made[1][0]
    assert made[2][0] == "a" * 80 + "... (20 more cut)"
    assert "MemoryError" in made[3][0]


def test_async_calls_run_together(sessions):
    session = sessions.open()
    asked(session, calls(("count", {"x": 1})))
    start = time.monotonic()
    made = texts(asked(session, calls(("later", {"seconds": 0.4}), ("later", {"seconds": 0.3}))))
    assert [json.loads(text)["slept"] for text, _ in made] == [0.4, 0.3]
    assert time.monotonic() - start < 0.65


def test_a_process_that_hangs_or_dies_costs_its_sample_alone(sessions):
    good, slow, dead = sessions.open(), sessions.open(), sessions.open()
    assert asked(slow, calls(("hang", {})), 0.3) == {"error": "timed out after 0.3 s", "ended": True}
    assert asked(dead, calls(("die", {})))["ended"]
    assert texts(asked(good, calls(("count", {"x": 1})))) == [("1", False)]


def test_what_a_sample_started_ends_with_it(sessions, tmp_path):
    asked(sessions.open(), calls(("leave", {"path": str(tmp_path / "pid")})))
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        time.sleep(0.05)
        state = Path(f"/proc/{pid}/stat").read_text().split()[2] if os.path.exists(f"/proc/{pid}") else "Z"
        if state == "Z":
            return
    pytest.fail("it still runs")


def test_an_environment_keeps_itself(place):
    sessions = Sessions((), f"{place}:World", TurnsConfig(arguments={"start": 3}))
    assert sessions.check() == "class"
    one = sessions.open()
    begun = asked(one, {"op": "reset", "row": {"n": 1}})
    assert begun["messages"] == "begin 4"
    assert begun["run"] == ["look"]
    assert [t.get("function", t)["name"] for t in begun["tools"]] == ["look", "jump"]
    assert begun["tools"][0]["function"]["parameters"]["required"] == ["where"]
    assert texts(asked(one, calls(("look", {"where": "up"})))) == [("up 4", False)]
    step = {"op": "step", "messages": [], "calls": []}
    assert asked(one, step) == {"messages": [{"role": "user", "content": "5"}], "reward": 0.5, "done": False}
    assert asked(one, step)["done"]
    assert "KeyError" in asked(sessions.open(), {"op": "reset", "row": {}})["error"]
    sessions.close()


def test_a_samples_process_does_not_read_torch_for_a_schema(place):
    """Seconds of each sample, and on a busy machine more than its time."""
    sessions = Sessions((), f"{place}:Light", TurnsConfig())
    sessions.check()
    one = sessions.open()
    assert asked(one, {"op": "reset", "row": {}})["run"] == ["read"]
    assert texts(asked(one, calls(("read", {})))) == [("['transformers']", False)]
    sessions.close()


WRAPPERS = """
class Inner:
    def reset(self, row):
        return "begin"
    def step(self, messages, calls):
        return None
class Wrapper:
    def __init__(self):
        self.inner = Inner()
    def __getattr__(self, name):
        return getattr(self.inner, name)
class Half:
    def __init__(self):
        self.reset = Inner().reset
class Angry:
    def __getattr__(self, name):
        raise RuntimeError(f"no {name} here")
made, angry = Wrapper(), Angry()
"""


@pytest.mark.parametrize("name", ["Wrapper", "made"])
def test_an_environment_may_hand_on_what_it_is_asked(tmp_path, name):
    (tmp_path / "wrap.py").write_text(WRAPPERS)
    sessions = Sessions((), f"{tmp_path}/wrap.py:{name}", TurnsConfig())
    assert sessions.check() == "class"
    assert asked(sessions.open(), {"op": "reset", "row": {}})["messages"] == "begin"
    sessions.close()


def test_what_an_object_lacks_is_said_when_it_is_made(tmp_path):
    (tmp_path / "wrap.py").write_text(WRAPPERS)
    sessions = Sessions((), f"{tmp_path}/wrap.py:Half", TurnsConfig())
    assert sessions.check() == "class"
    assert "without step" in asked(sessions.open(), {"op": "reset", "row": {}})["error"]
    sessions.close()
    with pytest.raises(ConfigError, match="no step here"):  # it ended the server of all samples
        Sessions((), f"{tmp_path}/wrap.py:angry", TurnsConfig()).check()


def test_what_cannot_be_loaded_is_said(tmp_path):
    (tmp_path / "bad.py").write_text("1 / 0")
    with pytest.raises(ConfigError, match="ZeroDivisionError"):
        Sessions((f"{tmp_path}/bad.py:x",), None, TurnsConfig()).check()
    with pytest.raises(DataError, match="no file"):
        Sessions((f"{tmp_path}/none.py:x",), None, TurnsConfig()).check()
    with pytest.raises(ConfigError, match=r"path\.py:name"):
        Sessions(("bad",), None, TurnsConfig()).check()
