"""Recipes: what is accepted, and the one clear error for everything else."""

from __future__ import annotations

import pytest
from runs import table

from anygrpo.errors import ConfigError, DataError
from anygrpo.recipe.load import apply_flags, dump_recipe, load_recipe, parse_recipe


def parsed(*flags, **extra):
    recipe = table(**extra)
    apply_flags(recipe, flags)
    return parse_recipe(recipe)


def test_flags_override_the_file_and_the_defaults(tmp_path):
    recipe = parsed("--algorithm.clip-high", "0.28", "--seed=3", "--algorithm.beta", "{start = 0.1, end = 0.0}")
    assert recipe.algorithm.clip_high == 0.28
    assert recipe.seed == 3
    assert recipe.algorithm.beta.start == 0.1
    assert recipe.algorithm.group_size == 8


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--algorithm.clip-hihg", "0.28"], ["algorithm.clip_hihg", "did you mean 'clip_high'"]),
        (["--algorithm.group-size", "many"], ["algorithm.group_size", "many"]),
        (["--algorithm.group-size", "0"], ["algorithm.group_size", "greater than or equal to 1", "0"]),
        (["--algorithm.objective", "ppp"], ["objective", "ppp", "known: cispo, gspo, ppo"]),
        (["--policy.kind", "selectr"], ["policy", "selectr", "did you mean 'selector'"]),
        (["--algorithm.group-size", "1"], ["group_size = 1", "no baseline"]),
        (["--optimizer.learning-rate", "{start = 1, ende = 2}"], ["ende", "did you mean 'end'"]),
        (["--algorithm.beta"], ["no value"]),
        (["algorithm.beta", "1"], ["unexpected argument"]),
        (["--seed.x", "1"], ["seed"]),
    ],
)
def test_bad_flags_name_the_key_the_value_and_the_cure(flags, words):
    with pytest.raises(ConfigError) as caught:
        parsed("--seed", "1", *flags)
    for word in words:
        assert word in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ({"name": "a"}, ["exactly one"]),
        ({"name": "a", "steps": 3, "epochs": 1.0}, ["exactly one"]),
        ({"name": "a", "steps": 3, "algorithm": {"bta": 1.0}}, ["stages.0.algorithm.bta", "beta"]),
        ({"name": "a", "steps": 3, "method": "rce", "source": "policy"}, ["stored actions"]),
        ({"name": "a", "steps": 3, "metod": "rce"}, ["stages.0.metod", "did you mean 'method'"]),
    ],
)
def test_bad_stages(stage, words):
    with pytest.raises(ConfigError) as caught:
        parsed(stages=[stage])
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_two_stages_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="different names"):
        parsed(stages=[{"name": "a", "steps": 1}, {"name": "a", "steps": 1}])


def test_stage_tables_override_only_what_they_name():
    stage = {"name": "a", "steps": 1, "algorithm": {"beta": 0.5}, "optimizer": {"grad_clip": 2.0}}
    resolved = parsed("--algorithm.group-size", "4", stages=[stage]).resolved_stages()[0]
    assert (resolved.algorithm.beta, resolved.algorithm.group_size, resolved.optimizer.grad_clip) == (0.5, 4, 2.0)


def test_a_dumped_recipe_reads_back_equal(tmp_path):
    recipe = parsed("--algorithm.beta", "{start = 0.1, end = 0.0}", stages=[{"name": "a", "steps": 2}])
    (tmp_path / "config.toml").write_text(dump_recipe(recipe))
    assert load_recipe(tmp_path / "config.toml") == recipe


def test_missing_and_broken_files(tmp_path):
    with pytest.raises(DataError, match="no recipe"):
        load_recipe(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("a = [")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_recipe(tmp_path / "bad.toml")


@pytest.mark.parametrize(
    ("line", "cure"),
    [
        ("beta: 0.1", "a key and its value stand around =, not :"),
        ("beta = .1", "a number has a digit before its point: 0.1"),
        ("x = True", "true and false are written small"),
        ("x = None", "a setting that is not given is left out"),
        ("objective = ppo", 'a text stands in quotes: "..."'),
        ("objective = “ppo”", 'quotes are straight ones: "..."'),
        ("x ＝ 1", "signs are those of ASCII: = , [ ]"),
        ("x =", "a value is missing after ="),
        ("seed = 2", "it stands above already: give it once"),
        ("x = 0.1.2", "line 2 is: x = 0.1.2"),
    ],
)
def test_a_line_that_is_no_toml_is_shown_with_what_is_meant(line, cure, tmp_path):
    (tmp_path / "bad.toml").write_text(f"seed = 1\n{line}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="not valid TOML") as caught:
        load_recipe(tmp_path / "bad.toml")
    assert cure in caught.value.cure
    assert "line 2" in caught.value.cure


def test_a_recipe_with_a_byte_order_mark_is_read_and_one_in_another_encoding_told_so(tmp_path):
    text = dump_recipe(parsed())
    (tmp_path / "marked.toml").write_bytes(text.encode("utf-8-sig"))
    assert load_recipe(tmp_path / "marked.toml") == parsed()
    (tmp_path / "gbk.toml").write_bytes('name = "实验"'.encode("gbk"))
    with pytest.raises(ConfigError) as caught:
        load_recipe(tmp_path / "gbk.toml")
    assert "save it as UTF-8" in caught.value.cure


@pytest.mark.parametrize(
    ("stage", "flag", "cure"),
    [
        ({"steps": 2}, "--training.steps", "--stages.0.steps"),
        ({"epochs": 2}, "--training.steps", "--stages.0.epochs"),
        ({"steps": 2, "algorithm": {"beta": 0.1}}, "--algorithm.beta", "--stages.0.algorithm.beta"),
    ],
)
def test_a_flag_that_no_stage_follows_is_refused(stage, flag, cure, tmp_path):
    recipe = parse_recipe(table(stages=[{"name": "a", **stage}]))
    (tmp_path / "r.toml").write_text(dump_recipe(recipe))
    with pytest.raises(ConfigError, match="would change nothing") as caught:
        load_recipe(tmp_path / "r.toml", [flag, "3"])
    assert cure in caught.value.cure


def test_a_flag_that_one_stage_follows_is_taken(tmp_path):
    stages = [{"name": "a", "steps": 2, "algorithm": {"beta": 0.1}}, {"name": "b", "steps": 2}]
    (tmp_path / "r.toml").write_text(dump_recipe(parse_recipe(table(stages=stages))))
    made = load_recipe(tmp_path / "r.toml", ["--algorithm.beta", "0.3"]).resolved_stages()
    assert [stage.algorithm.beta for stage in made] == [0.1, 0.3]


STAGED_REWARDS = """[policy]
kind = "selector"
features = 4
[task]
kind = "stored_candidates"
path = "x.json"
features = "t.npy"
[[stages]]
name = "a"
method = "supervised"
steps = 3
task = {{ reward = {{ {} }} }}
[[stages]]
name = "b"
steps = 3
task = {{ reward = {{ {} }} }}
"""


@pytest.mark.parametrize("flag", [["--task.reward.soft", "0.123"], ["--task.reward={ soft = 0.123 }"]])
def test_a_flag_into_a_table_that_stages_add_to_is_taken(flag, tmp_path):
    (tmp_path / "r.toml").write_text(STAGED_REWARDS.format('mode = "hard_only"', 'mode = "hard_plus_soft"'))
    rewards = [stage.task.reward for stage in load_recipe(tmp_path / "r.toml", flag).resolved_stages()]
    assert [(r.mode, r.soft) for r in rewards] == [("hard_only", 0.123), ("hard_plus_soft", 0.123)]


def test_a_flag_into_a_table_is_refused_where_each_stage_has_that_key(tmp_path):
    (tmp_path / "r.toml").write_text(STAGED_REWARDS.format("soft = 0.1", "soft = 0.2"))
    with pytest.raises(ConfigError, match=r"each \[\[stages\]\] has its own reward.soft") as caught:
        load_recipe(tmp_path / "r.toml", ["--task.reward.soft", "0.3"])
    assert "--stages.0.task.reward.soft" in caught.value.cure


@pytest.mark.parametrize(
    ("own", "path", "held"),
    [
        ({"reward": 0.5}, "task.reward.soft", "reward"),  # no table: it takes the place of the recipe's
        ({"reward": {"function": "r.py:f"}}, "task.reward.soft", "reward"),
        ({"reward": {"kind": "other"}}, "task.reward.soft", "reward"),
        ({"reward": {"inner": {"a": 1}}}, "task.reward.inner.b", "reward.inner"),  # merged one level deep
        ({"reward": {"soft": 1}}, "task.reward", "reward"),
        ({"reward": {"mode": "x"}}, "task.reward", None),
        ({"reward": {"mode": "x"}}, "task.reward.soft", None),
        ({}, "task.reward.soft", None),
        ({"reward": {"soft": 1}}, "training.reward.soft", None),
    ],
)
def test_what_a_stage_has_in_the_place_of_a_flag(own, path, held):
    from anygrpo.recipe.load import _held

    recipe = {"task": {"reward": {"soft": 2}}}
    assert _held(recipe, {"task": own, "training": own}, path.split(".")) == held


def test_the_config_room_starts_without_torch():
    import subprocess
    import sys

    code = "import sys, anygrpo.recipe.load, anygrpo.metrics, anygrpo.doctor; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("given", ["none", "null"])
def test_no_value_is_said_by_name_and_survives_the_run_folder(given, tmp_path):
    recipe = parsed("--optimizer.grad-clip", given, stages=[{"name": "a", "steps": 1}])
    assert recipe.optimizer.grad_clip is None
    (tmp_path / "config.toml").write_text(dump_recipe(recipe))
    again = load_recipe(tmp_path / "config.toml")
    assert again == recipe
    assert again.resolved_stages()[0].optimizer.grad_clip is None


@pytest.mark.parametrize("given", [None, "none"])
def test_a_stage_may_take_a_value_away(given, tmp_path):
    recipe = parsed(stages=[{"name": "a", "steps": 1, "optimizer": {"grad_clip": given}}])
    (tmp_path / "config.toml").write_text(dump_recipe(recipe))
    for one in (recipe, load_recipe(tmp_path / "config.toml")):
        assert one.resolved_stages()[0].optimizer.grad_clip is None


def test_a_key_that_needs_a_value_refuses_none():
    with pytest.raises(ConfigError, match="group_size"):
        parsed("--algorithm.group-size", "none")


def test_a_recipe_that_holds_itself_or_too_much_is_refused():
    endless: dict = table()
    endless["task"]["itself"] = endless
    with pytest.raises(ConfigError, match="or itself"):
        parse_recipe(endless)
    with pytest.raises(ConfigError, match="more than"):
        parse_recipe(table() | {"name": [0] * 100_001})


def test_none_in_a_list_is_refused_before_a_run_begins():
    with pytest.raises(ConfigError, match=r"policy\.arguments\.sizes holds None in a list"):
        parsed(policy={"kind": "python", "function": "f.py:f", "arguments": {"sizes": [1, None]}})


NUMBERS = [
    (["--optimizer.learning-rate", "nan"], ["optimizer.learning_rate", "finite", "nan"]),
    (["--optimizer.learning-rate", "-1.0"], ["optimizer.learning_rate", "at least 0", "-1.0"]),
    (["--optimizer.learning-rate", "1e38"], ["optimizer.learning_rate", "at most 1e+06", "1e+38"]),
    (["--optimizer.learning-rate", "fast"], ["optimizer.learning_rate = 'fast' is not a number"]),
    (["--optimizer.learning-rate", "{start = 'x'}"], ["optimizer.learning_rate.start = 'x' is not a number"]),
    (["--optimizer.learning-rate", "{start = 1.0, end = -2}"], ["optimizer.learning_rate", "reaches -2"]),
    (["--optimizer.learning-rate", "{kind = 'exponential', start = 1.0}"], ["learning_rate", "1.0 to 0.0", "one sign"]),
    (["--optimizer.learning-rate", "{kind = 'step', start = 1.0}"], ["learning_rate", "milestones = []"]),
    (["--optimizer.betas", "[0.9, 1.0]"], ["optimizer.betas.1", "less than 1"]),
    (["--algorithm.temperature", "{start = 1.0}"], ["algorithm.temperature", "above 0", "reaches 0"]),
    (["--algorithm.beta", "-0.1"], ["algorithm.beta", "at least 0"]),
    (["--algorithm.clip-high", "true"], ["algorithm.clip_high = True is not a number"]),
    (["--algorithm.group-size", "'8'"], ["algorithm.group_size = '8' is not a number"]),
    (["--algorithm.std-floor", "inf"], ["algorithm.std_floor", "finite"]),
    (["--algorithm.kl-low", "0.5"], ["kl_low = 0.5 is not below kl_high = 0.1"]),
    (["--algorithm.filters", "[{kind = 'top_k_by_reward', k = 1}]"], ["algorithm.filters.0.k", "at least 2"]),
    (["--algorithm.lambda-pg", "0.0"], ["all 0", "nothing is trained"]),
    (["--algorithm.advantage", "pass_at_k", "--algorithm.pass-k", "8"], ["pass_k = 8 of a group of 8"]),
    (
        ["--algorithm.beta", "{start = 0.1}", "--algorithm.kl-controller", "band"],
        ["beta follows a schedule", 'kl_controller = "band"'],
    ),
    (["--policy", "{kind = 'causal_lm', model = 'x', top_p = 0.0}"], ["policy.top_p", "above 0 and at most 1"]),
    (["--policy", "{kind = 'causal_lm', model = 'x', min_p = 2}"], ["policy.min_p", "at most 1"]),
    (["--policy", "{kind = 'causal_lm', model = 'x', top_k = -3}"], ["policy.top_k", "at least 0"]),
    (["--policy", "{kind = 'causal_lm', model = 'x', temperature = 0}"], ["policy.temperature", "above 0"]),
    (["--policy", "{kind = 'causal_lm', model = 'x', max_turns = 2}"], ["policy: max_turns = 2"]),
    (
        ["--task", "{kind = 'jsonl', path = 'x', rewards = [{function = 'x.py:f', weight = 'a'}]}"],
        ["task.rewards.0.weight = 'a' is not a number"],
    ),
    (
        ["--task", "{kind = 'jsonl', path = 'x', rewards = [{kind = 'function'}]}"],
        ["task.rewards.0.function is missing"],
    ),
    (
        ["--task", "{kind = 'jsonl', path = 'x', rewards = [{kind = 'regex', pattern = '('}]}"],
        ["task.rewards.0: pattern '('"],
    ),
    (["--task", "{kind = 'jsonl', path = 'x', rewards = []}"], ["task.rewards", "at least 1"]),
    (
        ["--stages", "[{name = 'a', steps = 1, algorithm = {clip_high = true}}]"],
        ["stages.0.algorithm.clip_high = True is not a number"],
    ),
]


@pytest.mark.parametrize(("flags", "words"), NUMBERS)
def test_numbers_that_nothing_can_be_done_with_are_refused_in_one_sentence(flags, words):
    with pytest.raises(ConfigError) as caught:
        parsed(*flags)
    said = str(caught.value)
    assert all(word in said for word in words), said
    assert ";" not in said
    assert "function-after" not in said
    assert "a table" not in said


@pytest.mark.parametrize(
    "flags",
    [
        ["--algorithm.lambda-pg", "0.0", "--algorithm.lambda-supervised", "{start = 0.0, end = 1.0}"],
        ["--algorithm.entropy-coef", "-0.01"],
        ["--algorithm.temperature", "none"],
        ["--optimizer.learning-rate", "{kind = 'step', start = 1e-3, milestones = [3], factor = 0.1}"],
        ["--policy", "{kind = 'causal_lm', model = 'x', threads = 'auto', top_p = 1, min_p = 0, temperature = 0.5}"],
    ],
)
def test_numbers_that_can_be_meant_are_taken(flags):
    parsed(*flags)


def test_a_history_holds_more_than_a_group():
    with pytest.raises(ConfigError, match="history_size = 16 holds no past beside groups of 32"):
        parse_recipe(table(algorithm={"advantage": "history", "group_size": 32}))
    parse_recipe(table(algorithm={"advantage": "history", "group_size": 32, "history_size": 128}))
    parse_recipe(table(algorithm={"advantage": "zscore", "group_size": 32}))


@pytest.mark.parametrize("form", ["'own.py:f'", "{function = 'own.py:f'}", "{kind = 'own.py:f'}"])
@pytest.mark.parametrize(
    ("policy", "task"),
    [
        ("{kind = 'causal_lm', model = 'smollm2'}", "kind = 'jsonl', path = 'x.jsonl'"),
        ("{kind = 'diffusion', model = 'x'}", "kind = 'images', path = 'x.jsonl'"),
        ("{kind = 'mdm', model = 'x', text = 'x'}", "kind = 'humanml3d', path = 'x'"),
    ],
)
def test_a_reward_of_ones_own_can_be_written_shortly(tmp_path, policy, task, form):
    (tmp_path / "r.toml").write_text(f"policy = {policy}\ntask = {{{task}, rewards = [{form}]}}\n")
    (reward,) = load_recipe(tmp_path / "r.toml", []).task.rewards
    assert (reward.kind, reward.function) == ("function", "own.py:f")
