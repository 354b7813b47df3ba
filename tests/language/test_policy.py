"""The causal language model as a policy: which log-probs are taken, what is asked of the engine, in small."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import tiny_lm
import torch

from anygrpo.core.task import Stored
from anygrpo.errors import DataError
from anygrpo.language import agreement
from anygrpo.language import policy as module
from anygrpo.language.engine.external import SyncProbe

PROMPTS = [{"prompt": "w1 w2"}, {"prompt": "w3 w4 w5"}]


@pytest.fixture
def policy():
    made = tiny_lm.policy(0)
    made._unproved = False
    return made


def asked(policy):
    """Counts of generations and of rows scored again."""
    seen = {"generate": [], "rescore": 0}
    generate, rescore = policy.engine.generate, policy.rescore

    def drawn(prompts, group, sampling, seed, turns=None):
        seen["generate"].append((len(prompts), group, sampling.greedy, seed))
        return generate(prompts, group, sampling, seed, turns)

    def again(rows):
        seen["rescore"] += 1
        return rescore(rows) + 0.25

    policy.engine.generate, policy.rescore = drawn, again
    return seen


@pytest.mark.parametrize(
    ("trust", "one_update", "corrects", "rescored", "taken"),
    [
        (True, False, False, 0, "sampler"),
        (True, True, True, 0, "sampler"),
        (False, True, False, 0, "sampler"),  # the training pass itself gives them
        (False, False, True, 0, "sampler"),  # the loop corrects for the difference
        (False, False, False, 1, "training"),
        (None, False, False, 1, "training"),
        (None, True, False, 1, "training"),
        (None, False, True, 1, "sampler"),
    ],
)
def test_whose_log_probs_are_taken(policy, trust, one_update, corrects, rescored, taken):
    policy.trust_sampler, policy.one_update, policy.corrects = trust, one_update, corrects
    seen = asked(policy)
    rollout = policy.sample(PROMPTS, 2, 3)
    assert seen["rescore"] == rescored
    rows = {name: x.flatten(0, 1) for name, x in rollout.samples.items()}
    real = type(policy).rescore(policy, rows).view_as(rollout.log_probs)
    shift = 0.25 if taken == "training" else 0.0
    expected = torch.where(rollout.mask, real + shift, 0.0)
    torch.testing.assert_close(rollout.log_probs, expected, atol=1e-4, rtol=0)
    assert ("parity/abs_max" in rollout.info) == bool(rescored)
    if rescored:
        assert policy.trust_sampler is (False if trust is None else trust)
        assert policy.parity == pytest.approx(0.25, abs=1e-4)
        assert rollout.info["parity/abs_max"] == policy.parity
        assert rollout.info["time/rescore"] > 0
    assert policy.old_from_training == (one_update and policy.trust_sampler is False)


def test_a_sampler_that_agrees_is_trusted_from_then_on(policy):
    calls = []
    rescore = policy.rescore
    policy.rescore = lambda rows: calls.append(True) or rescore(rows)
    first = policy.sample(PROMPTS, 2, 3)
    assert policy.trust_sampler is True
    assert first.info["parity/abs_max"] < agreement.PARITY
    policy.sample(PROMPTS, 2, 4)
    assert calls == [True]
    assert not policy.old_from_training


@pytest.mark.parametrize("same", [True, False])
def test_a_resumed_run_goes_on_with_what_was_measured(policy, same):
    """One that measured again logged other entropies in its first step, where the sampler rounds more coarsely."""
    policy.one_update = True
    asked(policy)
    policy.sample(PROMPTS, 2, 3)
    assert policy.trust_sampler is False
    state = json.loads(json.dumps(policy.carried()))
    other = tiny_lm.policy(0)
    other._unproved, other.one_update = False, True
    seen = asked(other)
    other.resumed(state if same else state | {"of": ["vLLM"]})
    one, two = policy.sample(PROMPTS, 2, 4), other.sample(PROMPTS, 2, 4)
    assert torch.equal(one.log_probs, two.log_probs) == same
    assert ("parity/abs_max" in two.info) == (not same)
    assert seen["rescore"] == (0 if same else 1)
    assert other.parity == pytest.approx(0.25, abs=1e-4)


@pytest.mark.parametrize(("holds", "draws"), [([True], 1), ([False, True], 2)])
def test_an_unproved_engine_samples_again_until_it_is_proved(policy, monkeypatch, holds, draws):
    policy._unproved, policy.trust_sampler = True, True
    answers = iter(holds)
    monkeypatch.setattr(module, "holds_for_the_longest", lambda policy, rollout: next(answers))
    seen = asked(policy)
    policy.sample(PROMPTS, 2, 3)
    assert len(seen["generate"]) == draws
    assert not policy._unproved
    policy.sample(PROMPTS, 2, 3)
    assert len(seen["generate"]) == draws + 1


def test_greedy_is_one_answer_a_prompt_and_is_scored_by_nobody(policy):
    seen = asked(policy)
    rollout = policy.greedy(PROMPTS)
    assert rollout.shape[:2] == (2, 1)
    assert seen["rescore"] == 0
    assert seen["generate"] == [(2, 1, True, 0)]
    assert torch.equal(policy.greedy(PROMPTS).samples["completion_ids"], rollout.samples["completion_ids"])


def test_an_answer_is_the_likeliest_whatever_the_settings(policy):
    policy.temperature = 50.0
    seen = asked(policy)
    ids = policy.prompts.encode(PROMPTS, 0)
    made = policy.answer(ids, 3)
    assert seen["generate"] == [(2, 1, True, 0)]
    policy.temperature = 1.0
    again = policy.answer(ids, 3)
    assert [list(map(int, row)) for row in _tokens(made)] == [list(map(int, row)) for row in _tokens(again)]


def _tokens(made):
    found = next(v for k, v in vars(made).items() if "token" in k or k == "ids")
    return found.flatten(0, -2) if isinstance(found, torch.Tensor) else found


def test_on_a_cpu_thirty_two_rows_are_a_block(policy):
    assert policy.block_rows == 32
    scorer = SimpleNamespace(device=torch.device("meta"))  # any that is not the CPU: tokens bound a block there
    elsewhere = module.CausalLM(policy.config, policy.weights, scorer, policy.prompts, policy.engine)
    assert elsewhere.block_rows == 2**30
    assert isinstance(policy._probe, SyncProbe)
    assert (policy.one_update, policy.held, policy.parity) == (False, False, None)


class Outside:
    def __init__(self, adapters):
        self.adapters, self.told = adapters, []

    def refresh(self, weights):
        self.told.append("weights")

    def refresh_adapters(self, save):
        self.told.append(save)

    def likely(self, prompts, count):
        return []


@pytest.mark.parametrize("live", [False, True])
def test_an_engine_of_this_memory_is_brought_up_to_date(policy, monkeypatch, live):
    """Live adapters are cast anew before what is merged is handed over."""
    told = []
    monkeypatch.setattr(type(policy.weights), "live", property(lambda weights: live))
    monkeypatch.setattr(policy.weights, "training_model", lambda: told.append("cast"))
    monkeypatch.setattr(policy.weights, "merged", lambda: "merged")
    monkeypatch.setattr(policy.engine, "refresh", told.append)
    policy._sync([[1, 2]])
    assert told == (["cast", "merged"] if live else ["merged"])


def test_before_sharding_the_engine_has_a_model_of_its_own(policy):
    plain = policy.engine
    policy.before_sharding(None)
    assert policy.engine is not plain
    assert policy.engine.dtype == plain.dtype
    policy.before_sharding(torch.bfloat16)
    assert policy.engine.dtype == torch.bfloat16


def test_turns_are_given_up_where_sampling_fails(policy, monkeypatch):
    told = []
    ids = lambda: policy.prompts.encode(PROMPTS, 8)  # noqa: E731
    turns = SimpleNamespace(ids=ids, abandon=lambda: told.append("abandoned"))
    monkeypatch.setattr(module, "Turns", lambda *given: turns)
    policy.talk = object()

    def broken(*given):
        raise RuntimeError("engine broke")

    policy.engine.generate = broken
    with pytest.raises(RuntimeError, match="engine broke"):
        policy.sample(PROMPTS, 2, 3)
    assert told == ["abandoned"]
    turns.ids = lambda: policy.prompts.encode([{"prompt": "w1 " * 10**4}], 8)  # an opening that does not fit
    with pytest.raises(DataError, match="context"):
        policy.sample(PROMPTS, 2, 3)
    assert told == ["abandoned", "abandoned"]


@pytest.mark.parametrize("adapters", [False, True])
def test_an_engine_outside_is_brought_up_to_date_and_probed(policy, adapters):
    policy.engine = Outside(adapters)
    checked = []
    policy._probe = SimpleNamespace(check=lambda engine, prompts: checked.append((engine, prompts)))
    policy._sync([[1, 2]])
    assert policy.engine.told == [policy.weights.save_adapters if adapters else "weights"]
    assert checked == [(policy.engine, [[1, 2]])]


@pytest.mark.parametrize(
    ("trust", "corrects", "own", "held"),
    [
        (True, False, True, True),
        (True, False, False, False),
        (False, False, True, False),
        (False, True, True, True),
        (None, True, True, False),
    ],
)
def test_a_sampler_is_held_where_its_log_probs_are_known(policy, monkeypatch, trust, corrects, own, held):
    told = []
    policy.trust_sampler, policy.corrects = trust, corrects
    monkeypatch.setattr(module, "apart", lambda engine: own)
    monkeypatch.setattr(policy.weights, "separate", lambda: told.append("separate"))
    policy._sync = lambda prompts: told.append(prompts)
    assert policy.hold_sampler() is held
    assert told == (["separate", []] if held else [])
    policy.release_sampler()
    assert policy.held is False


def test_answers_that_are_given_are_scored_and_paid(policy):
    stored = Stored([["w2", "w4 w6"], ["w8"]], [[1.0, 0.5], [0.25]])
    rollout = policy.replay(PROMPTS, stored, 0)
    assert rollout.shape[:2] == (2, 2)
    assert rollout.valid.tolist() == [[True, True], [True, False]]
    assert rollout.rewards.tolist() == [[1.0, 0.5], [0.25, 0.0]]
    assert policy.decode(rollout.samples)[0] == ["w2", "w4 w6"]
    rows = {name: x.flatten(0, 1) for name, x in rollout.samples.items()}
    real = policy.rescore(rows).view_as(rollout.log_probs)
    torch.testing.assert_close(rollout.log_probs, torch.where(rollout.mask, real, 0.0))
    known = Stored(stored.actions, stored.rewards, [[-3.0, None], [-1.0]])
    shifted = policy.replay(PROMPTS, known, 0)
    assert float(shifted.log_probs[0, 0].sum()) == pytest.approx(-3.0, abs=1e-4)
    assert float(shifted.log_probs[1, 0].sum()) == pytest.approx(-1.0, abs=1e-4)


def test_slices_of_time_are_slices_of_the_whole(policy):
    rollout = policy.sample(PROMPTS, 2, 3)
    rows = {name: x.flatten(0, 1) for name, x in rollout.samples.items()}
    want = frozenset({"entropy", "kl"})
    whole = policy.evaluate(rows, slice(0, 6), want)
    part = policy.evaluate(rows, slice(2, 5), want)
    for name in ("log_probs", "entropy", "kl"):
        torch.testing.assert_close(getattr(part, name), getattr(whole, name)[:, 2:5], atol=1e-5, rtol=1e-4)
    assert whole.kl.abs().max() < 1e-4  # the reference is the policy as it began
    assert whole.entropy[rollout.mask.flatten(0, 1)].min() > 0


def test_next_tokens_by_the_training_pass(policy):
    ids = policy.prompts.encode(PROMPTS, 0)
    found = policy.next_log_probs(ids, [[3, 5], [7]])
    assert [len(row) for row in found] == [2, 1]
    stored = policy.next_log_probs([ids[0]], [[5]])
    assert found[0][1] == pytest.approx(stored[0][0], abs=1e-5)
    assert found[0][0] != found[0][1]
