"""Whatever form a trainer left a language model's weights or adapter in: loaded whole, or refused by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GenerationConfig, LlamaConfig, LlamaForCausalLM

from anygrpo.errors import DataError
from anygrpo.models import quantization
from anygrpo.models.loading import end_ids, load_model

IDS = torch.arange(3, 20)[None]


def says(model):
    with torch.no_grad():
        return model(input_ids=IDS).logits


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, tie_word_embeddings=True,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def plain(base):
    return says(LlamaForCausalLM.from_pretrained(base).eval())


def adapter(base: Path, folder: Path, mutate=None, **given):
    """An adapter as PEFT writes it, its file's names changed by `mutate`; what it says."""
    torch.manual_seed(1)
    settings = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"], "task_type": "CAUSAL_LM"} | given
    model = peft.get_peft_model(LlamaForCausalLM.from_pretrained(base), peft.LoraConfig(**settings)).eval()
    for p in model.parameters():
        if p.requires_grad:
            p.data.add_(torch.randn_like(p) * 0.3)
    model.save_pretrained(folder)
    file = folder / "adapter_model.safetensors"
    if mutate is not None:
        save_file({k: v.clone() for k, v in mutate(load_file(file)).items()}, file, metadata={"format": "pt"})
    return says(model)


@pytest.mark.parametrize(
    "given",
    [
        {"use_rslora": True},
        {"use_dora": True},
        {"rank_pattern": {"down_proj": 2}, "alpha_pattern": {"q_proj": 3}},
        {"modules_to_save": ["norm"]},
        {"layers_to_transform": [1]},
    ],
    ids=lambda given: next(iter(given)),
)
def test_adapters_of_every_kind_are_merged(base, plain, tmp_path, given):
    wanted = adapter(base, tmp_path / "a", **given)
    assert (wanted - plain).abs().max() > 1e-3
    assert torch.allclose(says(load_model(str(tmp_path / "a"))), wanted, atol=1e-5)


@pytest.mark.parametrize(
    "rename",
    [
        lambda k: "module." + k,
        lambda k: k.replace("base_model.model.", ""),
        lambda k: k.replace("base_model.model.", "base_model.model._fsdp_wrapped_module."),
    ],
    ids=["module", "bare", "wrapped"],
)
def test_an_adapter_under_other_names_is_not_left_out(base, plain, tmp_path, rename):
    """PEFT warns, keeps its zeros, and training would start from the base."""
    wanted = adapter(base, tmp_path / "a", lambda state: {rename(k): v for k, v in state.items()})
    assert torch.allclose(says(load_model(str(tmp_path / "a"))), wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("keep", "said"), [("layers.0", "4 tensors, of 8"), ("lora_A", "4 tensors, of 8"), ("nothing", "0 tensors, of 8")]
)
def test_a_part_of_an_adapter_is_refused(base, tmp_path, keep, said):
    adapter(base, tmp_path / "a", lambda state: {k: v for k, v in state.items() if keep in k})
    with pytest.raises(DataError, match=f"does not fit(?s:.*){said}"):
        load_model(str(tmp_path / "a"))


def test_an_adapter_of_more_layers_than_the_base_is_refused(base, tmp_path):
    more = lambda state: state | {k.replace("layers.1", "layers.7"): v for k, v in state.items()}  # noqa: E731
    adapter(base, tmp_path / "a", more)
    with pytest.raises(DataError, match=r"without a place(?s:.*)layers\.7"):
        load_model(str(tmp_path / "a"))


@pytest.mark.parametrize("safe", [True, False], ids=["safetensors", "bin"])
def test_what_a_trainer_left_beside_an_adapter_is_not_read_for_it(base, tmp_path, safe):
    """Its own file is taken, whatever else lies there: the whole model's weights, moments, arguments."""
    wanted = adapter(base, tmp_path / "a")
    file = tmp_path / "a" / "adapter_model.safetensors"
    if not safe:
        torch.save(load_file(file), file.with_suffix(".bin"))
        file.unlink()
    for name in ("training_args.bin", "optimizer.pt", "pytorch_model.bin"):
        torch.save(state_of(base), tmp_path / "a" / name)
    save_file({"weight": torch.ones(2)}, tmp_path / "a" / "model.safetensors")
    assert torch.allclose(says(load_model(str(tmp_path / "a"))), wanted, atol=1e-5)


def config_of(folder: Path, **changed) -> None:
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))


def test_another_rank_names_both_and_what_to_set(base, tmp_path):
    adapter(base, tmp_path / "a")
    config_of(tmp_path / "a", r=6)
    with pytest.raises(DataError, match=r"\[4, 8\] in the file, \[6, 8\] by adapter_config(?s:.*)set r"):
        load_model(str(tmp_path / "a"))


def test_bases_that_lead_nowhere(base, tmp_path):
    adapter(base, tmp_path / "a")
    config_of(tmp_path / "a", base_model_name_or_path=str(tmp_path / "a"))
    with pytest.raises(DataError, match="the adapter itself"):
        load_model(str(tmp_path / "a"))
    (tmp_path / "a" / "adapter_config.json").write_text("{")
    with pytest.raises(DataError, match="not valid JSON"):
        load_model(str(tmp_path / "a"))


def test_what_cannot_be_merged_says_so(base, tmp_path):
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    peft.get_peft_model(LlamaForCausalLM.from_pretrained(base), config).save_pretrained(tmp_path)
    with pytest.raises(DataError, match="PROMPT_TUNING"):
        load_model(str(tmp_path))


def state_of(base: Path) -> dict[str, torch.Tensor]:
    return LlamaForCausalLM.from_pretrained(base).state_dict()


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "policy.", "base_model.model."])
def test_a_folder_whose_names_transformers_does_not_know(base, plain, tmp_path, prefix):
    """It would make every weight at random, and say so in a table that nobody reads."""
    shutil.copy(base / "config.json", tmp_path)
    state = {prefix + k: v.clone() for k, v in state_of(base).items() if k != "lm_head.weight"}
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert torch.equal(says(load_model(str(tmp_path))), plain)


@pytest.mark.parametrize(("drop", "said"), [("layers.1.mlp", "3 missing"), ("", "0 tensors loaded")])
def test_weights_that_are_not_there_are_not_made_at_random(base, tmp_path, drop, said):
    shutil.copy(base / "config.json", tmp_path)
    state = {k: v.clone() for k, v in state_of(base).items() if drop and drop not in k and k != "lm_head.weight"}
    save_file(state or {"a": torch.ones(2)}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError, match=said):
        load_model(str(tmp_path))


@pytest.mark.parametrize("form", ["lightning", "nested", "ema", "bare"])
def test_a_file_beside_its_config(base, plain, tmp_path, form):
    """By its own name, or by that of a folder which holds no other weights."""
    state = state_of(base)
    content = {
        "lightning": {"state_dict": {f"model.{k}": v for k, v in state.items()}, "hyper_parameters": {"lr": Path("x")}},
        "nested": {"model": {f"module.{k}": v for k, v in state.items()}, "step": 3},
        "ema": {"params_ema": state},
        "bare": state,
    }[form]
    file = tmp_path / ("last.ckpt" if form == "lightning" else "x.pt")
    torch.save(content, file)
    torch.save({"lr": 1}, tmp_path / "optimizer.pt")
    with pytest.raises(DataError, match=r"no config\.json beside it"):
        load_model(str(file))
    shutil.copy(base / "config.json", tmp_path)
    assert torch.equal(says(load_model(str(file))), plain)
    assert torch.equal(says(load_model(str(tmp_path))), plain)


def test_a_file_ends_where_its_folder_says(base, tmp_path):
    """The folder's generation config names end tokens that its config does not."""
    for name in ("plain", "file"):
        (tmp_path / name).mkdir()
        shutil.copy(base / "config.json", tmp_path / name)
        GenerationConfig(eos_token_id=[7, 9]).save_pretrained(tmp_path / name)
    shutil.copy(base / "model.safetensors", tmp_path / "plain")
    torch.save(state_of(base), tmp_path / "file" / "last.ckpt")
    says_end = SimpleNamespace(eos_token_id=3)
    ends = [end_ids(load_model(str(tmp_path / name)), says_end) for name in ("plain", "file")]
    assert ends == [(2, 3, 7, 9), (2, 3, 7, 9)]
    (tmp_path / "file" / "generation_config.json").write_text("{")
    with pytest.raises(DataError, match="generation_config"):
        load_model(str(tmp_path / "file"))


@pytest.mark.parametrize("form", ["file", "wrapped", "adapter"])
def test_loading_moves_no_random_numbers_of_the_caller(base, tmp_path, form):
    if form == "adapter":
        adapter(base, tmp_path)
    else:
        shutil.copy(base / "config.json", tmp_path)
        state = {"module." + k: v.clone() for k, v in state_of(base).items() if k != "lm_head.weight"}
        if form == "file":
            torch.save(state, tmp_path / "x.pt")
        else:
            save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    before = torch.random.get_rng_state()
    load_model(str(tmp_path))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("form", ["file", "adapter", "random"])
def test_what_cannot_be_quantised_is_refused_and_not_loaded_whole(base, tmp_path, form):
    """It would take four times the memory that was asked for, without a word."""
    if form == "adapter":
        adapter(base, tmp_path)
    else:
        config = json.loads((base / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps(config | ({"random_weights": 0} if form == "random" else {})))
    if form == "file":
        torch.save(state_of(base), tmp_path / "x.pt")
    with pytest.raises(DataError, match=r"quantize = '4bit'(?s:.*)save_pretrained"):
        load_model(str(tmp_path), quantize="4bit")


def test_quantised_weights_are_not_made_at_random(base, tmp_path, monkeypatch):
    """bitsandbytes quantises in transformers' own loading, which has no place for these names."""
    model = LlamaForCausalLM.from_pretrained(base)
    model.is_quantized = True
    monkeypatch.setattr(quantization, "arguments", lambda *given: {})
    told = {"missing_keys": {"model.norm.weight"}, "unexpected_keys": {"module.model.norm.weight"}}
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *args, **given: (model, told))
    with pytest.raises(DataError, match=r"not in its files(?s:.*)model\.norm\.weight"):
        load_model(str(base), quantize="4bit")


def test_a_file_is_loaded_without_drawing_weights_first(base, plain, tmp_path, monkeypatch):
    """They would all be replaced: of a large model that took longer than reading it."""
    shutil.copyfile(base / "config.json", tmp_path / "config.json")
    torch.save({f"module.{k}": v for k, v in state_of(base).items()}, tmp_path / "weights.pt")

    def drawn(*_, **__):
        raise AssertionError("drawn")

    for name in ("normal_", "uniform_"):
        monkeypatch.setattr(torch.Tensor, name, drawn)
    model = load_model(str(tmp_path / "weights.pt"))
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert torch.allclose(says(model), plain, atol=1e-6)
