"""Reward functions of every form, as they are in their own houses, through the workers."""

import pytest

from anygrpo.errors import ConfigError
from anygrpo.scoring.build import build_rewards
from anygrpo.scoring.scorer import Scorer
from anygrpo.scoring.settings import FunctionRewardConfig
from anygrpo.scoring.signatures import described, recognised
from anygrpo.scoring.workers import Pool

FILE = """
import asyncio
import functools

def ours(prompts, outputs, answer, **rest): return [float(o == a) for o, a in zip(outputs, answer)]

def first_document(prompt, response): return float(len(response)) + 10 * len(prompt)

def sample_with_column(response, answer): return None if answer is None else float(response == answer)

async def sample_async(prompt, response):
    await asyncio.sleep(0.2)
    return float(len(response))

def trl(prompts, completions, completion_ids, answer, **kwargs):
    kwargs["log_metric"]("seen", 1.0)
    assert len(completion_ids) == len(completions)
    texts = [c[0]["content"] if isinstance(c, list) else c for c in completions]
    return [float(t == a) if a else None for t, a in zip(texts, answer)]

def trl_short(completions, **kwargs): return [float(len(c)) for c in completions]

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    assert data_source == "sums"
    return {"score": float(solution_str == ground_truth) + extra_info["bonus"], "format": 1}

def verl_bare(solution_str, ground_truth, method="strict"):
    return float(solution_str == ground_truth) * (method == "loose")

def rubric_one(completion, answer, **kwargs): return float(completion[-1]["content"] == answer)

def rubric_parser(parser, completion, state, task):
    return float(parser.parse_answer(completion) == state["answer"]) + (task == "default")

def rubric_group(completions, answers, states):
    return [float(c == a == s["answer"]) for c, a, s in zip(completions, answers, states)]

def openrlhf(queries, prompts, labels, **kw):
    return {"rewards": [float(q == p + l) for q, p, l in zip(queries, prompts, labels)], "scores": []}

def raises_on_x(prompt, response): return 1 / (response != "x")

class Longest:
    # as TRL ships its own: settings in __init__, called with keywords

    def __init__(self, limit=10): self.limit = limit

    def __call__(self, completions, **kwargs): return [float(min(len(c), self.limit)) for c in completions]

class AsyncJudge:
    async def __call__(self, completion, answer): return float(completion == answer)

longest, async_judge = Longest(limit=2), AsyncJudge()

def scaled(completions, factor, **kwargs): return [factor * len(c) for c in completions]

doubled = functools.partial(scaled, factor=2.0)

short = lambda response: float(len(response) < 3)

def defaults_only(completion="", answer="", bonus=0.25): return float(completion == answer) + bonus

async def trl_async(completions, **kwargs):
    await asyncio.sleep(0)
    return [float(len(c)) for c in completions]

class Rubric:
    def graded(self, completion, answer): return float(completion == answer)

    @staticmethod
    def strict(solution_str, ground_truth): return 2.0 * (solution_str == ground_truth)

method = Rubric().graded
strict = Rubric.strict

def gold_of_another_name(completions, gold, **kwargs): return [float(c == g) for c, g in zip(completions, gold)]

def anything(**kwargs): return [float(len(c)) for c in kwargs["completions"]]

def words(prompt, response): return float(len(response.split()))

def nothing_known(apples, pears): return 0.0
"""
COLUMNS = {"answer", "data_source", "extra_info", "reward_model"}


@pytest.fixture(scope="module")
def score(tmp_path_factory):
    path = tmp_path_factory.mktemp("rewards") / "user.py"
    path.write_text(FILE)
    with Pool(1) as pool:

        def make(name, outputs, prompt="ab", known=COLUMNS, **settings):
            config = FunctionRewardConfig(kind="function", function=f"{path}:{name}", **settings)
            scorer = Scorer(build_rewards([config], pool, known))
            record = {"prompt": prompt, "answer": "yes", "data_source": "sums", "extra_info": {"bonus": 0.5}}
            record |= {"reward_model": {"style": "rule", "ground_truth": "yes"}}
            return scorer.score([record], [outputs])

        yield make


CHAT = [{"role": "system", "content": "be short"}, {"role": "user", "content": "ab"}]


@pytest.mark.parametrize(
    ("name", "prompt", "wanted"),
    [
        ("ours", "ab", [1.0, 0.0]),
        ("first_document", "ab", [23.0, 22.0]),
        ("first_document", CHAT, [23.0, 22.0]),
        ("sample_with_column", "ab", [1.0, 0.0]),
        ("trl", "ab", [1.0, 0.0]),
        ("trl", CHAT, [1.0, 0.0]),
        ("trl_short", "ab", [3.0, 2.0]),
        ("trl_short", CHAT, [1.0, 1.0]),
        ("compute_score", "ab", [1.5, 0.5]),
        ("rubric_one", CHAT, [1.0, 0.0]),
        ("rubric_parser", "ab", [2.0, 1.0]),
        ("rubric_group", "ab", [1.0, 0.0]),
        ("openrlhf", "ab", [1.0, 0.0]),
        ("longest", "ab", [2.0, 2.0]),
        ("Longest", "ab", [3.0, 2.0]),
        ("async_judge", "ab", [1.0, 0.0]),
        ("AsyncJudge", "ab", [1.0, 0.0]),
        ("doubled", "ab", [6.0, 4.0]),
        ("short", "ab", [0.0, 1.0]),
        ("defaults_only", "ab", [1.25, 0.25]),
        ("trl_async", "ab", [3.0, 2.0]),
        ("method", "ab", [1.0, 0.0]),
        ("strict", "ab", [2.0, 0.0]),
        ("anything", "ab", [3.0, 2.0]),
    ],
)
def test_functions_as_people_have_them(score, name, prompt, wanted):
    scores = score(name, ["yes", "no"], prompt)
    assert scores.reasons == {}
    assert scores.rewards.tolist() == [wanted]


def test_settings_reach_every_form(score):
    assert score("verl_bare", ["yes", "no"], arguments={"method": "loose"}).rewards.tolist() == [[1.0, 0.0]]


def test_a_column_may_have_another_name_in_the_function(score):
    assert score("gold_of_another_name", ["yes", "no"], columns={"gold": "answer"}).rewards.tolist() == [[1.0, 0.0]]
    with pytest.raises(ConfigError, match=r"columns.gold is 'anser', and the data have no such column; .*answer"):
        score("gold_of_another_name", ["yes"], columns={"gold": "anser"})


def test_async_functions_of_one_sample_run_side_by_side(score):
    import time

    score("sample_async", ["a"])
    began = time.monotonic()
    assert score("sample_async", ["a" * n for n in range(30)]).rewards.tolist() == [[float(n) for n in range(30)]]
    assert time.monotonic() - began < 4  # one after the other: 6 s


def test_a_sample_that_raises_costs_itself(score):
    scores = score("raises_on_x", ["a", "x", "b"])
    assert scores.valid.tolist() == [[True, False, True]]
    assert scores.reasons == {(0, 1): "raises_on_x: ZeroDivisionError: division by zero"}


def test_split_and_chinese_are_warned_of_once(score):
    with pytest.warns(UserWarning, match="a Chinese sentence is one word"):
        assert score("words", ["今天天气很好"]).rewards.tolist() == [[1.0]]


def test_what_cannot_be_called_is_refused_with_the_forms(score):
    with pytest.raises(ConfigError, match=r"\['apples', 'pears'\], of no form that is known"):
        score("nothing_known", ["a"])
    with pytest.raises(ConfigError, match="wants 'answer', which is neither a column"):
        score("sample_with_column", ["a"], known=set())
    with pytest.raises(ConfigError, match="wants a ground truth"):
        score("verl_bare", ["a"], known=set())


def test_the_form_can_be_said(score):
    with pytest.raises(ConfigError, match="wants 'prompt'"):
        score("first_document", ["a"], signature="trl")


def test_recognised_by_names_alone():
    assert recognised({"prompts", "completions", "states"}, False) == "rubric"
    assert recognised({"prompts", "completions", "answer"}, True) == "trl"
    assert recognised({"output"}, False) == "sample"
    assert recognised(set(), True) == "anygrpo"
    assert recognised({"prompts"}, False) is None


def test_callable_objects_have_their_calls_form():
    class Reward:
        def __call__(self, completions, **kwargs):
            return [0.0 for _ in completions]

    assert described(Reward())["form"] == "trl"
