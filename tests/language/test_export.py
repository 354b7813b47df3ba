"""Out of the house and back: each format loaded by the plain library, a lie found, and every way to start again."""

import copy
import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
import torch

from anygrpo.core.trained import state_of
from anygrpo.errors import ConfigError, DataError, TrainingError
from anygrpo.language import export as exporting
from anygrpo.language.apply import apply
from anygrpo.language.build import build
from anygrpo.language.compute.pictures import FIRST
from anygrpo.language.export import export
from anygrpo.language.export_page import model_card
from anygrpo.language.files import adapter_config
from anygrpo.language.objects import causal_lm
from anygrpo.language.ruler import _without_adapters
from anygrpo.language.settings import CausalLMConfig, LoraConfig
from anygrpo.models import loading

PROMPTS = [{"prompt": "w1 w5 w9 w3"}, {"prompt": "w7 w2 w2 w40 w11 w12"}]


@pytest.fixture
def base(tmp_path):
    tiny.model("llama").save_pretrained(tmp_path / "base")
    tiny.tokenizer().save_pretrained(tmp_path / "base")
    return str(tmp_path / "base")


def policy(model, moved=0.1, **given):
    settings = {"train": "lora", "lora": LoraConfig(rank=3, alpha=5), "dtype": "float32"} | given
    config = CausalLMConfig(kind="causal_lm", model=str(model), max_new_tokens=6, device="cpu", threads=1, **settings)
    return moved_by(moved, build(config, 3))


def moved_by(size, made):
    torch.manual_seed(5)
    with torch.no_grad():
        for p in made.parameters():
            p.add_(size * torch.randn_like(p))
    return made


def saved_run(made, base, run):
    """A run's folder with one checkpoint, which is returned."""
    from safetensors.torch import save_file

    folder = run / "checkpoints" / "step_00000004"
    folder.mkdir(parents=True)
    state = {name: value.contiguous().clone() for name, value in state_of(made.trainable()).items()}
    save_file(state, folder / "policy.safetensors")
    (run / "config.toml").write_text(
        f'[policy]\nkind = "causal_lm"\nmodel = "{base}"\ntrain = "{made.config.train}"\n'
        "[policy.lora]\nrank = 3\nalpha = 5\n"
    )
    return folder


def log_probs(made, rollout):
    rows = {name: x.flatten(0, 1) for name, x in rollout.samples.items()}
    return made.evaluate(rows, slice(0, rollout.shape[2])).log_probs.detach()


@pytest.mark.parametrize(("train", "format"), [("lora", "peft"), ("lora", "merged"), ("all", "full")])
def test_a_certified_folder_is_where_training_can_go_on(base, tmp_path, train, format):
    made = policy(base, train=train, eos=(9,))
    files = export(made, tmp_path / "out", format, PROMPTS)
    said = json.loads((tmp_path / "out" / "export.json").read_text())
    assert said["certified"]
    assert said["max_log_prob_gap"] < 1e-5
    assert said["greedy_differ"] == 0
    settings = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert settings["eos_token_id"] == [1, 9]
    names = {file.name for file in files}
    assert {"tokenizer.json", "README.md"} <= names
    assert ("adapter_model.safetensors" in names) == (format == "peft")
    served = {"peft": f"vllm serve {base} --enable-lora --max-lora-rank 8 --lora-modules out=./out"}
    assert served.get(format, "vllm serve ./out") + "\n" in (tmp_path / "out" / "README.md").read_text()
    # The folder is a model to start from: the same log-probs, and they are the new reference.
    rollout = made.sample(PROMPTS, 2, seed=0)
    again = policy(tmp_path / "out", moved=0.0, eos=(9,))
    torch.testing.assert_close(log_probs(again, rollout), log_probs(made, rollout), atol=2e-5, rtol=0)
    with again.reference():
        torch.testing.assert_close(log_probs(again, rollout), log_probs(made, rollout), atol=2e-5, rtol=0)


@pytest.mark.parametrize("format", ["merged", pytest.param("peft", marks=pytest.mark.slow)])
def test_bfloat16_is_allowed_what_the_library_loses_of_what_was_trained(base, tmp_path, format):
    """Twice what the library is off when it merges itself, from float32 base and adapters; of adapters alone, of
    what we added, rounded. Over the 64 likeliest at each place."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    made = policy(base, dtype="bfloat16")
    export(made, tmp_path / "peft", "peft", PROMPTS)
    if format == "merged":
        export(made, tmp_path / "merged", "merged", PROMPTS)
    load = AutoModelForCausalLM.from_pretrained
    wide = PeftModel.from_pretrained(load(base, dtype=torch.float32), str(tmp_path / "peft")).eval()
    narrow = PeftModel.from_pretrained(load(base, dtype=torch.bfloat16), str(tmp_path / "peft"))
    if format == "merged":
        narrow = narrow.merge_and_unload().eval()
    else:
        wide = PeftModel.from_pretrained(load(base, dtype=torch.bfloat16).float(), str(tmp_path / "peft"))
        wide = wide.merge_and_unload().eval()
        narrow = copy.deepcopy(wide).bfloat16()
        narrow.model.rotary_emb = wide.model.rotary_emb
    ids = made.prompts.encode(PROMPTS, exporting.NEW)
    rows, own, tokens, answers = exporting._own_answers(made, ids)
    gaps = []
    for row, asked, said in zip(rows, map(torch.tensor, tokens), map(torch.tensor, own)):
        assert asked.shape == said.shape == (len(row) - 1, 64)
        with torch.no_grad():
            one, two = (m(input_ids=torch.tensor([row])).logits[0, :-1].float().log_softmax(-1) for m in (wide, narrow))
        gaps.append((one - two).gather(1, asked).abs().max())
        assert (one.gather(1, asked) - said).abs().max() < gaps[-1] * 2
    assert [row[-len(answer) :] for row, answer in zip(rows, answers)] == answers
    told = json.loads((tmp_path / format / "export.json").read_text())
    assert told["limit"] == pytest.approx(2 * float(max(gaps)), rel=1e-4)
    assert told["limit"] > 1e-3


def test_the_places_compared_in_a_narrow_type():
    assert exporting._start([1, 2, 3, 4, 5], 3) == 1  # all that anything is said of
    assert exporting._start([1] * 100, 90) == 100 - 64
    assert exporting._start([1] * 100, 20) == 20  # the whole answer
    assert exporting._start([1, FIRST, FIRST, 2, 3, 4], 5) == 3  # no picture is cut apart


def test_an_adapter_that_pefts_own_writing_leaves_out_is_found(base, tmp_path, monkeypatch):
    """In the folder and in whatever else PEFT writes: they agree with each other. Of a training so small that
    the type's noise hides it."""
    from peft import PeftModel
    from safetensors.torch import load_file, save_file

    made, write = policy(base, moved=0.01, dtype="bfloat16"), PeftModel.save_pretrained

    def without_one(self, folder, **given):
        write(self, folder, **given)
        file = Path(folder) / "adapter_model.safetensors"
        weights = load_file(file)
        name = next(n for n in weights if "lora_B" in n and "down_proj" in n)
        save_file({n: x for n, x in weights.items() if n != name}, file, metadata={"format": "pt"})

    monkeypatch.setattr(PeftModel, "save_pretrained", without_one)
    monkeypatch.setattr(exporting.subprocess, "run", here)
    with pytest.raises(TrainingError) as raised:
        export(made, tmp_path / "out", "peft", PROMPTS)
    said = re.findall(r"(?:by|allowed) ([\d.e-]+)", str(raised.value))
    gap, limit, unrounded, least = map(float, said)
    assert gap < limit
    assert unrounded > 2 * least
    assert not (tmp_path / "out").exists()


def test_a_base_that_happens_to_have_equal_ends_is_tied_only_where_its_config_says_so(tmp_path):
    """The copy that adapters on a model in memory are checked on."""
    model = tiny.model("llama")
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(model.model.embed_tokens.weight.detach().clone())
    made = causal_lm(model, tiny.tokenizer(), max_new_tokens=6, device="cpu", threads=1)
    copied = _without_adapters(made)
    assert copied.lm_head.weight is not copied.model.embed_tokens.weight
    model.config.tie_word_embeddings = True
    copied = _without_adapters(made)
    assert copied.lm_head.weight is copied.model.embed_tokens.weight
    assert copied.config is not made.weights.base.config


def begun(start, base, tmp_path, **given):
    """A policy from each of the ways to begin, trained since; adapters of other sizes lie in the starts themselves."""
    if start == "memory":
        settings = {"max_new_tokens": 6, "device": "cpu", "threads": 1, "dtype": "bfloat16"} | given
        return moved_by(0.02, causal_lm(tiny.model("llama"), tiny.tokenizer(), **settings))
    if start == "adapter":
        export(policy(base, lora=LoraConfig(rank=2, alpha=4)), tmp_path / "start", "peft", PROMPTS)
    if start == "run":
        saved_run(policy(base), base, tmp_path / "start")
    return policy(base if start == "folder" else tmp_path / "start", moved=0.02, **{"dtype": "bfloat16"} | given)


def begun_with(made, start):
    """Every weight as it was before training."""
    model = loading.load_model(str(start), torch.bfloat16 if made.config.train == "lora" else torch.float32, "cpu")
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def here(command, **_):
    """The certificate's file in this process: the first export of each test has shown that it runs in its own."""
    argv, sys.argv = sys.argv, command[1:]
    try:
        runpy.run_path(command[1], run_name="__main__")
    finally:
        sys.argv = argv
    return subprocess.CompletedProcess(command, 0, "", "")


def spoil(folder, damage, was):
    """Training gone, at half or twice its strength, or its first weight under another key."""
    from safetensors.torch import load_file, save_file

    adapters = folder / "adapter_model.safetensors"
    file = adapters if adapters.exists() else folder / "model.safetensors"
    weights = load_file(file)
    for name in [n for n in weights if "lora_B" in n or ("proj" in n and n in was)]:
        start = torch.zeros_like(weights[name]) if file == adapters else was[name].float()
        part = {"gone": 0.0, "half": 0.5, "twice": 2.0, "key": 1.0}[damage]
        weights[name] = (start + part * (weights[name].float() - start)).to(weights[name].dtype)
    if damage == "key":
        name = next(n for n in weights if "self_attn" in n and ("lora_B" in n or file != adapters))
        weights[name.replace("self_attn", "attention")] = weights.pop(name)
    save_file(weights, file, metadata={"format": "pt"})


@pytest.mark.parametrize(("start", "train", "format"), [
    ("folder", "lora", "peft"), ("adapter", "lora", "merged"), ("memory", "lora", "merged"), ("run", "all", "full"),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in [
        ("folder", "lora", "merged"), ("run", "lora", "merged"), ("memory", "lora", "peft"), ("memory", "all", "full")
    ]),
])  # fmt: skip
def test_in_bfloat16_a_folder_without_the_training_is_refused_whatever_it_began_from(
    base, tmp_path, monkeypatch, start, train, format
):
    """The folder has no say in what it may lack. The training is small: log-probs in bfloat16 alone do not show it."""
    made, folder = begun(start, base, tmp_path, train=train), tmp_path / "out"
    was = begun_with(made, tmp_path / "start" if start in ("adapter", "run") else base)
    export(made, folder, format, PROMPTS)
    monkeypatch.setattr(exporting.subprocess, "run", here)
    told = json.loads((folder / "export.json").read_text())
    assert told["certified"]
    assert told["unrounded_gap"] < 1e-5
    for damage in ("gone", "half", "twice", "key"):
        spoiled = tmp_path / damage
        shutil.copytree(folder, spoiled)
        spoil(spoiled, damage, was)
        with pytest.raises(TrainingError, match="differs from the policy: log-probs by"):
            exporting.certify(made, spoiled, format, PROMPTS)
        shutil.rmtree(spoiled)
    assert not list(tmp_path.glob(".export-*"))


def test_a_tied_pair_in_bfloat16_is_measured_without_the_librarys_merge(base, tmp_path):
    """Which would change the other end, and allow as much."""
    made = policy(base, lora=LoraConfig(rank=3, alpha=5, targets=("q_proj", "lm_head")), dtype="bfloat16")
    export(made, tmp_path / "out", "merged", PROMPTS)
    told = json.loads((tmp_path / "out" / "export.json").read_text())
    assert told["unrounded_gap"] < 1e-5
    assert told["limit"] < 0.2


def test_a_served_base_is_a_place_and_not_a_name_of_ours(base, monkeypatch):
    """vLLM and llama.cpp know no "smollm2": the card names the folder that adapter_config.json names."""
    made = policy(base)
    monkeypatch.setattr(loading, "smollm2_path", lambda: Path("/cache dir/smollm2"))
    object.__setattr__(made, "config", made.config.model_copy(update={"model": "smollm2"}))
    card = model_card(made, "out", "peft", {"certified": False, "why": "-"})
    assert "vllm serve '/cache dir/smollm2' --enable-lora" in card
    assert "--base '/cache dir/smollm2' ./out" in card
    assert adapter_config(made).base_model_name_or_path == "/cache dir/smollm2"


def test_both_ends_of_a_tied_pair_are_written_apart(base, tmp_path):
    made = policy(base, lora=LoraConfig(rank=3, alpha=5, targets=("q_proj", "lm_head")))
    export(made, tmp_path / "out", "merged", PROMPTS)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["tie_word_embeddings"] is False


def test_a_folder_that_says_something_else_is_not_left_behind(base, tmp_path, monkeypatch):
    made, write = policy(base), exporting.write

    def wrong(policy, folder, format):
        with torch.no_grad():
            policy.parameters()[0].add_(1.0)
        write(policy, folder, format)
        with torch.no_grad():
            policy.parameters()[0].sub_(1.0)

    monkeypatch.setattr(exporting, "write", wrong)
    with pytest.raises(TrainingError, match="differs from the policy: log-probs by"):
        export(made, tmp_path / "out", "merged", PROMPTS)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".export-*"))


@pytest.mark.parametrize("format", ["peft", "merged"])
def test_a_folder_of_no_numbers_is_refused_in_a_narrow_type_too(base, tmp_path, monkeypatch, format):
    made, write = policy(base, dtype="bfloat16"), exporting.write

    def broken(policy, folder, format):
        with torch.no_grad():
            held = policy.parameters()[0].clone()
            policy.parameters()[0].fill_(float("nan"))
            write(policy, folder, format)
            policy.parameters()[0].copy_(held)

    monkeypatch.setattr(exporting, "write", broken)
    with pytest.raises(TrainingError, match="log-probs by nan nats"):
        export(made, tmp_path / "out", format, PROMPTS)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("train", "format"), [("lora", "merged"), ("lora", "peft"), ("all", "full")])
def test_a_model_in_memory_is_exported(tmp_path, train, format):
    """As `causal_lm` makes it; adapters are checked on a copy of their base, written and taken away again."""
    made = causal_lm(tiny.model("llama"), tiny.tokenizer(), max_new_tokens=6, device="cpu", threads=1, train=train)
    export(made, tmp_path / "out", format, PROMPTS)
    said = json.loads((tmp_path / "out" / "export.json").read_text())
    assert said["certified"]
    assert not list(tmp_path.glob(".export-*"))


def test_formats_that_a_policy_does_not_have(base, tmp_path):
    with pytest.raises(ConfigError, match="peft or merged"):
        export(policy(base), tmp_path / "out", "full")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    with pytest.raises(ConfigError, match="not empty"):
        export(policy(base), tmp_path / "full", "peft")


@pytest.mark.parametrize("train", ["lora", "all"])
def test_a_run_and_its_checkpoint_are_models_to_start_from(base, tmp_path, train):
    made, run = policy(base, train=train), tmp_path / "run"
    folder = saved_run(made, base, run)
    rollout = made.sample(PROMPTS, 2, seed=0)
    for start in (run, folder):
        again = policy(start, moved=0.0)
        torch.testing.assert_close(log_probs(again, rollout), log_probs(made, rollout), atol=2e-5, rtol=0)
    with pytest.raises(ConfigError, match="merged"):
        export(policy(run), tmp_path / "out", "peft")
    (run / "config.toml").write_text('[policy]\nkind = "diffusion"\n')
    with pytest.raises(DataError, match="diffusion"):
        policy(run)


def test_weights_that_do_not_fit_are_named(base, tmp_path):
    from safetensors.torch import save_file

    run = tmp_path / "run"
    (run / "checkpoints" / "best").mkdir(parents=True)
    (run / "config.toml").write_text(f'[policy]\nkind = "causal_lm"\nmodel = "{base}"\ntrain = "all"\n')
    save_file({"model.norm.weight": torch.zeros(7)}, run / "checkpoints" / "best" / "policy.safetensors")
    with pytest.raises(DataError, match=r"model\.norm\.weight is \(7,\), the model's is \(32,\)"):
        policy(run)
    save_file({"other": torch.zeros(7)}, run / "checkpoints" / "best" / "policy.safetensors")
    with pytest.raises(DataError, match="1 of which"):
        policy(run)


def test_apply_writes_answers_goes_on_and_repeats_itself(base, tmp_path):
    made = policy(base)
    asked = tmp_path / "prompts.txt"
    asked.write_text("w1 w5\n\nw7 w2\nw9\n")
    seen = []
    greedy = apply(made, asked, tmp_path / "out.jsonl", progress=lambda done, total: seen.append((done, total)))
    assert [row["prompt"] for row in greedy] == ["w1 w5", "w7 w2", "w9"]
    assert seen == [(3, 3)]
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    (tmp_path / "out.jsonl").write_text("\n".join(lines[:2]) + '\n{"index": 2, "pro')
    assert apply(made, asked, tmp_path / "out.jsonl") == greedy
    assert [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()] == greedy
    with pytest.raises(DataError, match="other prompts, from line 1"):
        apply(made, ["w3"], tmp_path / "out.jsonl")
    drawn = apply(made, ["w1 w5", "w9"], seed=4, samples=3)
    assert [len(row["outputs"]) for row in drawn] == [3, 3]
    assert apply(made, ["w7", "w9"], seed=4, samples=3)[1]["outputs"] == drawn[1]["outputs"]
    assert apply(made, "w1 w5")[0]["outputs"] == greedy[0]["outputs"]


def test_a_checkpoints_adapters_bear_the_keys_that_peft_reads(base):
    from peft import LoraConfig as Peft
    from peft import get_peft_model, set_peft_model_state_dict
    from transformers import AutoModelForCausalLM

    made = policy(base)
    own = state_of(made.trainable())
    written = {made.saved_names().get(name, name): tensor for name, tensor in own.items()}
    config = Peft(r=3, lora_alpha=5, target_modules="all-linear")
    plain = get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
    report = set_peft_model_state_dict(plain, written)
    assert report.unexpected_keys == []
    loaded = dict(plain.named_parameters())
    assert len(own) == 28
    assert all(torch.equal(loaded[name], tensor) for name, tensor in own.items())
