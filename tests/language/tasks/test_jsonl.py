"""A user's file: what is read, what is split, and every fault with its line."""

import json

import pytest

from anygrpo.core.build import build_task as build
from anygrpo.errors import ConfigError, DataError
from anygrpo.language.task_settings import JsonlTaskConfig
from anygrpo.language.tasks.jsonl import _other_share, share_of

NUMBER = ({"kind": "number"},)


def write(path, rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


def sums(count, start=0):
    return [{"prompt": f"{i} + 1?", "answer": i + 1} for i in range(start, start + count)]


@pytest.fixture
def make(tmp_path):
    built = []

    def make(rows, rewards=NUMBER, seed=0, **given):
        config = JsonlTaskConfig.model_validate(
            {"kind": "jsonl", "path": write(tmp_path / "data.jsonl", rows), "rewards": rewards, **given}
        )
        built.append(build(config, seed))
        return built[-1]

    yield make
    for task in built:
        task.close()


def texts(prompts):
    return {p["prompt"] for p in prompts}


def test_an_epoch_holds_each_prompt_once(make):
    task = make(sums(50))
    assert task.size + len(task.held_out()) == 50
    seen = [p["prompt"] for step in range(task.size) for p in task.prompts(step, 1)]
    assert sorted(seen) == sorted(texts(task._train))
    assert not texts(task.held_out()) & set(seen)


def test_the_split_depends_on_the_prompt_alone(make):
    first = texts(make(sums(60)).held_out())
    assert first == texts(make(sums(60)[::-1], seed=9).held_out())
    assert first <= texts(make(sums(80)).held_out()) | texts(make(sums(80))._train)
    share = sum(share_of(f"prompt {i}") < 0.1 for i in range(4000)) / 4000
    assert share == pytest.approx(0.1, abs=0.02)


def test_held_out_is_capped_and_the_rest_is_trained_on(make):
    task = make(sums(100), held_out=3, held_out_share=0.5)
    assert len(task.held_out()) == 3
    assert task.size == 97


def test_messages_columns_and_system(make):
    turns = [{"role": "user", "content": "hi"}]
    rows = [{"q": [*turns, {"role": "assistant", "content": str(i)}], "gold": "1", "n": i} for i in range(20)]
    rewards = [{"kind": "number", "column": "gold"}]
    task = make(rows, rewards=rewards, prompt_column="q", answer_column="gold", system="Be short.")
    prompt = task.prompts(0, 1)[0]
    assert prompt["prompt"][:2] == [{"role": "system", "content": "Be short."}, *turns]
    assert set(prompt) == {"prompt", "gold", "n"}
    assert task.stored([prompt]).actions == [["1"]]


def test_stored_candidates_with_rewards(make):
    rows = [
        {"prompt": str(i), "candidates": [{"text": "a", "reward": 1}, {"text": "b", "reward": 0.5}][: 1 + i % 2]}
        for i in range(20)
    ]
    task = make(rows, rewards=[{"kind": "length", "target": 1}])
    prompts = [p for p in task._train if p["prompt"] in ("2", "3", "4", "5")][:2]
    stored = task.stored(prompts)
    assert [len(row) for row in stored.actions] == [1 + int(p["prompt"]) % 2 for p in prompts]
    assert stored.rewards == [[1.0, 0.5][: len(row)] for row in stored.actions]


def test_no_answers_no_demonstrations(make):
    task = make([{"prompt": str(i)} for i in range(20)], rewards=[{"kind": "length", "target": 1}])
    with pytest.raises(ConfigError, match="neither gold answers"):
        task.stored(task.prompts(0, 2))


def test_user_function_gets_its_columns(make, tmp_path):
    file = tmp_path / "r.py"
    file.write_text(
        "def f(prompts, outputs, low, bonus=0.0): return [float(o) - x + bonus for o, x in zip(outputs, low)]\n"
    )
    rows = [{"prompt": str(i), "low": i, "other": "x"} for i in range(20)]
    task = make(rows, rewards=[{"function": f"{file}:f", "weight": 2.0, "arguments": {"bonus": 0.5}}])
    prompts = task.prompts(0, 2)
    scores = task.score(prompts, [[str(p["low"] + 1), str(p["low"])] for p in prompts])
    assert scores.rewards.tolist() == [[3.0, 1.0]] * 2
    assert list(scores.components) == ["f"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([*sums(3), '{"prompt": "x", "answer": 1'], r"data\.jsonl, line 4: broken JSON: .* at column"),
        (["", "[1, 2]"], r"line 2: a list, not an object"),
        ([{"promt": "x"}], r"line 1: no column 'prompt'; did you mean 'promt'\?"),
        ([{"prompt": ""}], r"line 1: the prompt is ''"),
        ([{"prompt": 3}], r"line 1: the prompt is '3'"),
        ([{"prompt": []}], r"line 1: the prompt is"),
        ([{"prompt": [{"role": "boss", "content": "x"}]}], r"line 1: the prompt is .*boss"),
        ([{"prompt": "x", "candidates": ["a"]}], r"line 1: candidates cannot be read"),
        (
            [{"prompt": "x", "candidates": [{"text": "a", "reward": float("nan")}]}],
            r"line 1: candidates cannot be read",
        ),
        (['{"prompt": ' + "[" * 100_000], r"line 1: broken JSON"),
        (['{"prompt": "x", "answer": ' + "1" * 5000 + "}"], r"line 1: broken JSON"),
        ([], r"holds no rows"),
        (["", " "], r"holds no rows"),
        ([*sums(20), {"prompt": "x"}], r"line 21: no 'answer', which the number reward reads"),
        ([*sums(20), {"prompt": "x", "answer": "none"}], r"line 21: answer = 'none' holds no number"),
        (sums(1), r"of 1 prompts 0 are held out, 1 are left|of 1 prompts 1 are held out, 0 are left"),
    ],
)
def test_faults_of_the_data_name_file_and_line(make, rows, message):
    with pytest.raises(DataError, match=message):
        make(rows)


def test_a_share_that_holds_one_out_is_told_and_does(make):
    """Of two prompts whose numbers are .07 apart and above the default share."""
    rows = sorted(sums(40), key=lambda row: share_of(row["prompt"]))
    rows = [row for row in rows if 0.2 < share_of(row["prompt"]) < 0.5][::4]
    with pytest.raises(DataError, match="holds one out") as stopped:
        make(rows)
    share = float(stopped.value.cure.split()[2])
    assert 0.0 <= share - share_of(rows[0]["prompt"]) <= 0.01
    assert len(make(rows, held_out_share=share).held_out()) == 1


def test_a_share_says_how_many_it_holds_out():
    """Two digits may not part two rows; a share that takes all is no advice."""
    assert _other_share([0.101, 0.105]).en == _other_share([]).en == _other_share([0.6, 0.7]).en == ""
    told = _other_share([0.101, 0.105, 0.109, 0.6])
    assert told.en == "task.held_out_share = 0.11 holds 3 out; or "
    assert "3 个" in told.zh
    assert _other_share([0.101, 0.6]).en == "task.held_out_share = 0.11 holds one out; or "


def test_no_file_and_no_utf8(make, tmp_path):
    with pytest.raises(DataError, match=r"no data file .*none\.jsonl"):
        build(JsonlTaskConfig(kind="jsonl", path=str(tmp_path / "none.jsonl"), rewards=NUMBER), 0)
    (tmp_path / "latin.jsonl").write_bytes('{"prompt": "é"}'.encode("latin-1"))
    with pytest.raises(DataError, match="not UTF-8"):
        build(JsonlTaskConfig(kind="jsonl", path=str(tmp_path / "latin.jsonl"), rewards=NUMBER), 0)


def test_repeated_rows_are_left_out_and_counted(make):
    with pytest.warns(UserWarning, match="5 of 25 rows repeat another"):
        task = make(sums(20) + sums(5))
    assert task.size + len(task.held_out()) == 20


def test_rows_that_differ_in_any_column_are_different_rows(make):
    rows = [row | {"answer": row["answer"] + n} for row in sums(20) for n in (0, 1)]
    task = make(rows)
    assert not texts(task.held_out()) & texts(task._train)
    assert task.size + len(task.held_out()) == 40


def test_a_held_out_file(make, tmp_path):
    held_out = write(tmp_path / "held.jsonl", sums(4, start=100))
    task = make(sums(20), held_out_path=held_out)
    assert task.size == 20
    assert len(task.held_out()) == 4
    both = write(tmp_path / "both.jsonl", sums(4, start=18))
    with pytest.raises(DataError, match=r"2 held-out prompts are also in training: .*both\.jsonl, line 1 is .*line 19"):
        make(sums(20), held_out_path=both)


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ({"kind": "number", "column": "anser"}, r"reads column 'anser', which the data lack; did you mean 'answer'\?"),
        ({"function": "{dir}/r.py:g"}, r"r\.py has no 'g'; "),
        (
            {"function": "{dir}/r.py:needs"},
            r"wants 'gold', which is neither a column \(answer\) nor one of its settings",
        ),
        ({"function": "{dir}/r.py:deaf"}, r"does not take 'outputs'"),
        ({"function": "{dir}/r.py:f", "arguments": {"answer": 1}}, r"argument 'answer' is also a column"),
        ({"function": "{dir}/broken.py:f"}, r"loading .*broken\.py:f failed: ZeroDivisionError"),
        ({"function": "r:f"}, r"'r:f' does not name an object in a file"),
        ({"kind": "number", "name": "same"}, r"two rewards are called 'same'"),
    ],
)
def test_faults_of_rewards(make, tmp_path, reward, message):
    (tmp_path / "r.py").write_text(
        "def f(prompts, outputs, **columns): return [0.0] * len(outputs)\n"
        "def needs(prompts, outputs, gold): return [0.0] * len(outputs)\ndef deaf(prompts): return []\n"
    )
    (tmp_path / "broken.py").write_text("1 / 0\n")
    reward = {
        key: value.replace("{dir}", str(tmp_path)) if key == "function" else value for key, value in reward.items()
    }
    with pytest.raises(ConfigError, match=message):
        make(sums(20), rewards=[{"kind": "exact", "name": "same"}, reward])


def test_no_reward_file(make):
    with pytest.raises(DataError, match=r"no file nowhere\.py"):
        make(sums(20), rewards=[{"function": "nowhere.py:f"}])


def test_tests_of_the_code_reward_are_checked_when_read(make, monkeypatch):
    from anygrpo.scoring import sandbox

    monkeypatch.setattr(sandbox, "require", lambda: None)
    rows = [{"prompt": str(i), "tests": "assert f(1) == 2" if i else "assert f(1) == g(1)"} for i in range(20)]
    with pytest.raises(DataError, match=r"line 1: tests: .*judge itself"):
        make(rows, rewards=[{"kind": "code"}])
