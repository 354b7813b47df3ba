"""Conversations about pictures: the beginning shows them, words follow."""

import pytest
import seeing
import torch
from PIL import Image
from test_vision import asked, own_log_probs

from anygrpo.errors import TrainingError
from anygrpo.language.build import from_model
from anygrpo.language.settings import CausalLMConfig
from anygrpo.language.tasks.pictures import reference
from anygrpo.language.tools.replies import Unfit
from anygrpo.language.turns.held import said_by_environment

TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }} {% for c in m['content'] %}{% if c['type'] == 'image' %}<image> "
    "{% else %}{{ c['text'] }} {% endif %}{% endfor %}<eos> {% endfor %}"
    "{% if add_generation_prompt %}assistant {% endif %}"
)
ENVIRONMENTS = """
class Talks:
    def reset(self, row):
        self.turns = 0
    def step(self, messages, calls):
        self.turns += 1
        shown = [c["image"] for m in messages if isinstance(m["content"], list) for c in m["content"] if "image" in c]
        assert len(shown) == 1, shown
        return "w5 w6", 0.5, self.turns == 2
class Marks(Talks):
    def step(self, messages, calls):
        return "w5 <image>", 0.5, False
class Shows(Talks):
    def step(self, messages, calls):
        return {"role": "user", "content": [{"type": "image", "image": PICTURE}]}, 0.5, False
class Last(Talks):
    def step(self, messages, calls):
        return {"role": "user", "content": [{"type": "image", "image": PICTURE}]}, 0.5, True
class Begins(Talks):
    def reset(self, row):
        self.turns = 0
        return [{"role": "user", "content": [{"type": "image", "image": PICTURE}, {"type": "text", "text": "w9"}]}]
"""


def policy_of(tmp_path, family, name, **settings):
    shown = reference(Image.new("RGB", (20, 14), "green"), "here")
    (tmp_path / "env.py").write_text(f"PICTURE = {shown!r}\n{ENVIRONMENTS}")
    model, processor = seeing.FAMILIES[family]()
    if family == "llava":
        processor.tokenizer.chat_template = TEMPLATE
    table = {"kind": "causal_lm", "model": "memory", "dtype": "float32", "device": "cpu", "max_new_tokens": 60,
             "vision": {}, "lora": {"rank": 2}, "environment": f"{tmp_path}/env.py:{name}", "max_turns": 3}  # fmt: skip
    return from_model(model, processor, CausalLMConfig.model_validate(table | settings)), processor


@pytest.mark.parametrize("family", ["llava", "qwen2_vl"])
def test_log_probs_of_all_turns_are_the_librarys_own(tmp_path, family):
    policy, processor = policy_of(tmp_path, family, "Talks")
    prompts = [asked("red"), asked("blue", "w1 w2")]
    rollout = policy.sample(prompts, 4, seed=1)
    assert policy.parity < 1e-4
    assert rollout.valid.all()
    by = rollout.samples["written_by"]
    assert (by == 2).any(), "no row heard the environment"
    for p in range(2):
        for g in range(4):
            n = int(rollout.samples["completion_lengths"][p, g])
            row = rollout.samples["completion_ids"][p, g, :n].tolist()
            own = own_log_probs(policy, processor, prompts[p], row)
            mine = rollout.mask[p, g, :n]
            assert torch.allclose(rollout.log_probs[p, g, :n][mine], own[mine], atol=1e-4)


def test_rewards_and_readers_get_the_whole_conversation(tmp_path):
    policy, _ = policy_of(tmp_path, "llava", "Talks")
    rollout = policy.sample([asked("red")], 8, seed=3)
    said = policy.decode(rollout.samples)[0]
    heard = [one for one in said if one.inserted]
    assert heard
    assert {m["content"] for one in heard for m in one.inserted} == {"w5 w6"}
    assert all(one.reward == pytest.approx(0.5 * len(one.inserted)) or one.turns > len(one.inserted) for one in heard)


@pytest.mark.parametrize(("name", "why"), [("Marks", "the mark of a picture"), ("Shows", "after the beginning"),
                                           ("Last", "after the beginning")])  # fmt: skip
def test_pictures_that_come_later_make_a_sample_invalid(tmp_path, name, why):
    policy, _ = policy_of(tmp_path, "llava", name)
    with pytest.raises(TrainingError, match=why):
        policy.sample([asked("red"), asked("blue")], 8, seed=3)
    policy.talk.first.worked = True  # from then on a bad conversation is data
    rollout = policy.sample([asked("red"), asked("blue")], 8, seed=3)
    assert 0 < int(rollout.valid.sum()) < 16
    assert all(why in reason for reason in rollout.reasons.values())
    assert len(rollout.reasons) == int((~rollout.valid).sum())


def test_a_picture_that_is_not_there_is_named(tmp_path):
    """Neither "relative to the data file" nor the cure alone: there is no data file, and the file is what matters."""
    said = [{"role": "user", "content": [{"type": "image", "image": "cat.png"}]}]
    with pytest.raises(Unfit, match=r"no picture at cat\.png; no data file is there: give a whole path") as stopped:
        said_by_environment(said, "Env.reset", "reset")
    assert str(stopped.value).count("Env.reset") == 1
    with pytest.raises(Unfit, match=r"a picture is '7'; give a file's path, bytes"):
        said_by_environment([{"role": "user", "content": [{"type": "image", "image": 7}]}], "Env.reset", "reset")
    with pytest.raises(Unfit, match="a place for a picture, and no picture"):
        said_by_environment([{"role": "user", "content": [{"type": "image"}]}], "Env.reset", "reset")


def test_an_environment_may_begin_with_a_picture(tmp_path):
    policy, _ = policy_of(tmp_path, "llava", "Begins")
    rollout = policy.sample([{"prompt": "w3"}], 2, seed=0)
    assert (rollout.samples["prompt_ids"][0, 0] >= 2**40).sum() == 4


def test_tools_are_called_in_a_conversation_about_a_picture(tmp_path):
    about = '"""Measures a side.\n\n    Args:\n        side: which one.\n    """'
    (tmp_path / "tools.py").write_text(f'def measure(side: str) -> str:\n    {about}\n    return "w7"\n')
    tool = {"environment": None, "tools": [f"{tmp_path}/tools.py:measure"]}
    policy, _ = policy_of(tmp_path, "llava", "Talks", **tool)
    call = [{"name": "measure", "arguments": {"side": "left"}}]
    ids = policy.prompts.next_turn([{"role": "tool", "name": "measure", "content": "w7"}], call)
    assert "w7" in policy.prompts.plain(ids)
    shown = policy.prompts.rendered(asked("red"))
    assert "measure" in shown
    assert shown.count("<image>") == 1
    assert policy.sample([asked("red")], 2, seed=0).valid.all()
