"""The proof at load: faults put into a model or into our ways are found, and the library's own is taken."""

import pytest
import tiny
import torch
from torch import nn

from anygrpo.errors import ConfigError
from anygrpo.language import build as causal_lm
from anygrpo.language import proof
from anygrpo.language.adapters import moved
from anygrpo.language.compute.output_layer import HeadForm, found_forms
from anygrpo.language.compute.trial import Trial, check_causal, difference
from anygrpo.language.settings import CausalLMConfig, LoraConfig

PROMPTS = [{"prompt": "w1 w5 w9 w3"}, {"prompt": "w7 w2 w2 w40 w11 w12"}]


def policy(model, **given):
    settings = {"train": "all", "max_new_tokens": 6, "dtype": "float32", "device": "cpu", "threads": 1} | given
    config = CausalLMConfig(kind="causal_lm", model="memory", **settings)
    return causal_lm.from_model(model, tiny.tokenizer(), config, seed=3)


def gap(made):
    """Largest difference to the model's own forward, row by row: of what was sampled, and of what is scored."""
    rollout = made.sample(PROMPTS, 2, seed=0)
    rows = {name: x.flatten(0, 1) for name, x in rollout.samples.items()}
    again, worst = made.evaluate(rows, slice(0, rollout.shape[2])).log_probs.detach(), 0.0
    for i, (a, c) in enumerate(zip(rows["prompt_lengths"].tolist(), rows["completion_lengths"].tolist())):
        ids = torch.cat([rows["prompt_ids"][i][:a], rows["completion_ids"][i][:c]])[None]
        with torch.no_grad():
            logs = made.weights.training_model()(input_ids=ids, use_cache=False).logits[0, a - 1 : a - 1 + c]
        own = logs.log_softmax(-1).gather(1, ids[0, a:, None])[:, 0]
        for ours in (again[i, :c], rollout.log_probs.flatten(0, 1)[i, :c]):
            worst = max(worst, float((own - ours).abs().max()))
    return worst


def changed(change):
    """A Llama whose class gives other logits than its head does."""
    made = tiny.model("llama")
    kind = type(made)

    class Changed(kind):
        def forward(self, *args, **kwargs):
            out = super().forward(*args, **kwargs)
            out.logits = change(out.logits)
            return out

    made.__class__ = Changed
    return made


@pytest.mark.parametrize(
    ("change", "exact"),
    [
        (lambda z: z * 0.3, True),  # a factor under no name at all
        (lambda z: z / 7, True),
        (lambda z: torch.tanh(z / 2.5) * 2.5, False),  # a cap that the config does not hold
        (lambda z: z - z.square() * 0.05, False),
    ],
)
def test_whatever_lies_between_state_and_logits_is_reproduced_or_the_model_is_asked(change, exact):
    made = policy(changed(change))
    assert (made.scorer.paths.form is not None) is exact
    assert gap(made) < 1e-4
    assert made.scorer.paths.exact is exact


def test_a_cap_is_found_by_its_number():
    model = tiny.model("llama")
    model.config.output_cap_of_some_name = 2.5
    hidden = torch.randn(9, 32)
    raw = model.lm_head(hidden)
    forms = list(found_forms(model, hidden, torch.tanh(raw * 1.5 / 2.5) * 2.5))
    assert any(f.cap == 2.5 and abs(f.scale - 1.5) < 1e-3 for f in forms)
    assert forms[0] == HeadForm()


def test_a_function_that_does_not_fit_is_left_to_the_library_by_value_gradient_or_signature(caplog):
    def skewed(model):
        for layer in model.model.layers:
            own = layer.mlp.forward
            layer.mlp.forward = lambda x, own=own: own(x) * 1.05
        return 2

    def flat(model):
        for layer in model.model.layers:
            own = layer.mlp.forward
            layer.mlp.forward = lambda x, own=own: own(x).detach()
        return 2

    def odd(model):
        for layer in model.model.layers:
            layer.mlp.forward = lambda x, another: x
        return 2

    for put in (skewed, flat, odd):
        before = dict(proof.KERNELS)
        proof.KERNELS["planted"] = put
        try:
            with caplog.at_level("WARNING", "anygrpo"):
                made = policy(tiny.model("llama"))
        finally:
            proof.KERNELS.clear()
            proof.KERNELS.update(before)
        assert "planted" not in made.scorer.paths.kernels
        assert sum("own planted is kept" in note for note in made.scorer.paths.notes) == 1
        assert gap(made) < 1e-4
    assert "own planted is kept" in caplog.text


def test_adapters_anywhere_learn_and_are_in_what_is_sampled():
    lora = LoraConfig(rank=3, alpha=5, targets=("q_proj", "lm_head", "embed_tokens"))
    made = policy(tiny.model("llama"), train="lora", lora=lora)
    with moved(made.trainable()):
        assert gap(made) < 1e-4


class _Blind(nn.Module):
    """A layer whose output nobody reads."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.tower = inner, nn.Linear(32, 32)

    def forward(self, x):
        self.tower(x)
        return self.inner(x)


def _with_tower():
    made = tiny.model("llama")
    made.model.layers[0].mlp = _Blind(made.model.layers[0].mlp)
    return made


def test_adapters_that_never_get_a_gradient_are_refused_by_name_or_left_out():
    with pytest.raises(ConfigError, match=r"layers\.\*\.mlp\.tower never get a gradient"):
        policy(_with_tower(), train="lora", lora=LoraConfig(targets=("q_proj", "tower")))
    made = policy(_with_tower(), train="lora")
    assert any("mlp.tower, which no gradient reaches" in note for note in made.scorer.paths.notes)
    assert not any("tower.lora" in name for name, _ in made.trainable().named_parameters())
    assert gap(made) < 1e-4  # its twin cannot be made from the config: the trained model samples itself


def test_a_model_that_is_not_causal_is_refused():
    from transformers import AutoModelForCausalLM, BertConfig

    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=64, is_decoder=False, **sizes)
    with pytest.raises(ConfigError, match="is not causal"):
        policy(AutoModelForCausalLM.from_config(config))
    config.is_decoder = True
    trial = Trial.of(tiny.tokenizer(), 64, torch.device("cpu"))
    check_causal(AutoModelForCausalLM.from_config(config).eval(), trial)


def test_what_begins_only_at_some_length_is_seen_on_the_first_rollout():
    from transformers import AutoModelForCausalLM, Llama4TextConfig

    torch.manual_seed(0)
    config = Llama4TextConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, intermediate_size_mlp=32, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, attention_chunk_size=20, num_local_experts=2,
        moe_layers=[], pad_token_id=2, bos_token_id=0, eos_token_id=1, max_position_embeddings=128,
        layer_types=["chunked_attention", "chunked_attention"], no_rope_layers=[1, 1],
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.mul_(6.0)
    made = policy(model, max_new_tokens=40, min_new_tokens=40)
    before = made.scorer.paths.ability.shared
    assert gap_of_long(made) < 1e-4
    assert before  # at load nothing was to be seen
    assert not made.scorer.paths.ability.shared


def gap_of_long(made):
    made.sample(PROMPTS, 1, seed=0)
    made.config = made.config.model_copy(update={"min_new_tokens": 0})
    return gap(made)


def test_the_trial_is_of_real_tokens():
    trial = Trial.of(tiny.tokenizer(), 64, torch.device("cpu"))
    assert all(len(set(row.tolist())) > 5 and min(row.tolist()) > 3 for row in trial.rows)
    assert [len(row) for row in trial.rows] == [17, 15, 13, 8]


def test_differences_are_measured_where_they_matter():
    z = torch.tensor([[0.0, -100.0, 3.0]])
    assert difference(z, z + torch.tensor([[0.0, 5.0, 0.0]]), z) is None  # of the impossible nothing is asked
    assert difference(z, z + torch.tensor([[0.0, 0.0, 0.1]]), z) == pytest.approx(0.1, abs=1e-6)
