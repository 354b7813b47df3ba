"""verifiers environments as they are, with the real package: the classic interface, and tasksets (0.4)."""

import importlib.util
import json
import shutil
import sys
from types import SimpleNamespace

import pytest

from anygrpo.errors import ConfigError
from anygrpo.language.tools.sessions import Sessions
from anygrpo.language.tools.settings import TurnsConfig
from anygrpo.language.tools.verifiers import check_rows, earned

HERE = importlib.util.find_spec("verifiers") is not None
CLASSIC = HERE and importlib.util.find_spec("verifiers.rubrics") is not None
classic = pytest.mark.skipif(not CLASSIC, reason="verifiers with load_environment (before 0.4) is not installed")
tasksets = pytest.mark.skipif(
    not HERE or CLASSIC or shutil.which("uv") is None,
    reason="verifiers 0.4 and uv, which its harness runs, are not here",
)
ENVIRONMENT = '''
import verifiers as vf
from datasets import Dataset

def add(a: int, b: int) -> int:
    """Adds.

    Args:
        a: one number.
        b: the other.
    """
    return a + b

def words(message):
    return (message["content"] if isinstance(message, dict) else message.content) or ""

def right(completion, answer, **kwargs):
    return 1.0 if answer in words(completion[-1]) else 0.0

def won(completion, answer, **kwargs):
    return 1.0 if answer in [words(m) for m in completion] else 0.0

class Guess(vf.MultiTurnEnv):
    async def setup_state(self, state):
        state["left"] = 3
    async def env_response(self, messages, state, **kwargs):
        state["left"] -= 1
        said, wanted = int(words(messages[-1])), int(state["answer"])
        word = "right" if said == wanted else "higher" if said < wanted else "lower"
        reply = [{"role": "user", "content": word}]
        if word == "right" or not state["left"]:
            state["final_env_response"] = reply
        return reply

class Forgets(Guess):
    async def get_prompt_messages(self, state):
        made = await super().get_prompt_messages(state)
        return made[-1:] if state["trajectory"] else made

def best(completions, **kwargs):
    return [float(len(c)) for c in completions]

def load_environment(game="tools"):
    data = Dataset.from_list([{"question": f"{i} + {i}?", "answer": str(2 * i)} for i in range(1, 9)])
    if game == "tools":
        rubric = vf.Rubric(funcs=[right])
        return vf.ToolEnv(tools=[add], dataset=data, rubric=rubric, max_turns=4, system_prompt="Use the tool.")
    if game == "group":
        return vf.SingleTurnEnv(dataset=data, rubric=vf.Rubric(funcs=[best]))
    if game == "single":
        return vf.SingleTurnEnv(dataset=data, rubric=vf.Rubric(funcs=[right]))
    return (Forgets if game == "forgets" else Guess)(dataset=data, rubric=vf.Rubric(funcs=[won]), max_turns=5)
'''
TASKSET = """
import verifiers.v1 as vf

class SumData(vf.TaskData):
    answer: str

class SumTask(vf.Task[SumData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def right(self, trace) -> float:
        return 1.0 if self.data.answer in trace.last_reply else 0.0

class Sums(vf.Taskset[SumTask, vf.TasksetConfig]):
    def load(self):
        for i in range(1, 9):
            yield SumTask(SumData(prompt=f"{i} + {i}?", answer=str(2 * i), system_prompt="Answer."), self.config.task)

__all__ = ["Sums"]
"""


@pytest.fixture
def name(tmp_path, monkeypatch):
    """The module's name, importable here and in the samples' processes; another one each time, since it is kept."""
    made = f"env_{tmp_path.name}".replace("-", "_").lower()
    (tmp_path / f"{made}.py").write_text(ENVIRONMENT if CLASSIC else TASKSET)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield made
    sys.modules.pop(made, None)


def begun(name, row, **arguments):
    sessions = Sessions((), "verifiers", TurnsConfig(arguments={"id": name, **arguments}))
    assert sessions.check() == "class"
    one = sessions.open()
    return sessions, one, one.asked({"op": "reset", "row": row}, 120.0)


def said(one, text, *calls):
    request = {"op": "step", "messages": [{"role": "assistant", "content": text}], "calls": list(calls)}
    return one.asked(request, 120.0)


def add(a, b):
    return {"name": "add", "arguments": {"a": a, "b": b}}


@classic
def test_its_tools_run_in_parallel_calls_and_its_rubric_pays(name):
    sessions, one, first = begun(name, {"example": 1})
    assert [(m["role"], m["content"]) for m in first["messages"]] == [("system", "Use the tool."), ("user", "2 + 2?")]
    (tool,) = first["tools"]
    assert tool["function"]["name"] == "add"
    assert said(one, "", add(2, 2), add(1, 2)) == {
        "messages": [
            {"role": "tool", "content": "4", "name": "add"},
            {"role": "tool", "content": "3", "name": "add"},
        ],
        "reward": None,
        "done": False,
    }
    assert said(one, "it is 4") == {"messages": None, "reward": 1.0, "done": True}
    sessions.close()


@classic
@pytest.mark.parametrize(("answer", "reward"), [("4", 1.0), ("5", 0.0)])
def test_a_single_turn(name, answer, reward):
    sessions, one, first = begun(name, {"example": 1}, arguments={"game": "single"})
    assert first["messages"] == [{"role": "user", "content": "2 + 2?"}]
    assert said(one, answer) == {"messages": None, "reward": reward, "done": True}
    sessions.close()


@classic
def test_each_sample_plays_its_own_game(name):
    sessions, one, _ = begun(name, {"example": 1}, arguments={"game": "guess"})
    other = sessions.open()
    other.asked({"op": "reset", "row": {"example": 4}}, 120.0)
    assert said(one, "3")["messages"] == [{"role": "user", "content": "higher"}]
    assert said(other, "12")["messages"] == [{"role": "user", "content": "lower"}]
    assert said(one, "4") == {"messages": None, "reward": 1.0, "done": True}
    assert said(other, "1")["messages"] == [{"role": "user", "content": "higher"}]
    assert said(other, "2") == {"messages": None, "reward": 0.0, "done": True}
    sessions.close()


@classic
def test_what_fails_is_the_samples_reason(name):
    sessions, one, _ = begun(name, {"example": 1}, arguments={"game": "guess"})
    assert "invalid literal" in said(one, "no number")["error"]
    other = sessions.open()
    assert "error" in other.asked({"op": "reset", "row": {"example": 99}}, 120.0)
    sessions.close()


@classic
def test_an_environment_that_rewrites_the_conversation_is_refused(name):
    sessions, one, _ = begun(name, {"example": 1}, arguments={"game": "forgets"})
    assert "rewrites what was said before" in said(one, "3")["error"]
    sessions.close()


@classic
def test_an_environment_that_does_not_load_is_said_before_the_first_step(name):
    sessions = Sessions((), "verifiers", TurnsConfig(arguments={"id": name, "arguments": {"gaem": "x"}}))
    with pytest.raises(ConfigError, match="gaem"):
        sessions.check()
    sessions.close()


@classic
def test_the_environments_own_evaluation_data_cannot_be_played_for_the_tasks_rows(name):
    sessions = Sessions((), "verifiers", TurnsConfig(arguments={"id": name, "split": "eval"}))
    with pytest.raises(ConfigError, match="split"):
        sessions.check()
    sessions.close()


@classic
def test_a_rubric_that_compares_a_group_is_refused(name):
    sessions = Sessions((), "verifiers", TurnsConfig(arguments={"id": name, "arguments": {"game": "group"}}))
    with pytest.raises(ConfigError, match="compares the samples of a group"):
        sessions.check()
    sessions.close()


@classic
def test_its_data_is_a_task(name):
    from anygrpo.language.task_settings import VerifiersTaskConfig
    from anygrpo.language.tasks.verifiers import build

    task = build(VerifiersTaskConfig(kind="verifiers", id=name, arguments={"game": "guess"}, held_out_share=0.25), 0)
    rows = task.prompts(0, task.size)
    assert task.size == 6
    assert {r["example"] for r in rows}.isdisjoint(r["example"] for r in task.held_out())
    assert len(task.held_out()) == 2
    row = next(r for r in rows if r["example"] == rows[0]["example"])
    assert row["answer"] == str(2 * (row["example"] + 1))
    assert row["prompt"] == [{"role": "user", "content": f"{row['example'] + 1} + {row['example'] + 1}?"}]
    task.close()


def recipe_of(name, tmp_path, **asked):
    from talking import model, tokenizer

    model().save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    return {
        "folder": str(tmp_path / "run"),
        "policy": {
            "kind": "causal_lm", "model": str(tmp_path / "model"), "train": "all", "device": "cpu", "threads": 1,
            "dtype": "float32", "max_new_tokens": 24, "max_turns": 3, "environment": "verifiers",
            "eos": list(range(20, 60)),
            "turns": {"arguments": {"id": name, "arguments": {"game": "single"}}, "timeout": 60},
        },
        "task": {"kind": "verifiers", "id": name, "arguments": {"game": "single"}, "held_out_share": 0.25} | asked,
        "algorithm": {"prompts_per_step": 2, "group_size": 2},
        "training": {"steps": 1, "gradient_norms_every": 0, "samples_every": 1},
        "doctor": {"mode": "off"},
    }  # fmt: skip


@classic
def test_a_run_that_asks_other_rows_than_it_plays_is_refused(name, tmp_path):
    from anygrpo.recipe.load import parse_recipe
    from anygrpo.train.build import new_run

    recipe = recipe_of(name, tmp_path, arguments={"game": "guess"})
    with pytest.raises(ConfigError, match=r'"guess"(?s:.*)"single"(?s:.*)plays(?s:.*)same id and arguments'):
        new_run(parse_recipe(recipe))


@classic
def test_a_run_plays_it(name, tmp_path):
    from anygrpo.recipe.load import parse_recipe
    from anygrpo.train.build import new_run
    from anygrpo.train.folder import read_rows
    from anygrpo.train.loop import train

    run = new_run(parse_recipe(recipe_of(name, tmp_path)))
    train(run)
    run.close()
    row = read_rows(run.folder.metrics)[0][-1]
    assert row["invalid/share"] == 0
    assert row["reward/mean"] in (0.0, 0.25, 0.5, 0.75, 1.0)
    shown = json.loads((tmp_path / "run" / "samples" / "step_00000000.jsonl").read_text().splitlines()[0])
    assert all(one[0]["by"] == "policy" for one in shown["conversations"])


@tasksets
def test_a_taskset_is_played_by_its_own_harness(name):
    sessions, one, first = begun(name, {"example": 1})
    assert [(m["role"], m["content"]) for m in first["messages"]] == [("system", "Answer."), ("user", "2 + 2?")]
    assert said(one, "it is 4") == {"messages": None, "reward": 1.0, "done": True}
    sessions.close()


@pytest.mark.parametrize(
    ("agents", "reward"),
    [([(True, 0.5), (False, 1.0)], 0.5), ([(True, 0.5), (True, 0.25)], 0.75), ([(False, 0.5), (False, 1.0)], 1.5)],
)
def test_a_judges_reward_is_not_the_policys(agents, reward):
    traces = [SimpleNamespace(agent=SimpleNamespace(trainable=kind), reward=paid) for kind, paid in agents]
    assert earned(traces) == reward


PLAYS = {"id": "sums", "arguments": {"level": 2}}


@pytest.mark.parametrize(
    ("row", "given"),
    [
        ({"example": 1, "verifiers": PLAYS}, PLAYS),
        ({"example": 1, "verifiers": {"id": "sums", "arguments": {}}}, {"id": "sums"}),
        ({"example": 1}, PLAYS),  # of the user's own file: nothing is said of it
        ("a prompt", PLAYS),
    ],
)
def test_rows_of_the_environment_that_plays(row, given):
    check_rows([row], given)


@pytest.mark.parametrize(
    "asks", [{"id": "others", "arguments": {"level": 2}}, {"id": "sums", "arguments": {"level": 3}}]
)
def test_rows_of_another_environment_are_refused(asks):
    with pytest.raises(ConfigError, match=r"are of the verifiers environment(?s:.*)'sums' \{\"level\": 2\} plays them"):
        check_rows([{"example": 0, "verifiers": PLAYS}, {"example": 0, "verifiers": asks}], PLAYS)


def test_without_the_package_it_is_said():
    if HERE:
        pytest.skip("verifiers is installed")
    sessions = Sessions((), "verifiers", TurnsConfig(arguments={"id": "x"}))
    with pytest.raises(ConfigError, match="verifiers"):
        sessions.check()
    sessions.close()
