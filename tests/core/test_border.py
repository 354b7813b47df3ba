"""What a user's own policy or task returns wrongly is told by class, method, shape found and shape wanted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint
from toys import Bandit, BestArm

import anygrpo
from anygrpo.cli.main import main
from anygrpo.core import border, contract, task_border, user_code
from anygrpo.core.rollout import Rollout
from anygrpo.core.task import Scores
from anygrpo.errors import ConfigError
from anygrpo.train.folder import read_rows

ROOT = Path(__file__).parents[2]
HEAD = """
from dataclasses import replace
import torch, anygrpo
from toys import Bandit, BestArm
from anygrpo import Evaluation, Rollout
"""
FAULTS = {
    "sample drops its last axis": (
        "def sample(self, p, g, s):\n        r = super().sample(p, g, s)\n"
        "        return Rollout.of(r.samples, r.log_probs[..., 0], r.mask[..., 0])",
        r"Own\.sample returned log_probs \[2, 3\].*\[P, G, T\] = \[2, 3, T\]",
    ),
    "sample swaps prompts and group": (
        "def sample(self, p, g, s):\n        r = super().sample(p, g, s)\n"
        "        return Rollout.of(r.samples, r.log_probs.transpose(0, 1), r.mask.transpose(0, 1))",
        r"Own\.sample returned log_probs \[3, 2, 1\]; prompts and group are swapped",
    ),
    "samples have another order": (
        "def sample(self, p, g, s):\n        r = super().sample(p, g, s)\n"
        "        x = r.samples | {'x': r.samples['x'].transpose(0, 1)}\n"
        "        return Rollout.of(x, r.log_probs, r.mask)",
        r"Own\.sample returned samples\['x'\] \[3, 2, 5\]",
    ),
    "sample returns no rollout": ("def sample(self, p, g, s): return 1", r"Own\.sample returned an int"),
    "sample raises": (
        "def sample(self, p, g, s): return p[0]['y']",
        r"Own\.sample raised KeyError: 'y' \(own\.py:\d+\)",
    ),
    "decode flattens": (
        "def decode(self, samples): return super().decode(samples)[0]",
        r"Own\.decode returned 3 rows of \[1, 1, 1\].*2 lists of 3 outputs",
    ),
    "evaluate drops the last axis": (
        "def evaluate(self, x, t, want=frozenset()):\n        e = super().evaluate(x, t, want)\n"
        "        return Evaluation(e.log_probs[:, 0])",
        r"Own\.evaluate returned log_probs \[6\] for 6 rows and a slice of 1.*\[n, t\] = \[6, 1\]",
    ),
    "evaluate returns a tensor": (
        "def evaluate(self, x, t, want=frozenset()): return super().evaluate(x, t).log_probs",
        r"Own\.evaluate returned a Tensor.*anygrpo\.Evaluation",
    ),
    "a loss for each decision": (
        "def evaluate(self, x, t, want=frozenset()):\n        e = super().evaluate(x, t, want)\n"
        "        return Evaluation(e.log_probs, losses={'supervised': e.log_probs})",
        r"losses\['supervised'\] \[6, 1\].*\[n\] = \[6\]",
    ),
    "log-probs are whole numbers": (
        "def sample(self, *a): r = super().sample(*a); return replace(r, log_probs=r.log_probs.long())",
        r"Own\.sample returned log_probs of torch\.int64",
    ),
    "a log-prob is nan": (
        "def sample(self, *a): r = super().sample(*a); return replace(r, log_probs=r.log_probs * torch.nan)",
        r"Own\.sample returned log_probs that are not finite",
    ),
    "the mask is of floats": (
        "def sample(self, *a): r = super().sample(*a); return replace(r, mask=r.mask.float())",
        r"Own\.sample returned .*mask of torch\.float32",
    ),
    "no gradient": (
        "def evaluate(self, *a): e = super().evaluate(*a); return replace(e, log_probs=e.log_probs.detach())",
        r"Own\.evaluate returned log_probs without a gradient",
    ),
    "trainable is a list": (
        "def trainable(self): return list(super().trainable().parameters())",
        r"Own\.trainable returned a list.*torch\.nn\.Module",
    ),
    "log-probs are numpy's": (
        "def sample(self, *a): r = super().sample(*a); return replace(r, log_probs=r.log_probs.numpy())",
        r"Own\.sample returned log_probs as a ndarray.*a Tensor",
    ),
    "valid is of floats": (
        "def sample(self, *a): r = super().sample(*a); return replace(r, valid=torch.ones(r.valid.shape))",
        r"Own\.sample returned valid of torch\.float32.*bool",
    ),
    "nothing is decided": (
        "def sample(self, *a):\n        r = super().sample(*a)\n"
        "        return Rollout.of(r.samples, r.log_probs[..., :0], r.mask[..., :0])",
        r"Own\.sample returned no decision",
    ),
    "the process is ended": (
        "def sample(self, *a): raise SystemExit(0)",
        r"Own\.sample raised SystemExit: 0 \(own\.py:\d+\)",
    ),
    "a number in place of log-probs": (
        "def evaluate(self, x, t, want=frozenset()): return Evaluation(0.5)",
        r"Own\.evaluate returned log_probs as a float",
    ),
    "log-probs scored again are nan": (
        "def evaluate(self, *a): e = super().evaluate(*a); return replace(e, log_probs=e.log_probs * torch.nan)",
        r"Own\.evaluate returned log_probs that are not finite",
    ),
    "evaluate takes no `want`": (
        "def evaluate(self, x, t): return super().evaluate(x, t)",
        r"Own\.evaluate raised TypeError",
    ),
    "losses are a list": (
        "def evaluate(self, *a): e = super().evaluate(*a); return replace(e, losses=[e.log_probs])",
        r"Own\.evaluate returned losses as a list.*a dict",
    ),
    "entropy is a number": (
        "def evaluate(self, *a): e = super().evaluate(*a); return replace(e, entropy=0.3)",
        r"Own\.evaluate returned entropy as a float",
    ),
    "the reference cannot be entered": (
        "def reference(self): return None",
        r"Own\.reference returned a NoneType.*a context manager",
    ),
    "the reference raises": ("def reference(self): raise KeyError('ref')", r"Own\.reference raised KeyError"),
    "time_chunk is a text": ("time_chunk = 'two'", r"Own\.time_chunk is 'two'.*None or a whole number"),
    "blocks of no rows": ("block_rows = 0", r"Own\.block_rows is 0.*above 0"),
    "clip is a text": ("clip = 'narrow'", r"Own\.clip is 'narrow'.*ClipDefaults"),
    "greedy is missing": ("greedy = None", r"Own\.greedy is None, not a method"),
    "log-probs have no values": (
        "def sample(self, *a): r = super().sample(*a); return replace(r, log_probs=r.log_probs.to('meta'))",
        r"Own\.sample returned log_probs of device=meta.*a dense tensor",
    ),
    "log-probs are complex": (
        "def evaluate(self, *a): e = super().evaluate(*a); return replace(e, log_probs=e.log_probs + 0j)",
        r"Own\.evaluate returned log_probs of torch\.complex64",
    ),
    "reasons are a list": (
        "def sample(self, *a): r = super().sample(*a); return replace(r, reasons=[1])",
        r"Own\.sample returned reasons as a list.*a dict",
    ),
    "decode gives an array": (
        "def decode(self, samples): return torch.tensor(super().decode(samples)).numpy()",
        r"Own\.decode returned a ndarray.*2 lists of 3 outputs",
    ),
    "another module is trained": (
        "def trainable(self): return torch.nn.Linear(2, 2)",
        r"Own\.evaluate returned log_probs whose gradient reaches no weight of trainable\(\)",
    ),
    "saved_names is a number": ("def saved_names(self): return 3", r"Own\.saved_names returned an int.*a dict"),
    "greedy draws a group": (
        "def greedy(self, prompts): return super().sample(prompts, 4, 0)",
        r"Own\.greedy returned log_probs \[2, 4, 1\].*\[2, 1, T\]",
    ),
}
TASK_FAULTS = {
    "prompts of columns": (
        "def prompts(self, step, count):\n"
        "        class Columns:\n            def __len__(self): return count\n"
        "            def __getitem__(self, name): return {}[name]\n        return Columns()",
        r"Mine\.prompts returned a Columns without items by number \(KeyError",
    ),
    "prompts are a dict": (
        "def prompts(self, step, count): return dict.fromkeys(range(count))",
        r"Mine\.prompts returned a dict.*a list of",
    ),
    "held_out raises": ("def held_out(self): return [][3]", r"Mine\.held_out raised IndexError"),
    "too few prompts": (
        "def prompts(self, step, count): return super().prompts(step, 1)",
        r"Mine\.prompts returned a list of 1",
    ),
    "held_out is a tensor": ("def held_out(self): return torch.zeros(3)", r"Mine\.held_out returned a Tensor"),
    "no scores": ("def score(self, prompts, outputs): return [1.0]", r"Mine\.score returned a list.*anygrpo\.Scores"),
    "scores of numpy": (
        "def score(self, prompts, outputs): return anygrpo.Scores(torch.zeros(len(outputs), 1).numpy())",
        r"Mine\.score returned rewards as a ndarray.*float tensor \[P, G\] = \[200, 1\]",
    ),
    "valid is no bool": (
        "def score(self, prompts, outputs): r = torch.zeros(len(outputs), len(outputs[0])); "
        "return anygrpo.Scores(r, valid=r + 1)",
        r"Mine\.score returned valid of torch\.float32.*bool",
    ),
    "a component is a list": (
        "def score(self, prompts, outputs): r = torch.zeros(len(outputs), len(outputs[0])); "
        "return anygrpo.Scores(r, {'x': r.tolist()})",
        r"Mine\.score returned components\['x'\] as a list",
    ),
    "components are a list": (
        "def score(self, prompts, outputs): r = torch.zeros(len(outputs), len(outputs[0])); "
        "return anygrpo.Scores(r, [r])",
        r"Mine\.score returned components as a list.*a dict",
    ),
    "scores are complex": (
        "def score(self, prompts, outputs): r = torch.zeros(len(outputs), len(outputs[0])); "
        "return anygrpo.Scores(r.to(torch.complex64))",
        r"Mine\.score returned rewards of torch\.complex64",
    ),
    "scores are sparse": (
        "def score(self, *a): s = super().score(*a); return replace(s, rewards=s.rewards.to_sparse())",
        r"Mine\.score returned rewards of torch\.sparse_coo",
    ),
    "a component is missing": (
        "def score(self, *a): s = super().score(*a); return replace(s, components={'hit': None})",
        r"Mine\.score returned components\['hit'\] as a NoneType",
    ),
    "weights are a list": (
        "def score(self, *a): s = super().score(*a); return replace(s, weights=[1])",
        r"Mine\.score returned weights \[1\].*a dict of name -> finite number",
    ),
    "reasons of no sample": (
        "def score(self, *a): s = super().score(*a); return replace(s, reasons={(999, 0): 'b'})",
        r"Mine\.score returned reasons \{\(999, 0\): 'b'\}.*\(p, g\) -> why, p below 200",
    ),
    "parts of another shape": (
        "def score(self, *a): s = super().score(*a); return replace(s, parts=torch.zeros(3))",
        r"Mine\.score returned parts \[3\].*\[P, G, K\] = \[200, 1, K\]",
    ),
    "measures are a list": ("def measure(self, *a): return [1]", r"Mine\.measure returned a list.*a dict of name"),
    "a measure is a tensor": (
        "def measure(self, *a): return {'eval/x': torch.zeros(3)}",
        r"Mine\.measure returned 'eval/x' as a Tensor",
    ),
    "size is a word": (
        "def __init__(self, *a): super().__init__(*a); self.size = 'many'",
        r"Mine\.size is 'many'.*a whole number",
    ),
    "lowest_reward is nan": ("lowest_reward = float('nan')", r"Mine\.lowest_reward is nan.*a finite number"),
    "prepare takes nothing": ("def prepare(self): pass", r"Mine\.prepare raised TypeError"),
    "score takes outputs alone": ("def score(self, outputs): return 1", r"Mine\.score cannot be called"),
    "success is a number": ("success = 1.0", r"Mine\.success is 1\.0"),
    "scores of another shape": (
        "def score(self, prompts, outputs): return anygrpo.Scores(torch.zeros(len(outputs)))",
        r"score returned rewards \[200\].*\[P, G\] = \[200, 1\]",
    ),
}


def recipe(folder, own: str = "pass", mine: str = "pass") -> list[str]:
    (folder / "own.py").write_text(
        f"{HEAD}\nclass Own(Bandit):\n    {own}\ndef own(seed): return Own(seed)\nclass Mine(BestArm):\n    {mine}\n"
    )
    path = folder / "recipe.toml"
    path.write_text(f"""
policy = {{ kind = "python", function = "{folder}/own.py:own" }}
task = {{ kind = "python", function = "{folder}/own.py:Mine" }}
algorithm = {{ group_size = 4 }}
training = {{ steps = 2 }}
doctor = {{ mode = "off" }}
""")
    return ["train", str(path), "--folder", str(folder / "run"), "--quiet"]


def named(arguments: list[str], message: str, capsys, monkeypatch) -> None:
    """The command ends with 2 and says this; in Chinese no English words stand beside the user's names."""
    assert main(arguments) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "internal error" not in said
    assert re.search(message, said), said
    monkeypatch.setenv("ANYGRPO_LANG", "zh")
    assert main(arguments) == 2
    said = " ".join(capsys.readouterr().err.split())
    theirs = r"抛出 .*?(?= ->)|不能调用：.*?(?= ->)|class \w+|def \w+"  # what Python itself says, and code
    own = re.sub(theirs, "", said)
    assert re.search(r"[\u4e00-\u9fff]", own)
    assert not re.search(r"(?<![\w./:'])[a-z]{2,} [a-z]{2,}\b", own), said


@pytest.mark.parametrize(("own", "message"), FAULTS.values(), ids=FAULTS)
def test_a_policys_fault_is_named(tmp_path, capsys, monkeypatch, own, message):
    named(recipe(tmp_path, own), message, capsys, monkeypatch)


@pytest.mark.parametrize(("mine", "message"), TASK_FAULTS.values(), ids=TASK_FAULTS)
def test_a_tasks_fault_is_named(tmp_path, capsys, monkeypatch, mine, message):
    named(recipe(tmp_path, mine=mine), message, capsys, monkeypatch)


def test_a_decision_scored_otherwise_alone_than_among_all_is_named():
    Speller = user_code.load(f"{ROOT}/examples/own_policy.py:Speller")

    class Own(Speller):
        time_chunk = 2

        def evaluate(self, samples, times, want=frozenset()):
            return super().evaluate(samples, slice(0, times.stop - times.start), want)  # always from the first letter

    class Whole(Own):
        time_chunk = None  # the loop never asks for a slice of it

    class Noisy(Speller):
        time_chunk = 2  # that its scores do not repeat is another fault: `check` says so

        def evaluate(self, samples, times, want=frozenset()):
            made = super().evaluate(samples, times, want)
            return replace(made, log_probs=made.log_probs + torch.rand_like(made.log_probs))

    with pytest.raises(ConfigError, match=r"Own\.evaluate returned decision 2 alone scored .* nats apart"):
        border.check_policy(Own(), [0, 1], greedy=False)
    for sound in (Speller(), Whole(), Noisy()):
        border.check_policy(sound, [0, 1], greedy=True)


def checkpointed(reentrant: bool, inside: str = "net") -> Bandit:
    """A policy whose weights all lie inside a checkpoint."""

    class Own(Bandit):
        spare = torch.nn.Linear(5, 5)

        def _log_probs(self, x):
            x = x.clone().requires_grad_(torch.is_grad_enabled())  # what a model with frozen embeddings does
            return checkpoint(getattr(self, inside), x, use_reentrant=reentrant).log_softmax(-1)

    return Own(0)


@pytest.mark.parametrize("reentrant", [True, False])
def test_weights_inside_a_checkpoint_are_reached_and_keep_their_gradients(reentrant):
    prompts = BestArm().prompts(0, 2)
    policy = checkpointed(reentrant)
    policy.net.weight.grad = held = torch.full((5, 5), 3.0)
    border.check_policy(policy, prompts, greedy=False)
    assert policy.net.weight.grad is held
    assert torch.equal(held, torch.full((5, 5), 3.0))
    assert policy.net.bias.grad is None
    with pytest.raises(ConfigError, match=r"Own\.evaluate returned log_probs whose gradient reaches no weight"):
        border.check_policy(checkpointed(reentrant, "spare"), prompts, greedy=False)


def test_an_optimizer_that_steps_in_the_backward_pass_is_not_set_off():
    policy = checkpointed(reentrant=True)
    stepped: list[torch.Tensor] = []
    policy.net.weight.register_post_accumulate_grad_hook(stepped.append)
    border.check_policy(policy, BestArm().prompts(0, 2), greedy=False)
    assert not stepped


def test_a_fault_that_shows_later_names_the_users_line(tmp_path, capsys):
    mine = "def score(self, prompts, outputs):\n        return prompts[0]['nothing']"
    assert main(recipe(tmp_path, mine=mine)) == 2
    said = capsys.readouterr().err
    assert "own.py:" in said
    assert "in score: KeyError: 'nothing'" in said


LATER = {
    "no prompts": (
        "mine",
        "def prompts(self, s, c): return super().prompts(s, c) if s < 1 or s > 9 else None",
        "prompts",
    ),
    "a lack of prompts": ("mine", "def prompts(self, s, c): return super().prompts(s, c) if s != 1 else ()", "prompts"),
    "no scores": ("mine", "def score(self, p, o): return super().score(p, o) if later() < 4 else None", "score"),
    "no outputs": ("own", "def decode(self, x): return super().decode(x) if later() < 8 else None", "decode"),
    "no evaluation": ("own", "def evaluate(self, *a): return super().evaluate(*a) if later() < 6 else 3", "evaluate"),
    "an error": ("own", "def sample(self, *a): return super().sample(*a) if later() < 4 else 1 / 0", "own.py:"),
}


@pytest.mark.parametrize(("whose", "code", "names"), LATER.values(), ids=LATER)
def test_what_breaks_while_training_ends_it_with_4_and_the_users_name(tmp_path, capsys, whose, code, names):
    arguments = recipe(tmp_path, **{whose: code})
    path = tmp_path / "own.py"
    count = "import itertools\nnumbers = itertools.count(1)\ndef later(): return next(numbers)\n"
    path.write_text(path.read_text().replace("\nclass Own", f"{count}\nclass Own"))
    assert main([*arguments, "--training.steps", "5"]) == 4
    said = capsys.readouterr().err
    assert "internal error" not in said
    assert names in said, said
    assert "step " in said


def test_a_sound_policy_trains_and_the_trial_leaves_no_trace(tmp_path):
    before = torch.random.get_rng_state()
    assert main(recipe(tmp_path)) == 0
    torch.random.set_rng_state(before)


NUMPY = """
    lowest_reward = np.float32(-1)
    def __init__(self, *a): super().__init__(*a); self.size = np.int64(64)
    def prompts(self, step, count): return tuple(super().prompts(step, count))
    def measure(self, *a): return {"eval/mine": np.float32(0.5), "eval/yours": torch.tensor(2.0)}
    def score(self, *a):
        s = super().score(*a)
        valid = torch.ones_like(s.rewards, dtype=torch.bool)
        valid[0, 0] = False
        reasons = {(np.int64(0), np.int64(0)): ValueError("why")}
        return replace(s, valid=valid, reasons=reasons, weights={"hit": np.float32(1)})
"""


def test_numbers_of_numpy_and_tuples_are_as_good_as_pythons(tmp_path):
    arguments = recipe(tmp_path, mine=NUMPY.strip())
    path = tmp_path / "own.py"
    path.write_text(f"import numpy as np\n{path.read_text()}")
    assert main([*arguments, "--evaluation.every", "1"]) == 0
    rows, _ = read_rows(tmp_path / "run" / "metrics.jsonl")
    measured = [row for row in rows if "eval/mine" in row]
    assert measured
    assert {(row["eval/mine"], row["eval/yours"]) for row in measured} == {(0.5, 2.0)}


def test_reasons_and_weights_are_kept_as_plain_numbers_and_words():
    one = torch.zeros(1, 2, 1)
    scores = Scores(one[..., 0], reasons={(np.int64(0), np.int64(1)): KeyError("x")}, weights={"a": np.float32(0.5)})  # type: ignore[dict-item]
    made = Rollout.of({}, one, one.bool()).scored(scores)
    assert made.reasons == {(0, 1): "'x'"}
    assert made.weights == {"a": 0.5}
    assert [type(x) for x in (*next(iter(made.reasons)), made.weights["a"])] == [int, int, float]


def test_what_a_factory_returns_derives_from_the_contract():
    class Half:
        def prompts(self, step, count):
            return []

    with pytest.raises(ConfigError, match=r"does not derive from anygrpo\.Task, and lacks held_out, score"):
        contract.instance(Half(), anygrpo.Task, "mine.py:Half")


def test_a_contract_that_is_not_filled_is_named_before_anything_runs(tmp_path):
    (tmp_path / "own.py").write_text("import anygrpo\nclass P(anygrpo.Policy):\n    def decode(self, x): return x\n")
    recipe = {"policy": {"kind": "python", "function": f"{tmp_path}/own.py:P"}}
    recipe |= {"task": {"kind": "python", "function": f"{tmp_path}/own.py:P"}, "folder": str(tmp_path / "run")}
    with pytest.raises(ConfigError, match=r"does not define evaluate, sample, trainable"):
        anygrpo.new_run(anygrpo.parse_recipe(recipe))


def test_what_was_found_and_wanted_is_said_in_chinese(monkeypatch):
    monkeypatch.setenv("ANYGRPO_LANG", "zh")
    with pytest.raises(
        ConfigError, match=r"int\.decode 返回了 2 行，每行 \[1, 1\] 个\n  -> 应当是 2 个列表，每个 3 个输出"
    ):
        border.check_outputs(1, [[0], [0]], (2, 3))
    with pytest.raises(ConfigError, match=r"int\.decode 返回了 一个 int"):
        border.check_outputs(1, 7, (2, 3))


def test_held_out_prompts_may_be_made_as_they_are_asked_for() -> None:
    class Lazy(Sequence):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, place):
            return list(range(3))[place]

    class Mine:
        def held_out(self) -> Lazy:
            return Lazy()

    assert task_border.held_out(Mine())[:2] == [0, 1]  # type: ignore[arg-type]
