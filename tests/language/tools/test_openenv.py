"""An OpenEnv server, made with the real package and spoken to over its own protocol."""

import importlib.util
import socket
import subprocess
import sys
import time

import pytest

from anygrpo.language.tools.sessions import Sessions
from anygrpo.language.tools.settings import TurnsConfig

REAL = pytest.mark.skipif(importlib.util.find_spec("openenv") is None, reason="openenv-core is not installed")
SERVER = """
import sys
import uvicorn
from openenv.core import Action, Environment, Observation, State
from openenv.core.env_server import create_app

class Guess(Action):
    number: int = 0
    say: str = ""

class Told(Observation):
    word: str = ""

class Game(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    def __init__(self):
        super().__init__()
        self.count = 0
    def reset(self, seed=None, episode_id=None, **more):
        self.number, self.count = seed or 3, 0
        return Told(word="find it", done=False, reward=None)
    def step(self, action, timeout_s=None, **more):
        self.count += 1
        given = int(action.say or action.number)
        word = "right" if given == self.number else "higher" if given < self.number else "lower"
        return Told(word=word, done=word == "right", reward=1.0 - 0.1 * (self.count - 1) if word == "right" else 0.0)
    @property
    def state(self):
        return State(step_count=self.count)

uvicorn.run(create_app(Game, Guess, Told, env_name="game", max_concurrent_envs=8), port=int(sys.argv[1]),
            log_level="error")
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    file = tmp_path_factory.mktemp("openenv") / "server.py"
    file.write_text(SERVER)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(file), str(port)])
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.2)
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait()


def step(text="", *calls):
    return {"op": "step", "messages": [{"role": "assistant", "content": text}], "calls": list(calls)}


@REAL
def test_its_action_is_a_tool_and_samples_have_sessions_of_their_own(url):
    sessions = Sessions((), "openenv", TurnsConfig(arguments={"url": url, "columns": ["seed"]}))
    assert sessions.check() == "class"
    one, other = sessions.open(), sessions.open()
    begun = one.asked({"op": "reset", "row": {"seed": 5}}, 60.0)
    assert begun["messages"] == "find it"
    tool = begun["tools"][0]["function"]
    assert tool["name"] == "act"
    assert tool["parameters"]["properties"]["number"]["type"] == "integer"
    other.asked({"op": "reset", "row": {"seed": 2}}, 60.0)
    guess = lambda n: {"name": "act", "arguments": {"number": n}}  # noqa: E731
    assert one.asked(step("", guess(3)), 60.0) == {
        "messages": [{"role": "tool", "name": "act", "content": "higher"}], "reward": 0.0, "done": False,
    }  # fmt: skip
    assert other.asked(step("", guess(3)), 60.0)["messages"][0]["content"] == "lower"
    assert one.asked(step("no call"), 60.0)["messages"] == "Call act."
    won = one.asked(step("", guess(5), guess(6)), 60.0)  # over after the first
    assert (won["reward"], won["done"], len(won["messages"])) == (0.9, True, 1)
    assert "error" in other.asked(step("", {"name": "act", "arguments": {"number": "x"}}), 60.0)
    sessions.close()


@REAL
def test_a_field_takes_the_models_words(url):
    sessions = Sessions((), "openenv", TurnsConfig(arguments={"url": url, "field": "say"}))
    one = sessions.open()
    one.asked({"op": "reset", "row": {}}, 60.0)
    assert one.asked(step("3"), 60.0) == {"messages": "right", "reward": 1.0, "done": True}
    sessions.close()


def test_without_the_package_it_is_said():
    if importlib.util.find_spec("openenv") is not None:
        pytest.skip("openenv-core is installed")
    sessions = Sessions((), "openenv", TurnsConfig(arguments={"url": "http://127.0.0.1:9"}))
    assert "openenv" in sessions.open().asked({"op": "reset", "row": {}}, 20.0)["error"]
    sessions.close()
