"""Who wrote what: spans by hand, words kept apart, the reward's view, and templates that rewrite the past."""

import pickle

import pytest
import tiny
import torch
from test_prompts import prompts

from anygrpo.errors import ConfigError
from anygrpo.language import build as causal_lm
from anygrpo.language.compute.cache import Uneven
from anygrpo.language.conversation import Span, check_template, spans, writers
from anygrpo.language.settings import CausalLMConfig
from anygrpo.language.tasks.answer import Answer


def test_spans_by_hand():
    assert spans([1, 1, 2, 1, 0]) == [Span(0, 2, 1), Span(2, 3, 2), Span(3, 4, 1)]
    assert spans([]) == spans([0, 0]) == []
    chosen = torch.tensor([[True, False, True, False], [True, False, False, False]])
    assert writers(chosen, torch.tensor([3, 1])).tolist() == [[1, 2, 1, 0], [1, 0, 0, 0]]


def test_an_answer_is_the_policys_own_words():
    said = [
        {"role": "assistant", "content": "a", "by": "policy"},
        {"role": "tool", "content": "42", "by": "environment"},
        {"role": "assistant", "content": "b", "by": "policy"},
    ]
    answer = pickle.loads(pickle.dumps(Answer(said)))
    assert answer == "a\n\nb"
    assert answer.messages == said
    assert answer.inserted == said[1:2]


@pytest.fixture
def talking(tmp_path):
    (tmp_path / "world.py").write_text(
        "def step(messages, columns):\n"
        "    return {'role': 'user', 'content': 'w40 w41'} if len(messages) < 4 else None\n"
    )
    config = CausalLMConfig(
        kind="causal_lm", model="memory", train="all", max_new_tokens=24, dtype="float32", device="cpu", threads=1,
        eos=tuple(range(4, 30)), max_turns=3, environment=f"{tmp_path}/world.py:step",
    )  # fmt: skip
    return causal_lm.from_model(tiny.model("llama"), tiny.tokenizer(template=True), config, seed=3)


def test_the_record_of_a_sampled_conversation(talking):
    rollout = talking.sample([{"prompt": "w1 w5"}], 8, seed=0)
    written, mask = rollout.samples["written_by"], rollout.mask
    assert torch.equal(written == 1, mask)
    assert (written == 2).any()
    assert torch.equal((written > 0).sum(-1), rollout.samples["completion_lengths"])
    assert rollout.info["length/mean"] == pytest.approx(mask.sum(-1).float().mean().item())
    outputs = talking.decode(rollout.samples)[0]
    talked = [o for o in outputs if isinstance(o, Answer)]
    assert talked
    assert all("w40 w41" not in o for o in talked)
    assert all(m["content"] == "w40 w41" for o in talked for m in o.inserted)
    for output in talked:
        who = [m["by"] for m in output.messages]
        assert who == [("policy", "environment")[i % 2] for i in range(len(who))]
    assert any(o.inserted for o in talked)


def test_without_what_was_kept_the_words_are_read_from_the_tokens(talking):
    rollout = talking.sample([{"prompt": "w1 w5"}], 8, seed=0)
    talking.conversations._held.clear()
    talked = [o for o in talking.decode(rollout.samples)[0] if isinstance(o, Answer)]
    assert any("w40 w41" in m["content"] for o in talked for m in o.inserted)
    assert all("w40 w41" not in o for o in talked)


LATE = """
import hashlib, time
def step(messages, columns):
    if len(messages) >= 4:
        return None
    if hashlib.md5(messages[-1]["content"].encode()).digest()[0] % 2:
        time.sleep(0.15)
    return "w40 w41"
"""


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_a_slow_environment_holds_up_nobody_and_changes_nothing(tmp_path, kind):
    """The same samples whether the others wait or go on; their log-probs are the training pass's over all turns."""
    (tmp_path / "world.py").write_text(LATE)

    def sampled(patience):
        config = CausalLMConfig(
            kind="causal_lm", model="memory", train="all", max_new_tokens=24, dtype="float32", device="cpu", threads=1,
            eos=tuple(range(4, 30)), max_turns=3, environment=f"{tmp_path}/world.py:step",
            turns={"patience": patience},
        )  # fmt: skip
        policy = causal_lm.from_model(tiny.model(kind), tiny.tokenizer(template=True), config, seed=3)
        uneven = []
        watched = Uneven.attend
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Uneven, "attend", lambda self, *given: uneven.append(1) or watched(self, *given))
            rollout = policy.sample([{"prompt": "w1 w5"}, {"prompt": "w7 w2 w9"}], 6, seed=0)
        rows = {name: x.flatten(0, 1) for name, x in rollout.samples.items()}
        again = policy.rescore(rows).view_as(rollout.log_probs)
        assert (again - rollout.log_probs)[rollout.mask].abs().max() < 1e-4
        return rollout, bool(uneven)

    patient, together = sampled(10.0)
    hasty, apart = sampled(0.0)
    assert (together, apart) == (False, kind == "llama")
    assert (patient.samples["written_by"] == 2).any()
    for name in ("completion_ids", "completion_lengths", "written_by"):
        assert torch.equal(patient.samples[name], hasty.samples[name]), name


def test_templates_that_rewrite_what_was_said():
    assert check_template(prompts()) is None
    forgets = (
        "{% for m in messages %}<{{ m.role }}>"
        "{{ m.content.split('</think>')[-1] if m.role == 'assistant' and not loop.last else m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    assert "thoughts" in (check_template(prompts(forgets)) or "")
    last_only = "<{{ messages[-1].role }}>{{ messages[-1].content }}<assistant>"
    with pytest.raises(ConfigError, match="does not keep what was said"):
        check_template(prompts(last_only))
