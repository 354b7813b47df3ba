"""Conversations from the first token to what a reward reads, with real processes; only the words are a script's."""

import pytest
import torch
from talking import SILENT, policy
from test_formats import WRITTEN, template

from anygrpo.errors import ConfigError, TrainingError
from anygrpo.language.tasks.answer import Answer

CODE = '''
import os, time
def add(a: int, b: int):
    """Adds.

    Args:
        a: one.
        b: other.
    """
    return a + b

def wait(seconds: float):
    """Waits.

    Args:
        seconds: so long.
    """
    time.sleep(seconds)
    return "waited"

def echo(messages, columns):
    return None if "stop" in messages[-1]["content"] else "again, " + columns["who"]

class Guess:
    def reset(self, row):
        self.number, self.first = row["number"], row.get("first")
        return self.first
    def step(self, messages, calls):
        said = messages[-1]["content"]
        if said == "crash":
            raise RuntimeError("boom")
        if said == "exit":
            os._exit(1)
        if said == "nan":
            return "x", float("nan"), False
        if not said.isdigit():
            return {"role": "user", "content": "a number"}, -1.0, False
        if int(said) == self.number:
            return None, 1.0, True
        return ("higher" if int(said) < self.number else "lower"), 0.25, False

class Random:
    def reset(self, row):
        return str(time.time())
    def step(self, messages, calls):
        return None, 0.0, True

class Board:
    def reset(self, row):
        return None, [self.look, {"name": "move", "description": "Moves.", "parameters": {"type": "object"}}]
    def look(self, where: str) -> str:
        """Looks.

        Args:
            where: there.
        """
        return "nothing " + where
    def step(self, messages, calls):
        if not calls:
            return "play", None, False
        return [{"role": "tool", "name": "move", "content": "moved " + calls[0]["arguments"]["to"]}], 2.0, False
'''


@pytest.fixture
def place(tmp_path):
    (tmp_path / "code.py").write_text(CODE)
    return f"{tmp_path}/code.py"


def call(name, **arguments):
    import json

    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def said(answer):
    return [(m["role"], m["content"]) for m in answer.messages]


def test_calls_are_answered_and_the_tokens_stay(place):
    made = policy([[call("add", a=2, b=3), "it is 5"], ["none"]], tools=(f"{place}:add",))
    assert made.talk.format == "hermes"
    rollout = made.sample([{"prompt": "2 + 3?"}], 2, seed=0)
    one, other = made.decode(rollout.samples)[0]
    assert said(one) == [("assistant", ""), ("tool", "5"), ("assistant", "it is 5")]
    assert one.messages[0]["tool_calls"][0]["function"] == {"name": "add", "arguments": {"a": 2, "b": 3}}
    assert one == "it is 5"
    assert other == "none"
    tokenizer, row = made.prompts.tokenizer, rollout.samples["completion_ids"][0, 0]
    wrote = rollout.samples["written_by"][0, 0]
    length = rollout.samples["completion_lengths"][0, 0]
    whole = tokenizer.decode(row[:length])
    assert whole == (
        f"{call('add', a=2, b=3)}<|end|><|user|><tool_response>\n5\n</tool_response><|end|><|assistant|>it is 5<|end|>"
    )
    assert tokenizer.decode(row[wrote == 1]) == f"{call('add', a=2, b=3)}<|end|>it is 5<|end|>"
    assert torch.equal(rollout.mask[0, 0], wrote == 1)
    assert rollout.info["turns/mean"] == 1.5
    assert rollout.info["tools/calls"] == 0.5
    assert rollout.info["tools/failed"] == 0.0
    assert "add" in tokenizer.decode(made.engine.prompts[0])


def test_parallel_calls_and_faults_are_told(place):
    two = call("add", a=1, b=1) + call("add", a=1) + "<tool_call>{</tool_call>" + call("sub")
    made = policy([[two, "2"]], tools=(f"{place}:add",), max_new_tokens=1500)
    rollout = made.sample([{"prompt": "?"}], 1, seed=0)
    (one,) = made.decode(rollout.samples)[0]
    first, *faults = one.inserted
    assert first["content"] == "2"
    assert ["error" in m["content"] for m in faults] == [True] * 3
    assert bool(rollout.valid.all())
    assert rollout.info["tools/calls"] == 4
    assert rollout.info["tools/failed"] == 0.75


def test_a_tool_that_is_too_slow_is_told_and_counted(place):
    made = policy([[call("wait", seconds=30), "ok"]], tools=(f"{place}:wait",), turns={"timeout": 0.3})
    rollout = made.sample([{"prompt": "?"}], 1, seed=0)
    (one,) = made.decode(rollout.samples)[0]
    assert one.inserted[0]["content"] == "error: timed out after 0.3 s"
    assert one == "ok"
    assert rollout.info["tools/failed"] == 1.0


def test_limits(place):
    tool = (f"{place}:add",)
    chatty = [[call("add", a=1, b=1)] * 9]
    made = policy(chatty, tools=tool, max_turns=3)
    (one,) = made.decode(made.sample([{"prompt": "?"}], 1, seed=0).samples)[0]
    assert [m["role"] for m in one.messages] == ["assistant", "tool", "assistant", "tool", "assistant"]
    made = policy(chatty, tools=tool, max_new_tokens=100)
    rollout = made.sample([{"prompt": "?"}], 1, seed=0)
    assert not bool(rollout.ended.any())
    assert int(rollout.samples["completion_lengths"][0, 0]) <= 100
    assert not (rollout.samples["written_by"] == 2).any()  # a tool's words that would leave no room are not put there
    slow = policy([[call("wait", seconds=0.2), call("wait", seconds=0.2), "x"]], tools=(f"{place}:wait",),
                  turns={"seconds": 0.3})  # fmt: skip
    rollout = slow.sample([{"prompt": "?"}], 1, seed=0)
    assert "more than 0.3 s" in rollout.reasons[(0, 0)]


def test_an_environments_rewards_and_words(place):
    made = policy([["5", "9", "7"], ["7"], ["what", "1"], ["5"]], environment=f"{place}:Guess", max_turns=3)
    rollout = made.sample([{"prompt": "guess", "number": 7, "first": "my number?"}], 4, seed=0)
    answers = made.decode(rollout.samples)[0]
    assert said(answers[0]) == [
        ("assistant", "5"), ("user", "higher"), ("assistant", "9"), ("user", "lower"), ("assistant", "7"),
    ]  # fmt: skip
    assert answers[0].rewards == [0.25, 0.25, 1.0]
    assert [a.reward for a in answers[:2]] == [1.5, 1.0]
    assert answers[2].rewards[:2] == [-1.0, 0.25]
    assert "my number?" in made.prompts.tokenizer.decode(made.engine.prompts[0])
    assert bool(rollout.valid.all())


@pytest.mark.parametrize(
    ("word", "why"), [("crash", "RuntimeError: boom"), ("exit", "its process ended"), ("nan", "reward of nan")]
)
def test_a_crash_is_an_invalid_sample_with_its_reason(place, word, why):
    made = policy([[word, "1"], ["7"]], environment=f"{place}:Guess")
    rollout = made.sample([{"prompt": "guess", "number": 7}], 2, seed=0)
    assert rollout.valid.tolist() == [[False, True]]
    assert why in rollout.reasons[(0, 0)]
    assert rollout.reasons[(0, 0)].startswith("environment: ")


def test_reset_that_fails_and_reset_that_differs(place):
    made = policy([["1"], ["1"], ["7"], ["7"]], environment=f"{place}:Guess")
    rows = [{"prompt": "guess"}, {"prompt": "guess", "number": 7}]  # no column "number" in the first
    rollout = made.sample(rows, 2, seed=0)
    assert rollout.valid.tolist() == [[False, False], [True, True]]
    assert "environment: Guess.reset raised KeyError" in rollout.reasons[(0, 1)]
    with pytest.raises(TrainingError, match=r"raised on all of the first 2 outputs.*reset raised KeyError"):
        policy([["1"], ["1"]], environment=f"{place}:Guess").sample(rows[:1], 2, seed=0)
    with pytest.raises(TrainingError, match=r"Random.reset begins samples of one prompt differently"):
        policy([["1"], ["1"]], environment=f"{place}:Random").sample([{"prompt": "guess"}], 2, seed=0)


def test_one_prompt_that_cannot_be_opened_is_data_and_two_are_the_environment(place):
    """Nobody is heard here: what has begun well is enough for the fault to be that prompt's."""
    short, long = {"prompt": "guess", "number": 7}, {"prompt": "guess", "number": 1, "first": "x" * 4000}
    other, lacking = long | {"number": 2}, {"prompt": "guess"}
    settings = {"environment": f"{place}:Guess", "max_new_tokens": 1}
    for rows in ([long], [long, short], [long, dict(long)], [long, other, short], [lacking, short]):
        rollout = policy([["7"]] * 2 * len(rows), **settings).sample(rows, 2, seed=0)
        assert [bool(v.any()) for v in rollout.valid] == [row is short for row in rows]
    with pytest.raises(TrainingError, match=r"the environment .*all of the first 4 outputs: .*context is 2048"):
        policy([["7"]] * 4, **settings).sample([long, other], 2, seed=0)
    made = policy([["7"]] * 4, **settings)
    made.sample([short, short], 2, seed=0)
    made.sample([long, other], 2, seed=0)  # the environment has begun others
    broken = policy([["crash"]] * 4, environment=f"{place}:Guess")
    with pytest.raises(TrainingError, match=r"raised on all of the first 2 outputs: .*boom"):
        broken.sample([long, short], 2, seed=0)  # one fails at its beginning, the other at its turn


@pytest.mark.parametrize("first", [[{"role": "king", "content": "x"}], 7, ["x"], (None, ["look"]), ("x", None, None)])
def test_a_reset_that_gives_no_messages_is_a_sample_or_the_end(place, first):
    made = policy([["1"], ["1"], ["7"], ["7"]], environment=f"{place}:Guess")
    rows = [{"prompt": "guess", "number": 1, "first": first}, {"prompt": "guess", "number": 7}]
    rollout = made.sample(rows, 2, seed=0)
    assert rollout.valid.tolist() == [[False, False], [True, True]]
    assert rollout.reasons[(0, 0)].startswith("environment: Guess.reset returned ")
    with pytest.raises(ConfigError, match=r"Guess: of all of the first 2 outputs Guess.reset returned ") as stopped:
        policy([["1"], ["1"]], environment=f"{place}:Guess").sample(rows[:1], 2, seed=0)
    assert stopped.value.cure == "it has to return None, a text or messages, or (those, a list of tools)"


def test_a_tool_that_gives_what_no_model_reads(tmp_path):
    """Told in the conversation, and named once it was so at every call; half a surrogate pair is a question mark."""
    doc = '"""Gives.\n\n    Args:\n        a: number.\n    """\n'
    for name, value in (("gen", "(x for x in range(a))"), ("odd", "chr(0xd800 + a)"), ("some", "len if a else 1")):
        (tmp_path / f"{name}.py").write_text(f"def {name}(a: int):\n    {doc}    return {value}\n")
    wrong = policy([[call("gen", a=1), "x"]] * 2, tools=(f"{tmp_path}/gen.py:gen",))
    with pytest.raises(ConfigError, match="the tool gen: of all of the first 2 outputs gen returned a generator"):
        wrong.sample([{"prompt": "?"}], 2, seed=0)
    for name, told in (("odd", ["?", "?"]), ("some", ["1", "error: some returned a builtin_function_or_method"])):
        made = policy([[call(name, a=a), "x"] for a in (0, 1)], tools=(f"{tmp_path}/{name}.py:{name}",))
        said = made.decode(made.sample([{"prompt": "?"}], 2, seed=0).samples)[0]
        assert [one.inserted[0]["content"] for one in said] == told


def test_tools_of_an_environment(place):
    made = policy([[call("look", where="up"), call("move", to="b2"), "done"]], environment=f"{place}:Board")
    (one,) = made.decode(made.sample([{"prompt": "go"}], 1, seed=0).samples)[0]
    assert [m["content"] for m in one.inserted][:3] == ["nothing up", "moved b2", "play"]
    assert one.rewards[:3] == [0.0, 2.0, 0.0]
    prompt = made.prompts.tokenizer.decode(made.engine.prompts[0])
    assert '"look"' in prompt
    assert '"move"' in prompt


def test_a_function_speaks(place):
    made = policy([["hi", "stop"]], environment=f"{place}:echo")
    (one,) = made.decode(made.sample([{"prompt": "?", "who": "you"}], 1, seed=0).samples)[0]
    assert said(one) == [("assistant", "hi"), ("user", "again, you"), ("assistant", "stop")]
    assert one.rewards == [None, None]
    assert one.reward is None


def test_a_template_of_its_own_format(place):
    mistral = template(WRITTEN["mistral"])
    made = policy([['[TOOL_CALLS]add[ARGS]{"a": 2, "b": 2}', "4"]], mistral, tools=(f"{place}:add",))
    assert made.talk.format == "mistral"
    rollout = made.sample([{"prompt": "?"}], 1, seed=0)
    whole = made.prompts.tokenizer.decode(rollout.samples["completion_ids"][0, 0])
    assert whole == '[TOOL_CALLS]add[ARGS]{"a": 2, "b": 2}<|end|><|tool|>4<|end|><|assistant|>4<|end|>'
    assert made.decode(rollout.samples)[0][0] == "4"


def test_formats_that_cannot_be_told(place):
    odd = template("CALL {{ c.function.name }} {{ c.function.arguments | tojson }}")
    with pytest.raises(ConfigError, match=r"turns\.format"):
        policy([["x"]], odd, tools=(f"{place}:add",))
    assert policy([["x"]], odd, tools=(f"{place}:add",), turns={"format": "llama3"}).talk.format == "llama3"


def test_a_demonstration_is_what_would_have_been_sampled(place):
    from anygrpo.core.task import Stored

    for form, text in (
        (SILENT, "<tool_call>\n" + call("add", a=2, b=3)[11:-12] + "\n</tool_call>"),
        (template(WRITTEN["mistral"]), '[TOOL_CALLS]add[ARGS]{"a": 2, "b": 3}'),
    ):
        made = policy([[text, "it is 5"]], form, tools=(f"{place}:add",))
        sampled = made.sample([{"prompt": "2 + 3?"}], 1, seed=0)
        messages = made.decode(sampled.samples)[0][0].messages
        replayed = made.replay([{"prompt": "2 + 3?"}], Stored([[Answer(messages)]]), 0)
        assert torch.equal(replayed.samples["completion_ids"], sampled.samples["completion_ids"])
        assert torch.equal(replayed.mask, sampled.mask)
