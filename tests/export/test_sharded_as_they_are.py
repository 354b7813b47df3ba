"""A checkpoint that two ranks wrote of shards is what transformers, PEFT and diffusers load as it is."""

import json

import peft
import pytest
import tiny_pipelines
import tomli_w
import torch
from golden_runs import image_run
from ranks import on_ranks
from runs import run_of
from transformers import AutoModelForCausalLM

from anygrpo.recipe.load import load_recipe
from anygrpo.train.build import new_run, resumed_run
from anygrpo.train.checkpoint import newest, problems
from anygrpo.train.loop import train
from anygrpo.train.sharded import full_state, sharded_blocks

pytestmark = pytest.mark.cpu


def language(folder, base, kind):
    """A run of two ranks; the trained weights, and how many blocks were sharded."""
    lora = {"lora": {"rank": 2, "alpha": 8.0}} if kind == "lora" else {}
    made = run_of(
        folder,
        policy={"kind": "causal_lm", "model": base, "train": kind, "dtype": "float32", "max_new_tokens": 6} | lora,
        task={"kind": "arithmetic", "operation": "+"},
        algorithm={"prompts_per_step": 2, "group_size": 2, "entropy_coef": 0.1},
        training={"steps": 2, "checkpoint_every": 1, "parallel": "fsdp"},
        optimizer={"learning_rate": 0.01},
    )
    return finished(made)


def finished(made):
    train(made)
    made.close()
    state = full_state(made.policy.trainable())
    return {n: p.tolist() for n, p in state.items()}, len(sharded_blocks(made.policy.trainable()))


@pytest.fixture
def base(tmp_path):
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parents[1] / "language"))
    import tiny

    tiny.model("llama", scale=4.0).save_pretrained(tmp_path / "base")
    tiny.tokenizer(template=True).save_pretrained(tmp_path / "base")
    return str(tmp_path / "base")


def test_all_weights_in_transformers(tmp_path, base):
    trained, blocks = on_ranks(2, language, tmp_path / "run", base, "all")[0]
    folder = newest(tmp_path / "run" / "checkpoints")
    files = {f.name for f in folder.glob("model*")}
    assert blocks == 2
    assert files == {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                     "model.safetensors.index.json"}  # fmt: skip
    held = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    assert len(set(held.values())) == 2
    theirs = dict(AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32).named_parameters())
    first = dict(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).named_parameters())
    assert theirs.keys() == trained.keys()
    for name, value in trained.items():
        assert torch.equal(theirs[name], torch.tensor(value))
    assert any(not torch.equal(first[name], x) for name, x in theirs.items())
    (folder / "model-00002-of-00002.safetensors").write_bytes(b"cut")
    assert "model-00002-of-00002.safetensors has 3 bytes" in problems(folder)[0]


def test_adapters_in_peft(tmp_path, base):
    trained, _ = on_ranks(2, language, tmp_path / "run", base, "lora")[0]
    folder = newest(tmp_path / "run" / "checkpoints")
    theirs = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), str(folder))
    own = dict(theirs.named_parameters())
    for name, value in trained.items():
        assert torch.equal(own[name], torch.tensor(value))
    assert any(bool(x.any()) for name, x in own.items() if "lora_B" in name)


def pictures(recipe):
    return finished(new_run(load_recipe(recipe, ["--training.parallel", "fsdp"])))


def went_on(folder):
    return finished(resumed_run(folder, ["--training.steps", "3"]))


def test_all_weights_in_diffusers_and_a_resume_of_one_process(tmp_path):
    from diffusers import SD3Transformer2DModel

    first = image_run(tmp_path, tiny_pipelines.sd3(tmp_path), "flow_grpo", lora=None)
    recipe = load_recipe(first / "config.toml").model_dump(exclude_none=True, mode="json")
    (tmp_path / "two.toml").write_text(tomli_w.dumps(recipe | {"folder": str(tmp_path / "two")}))
    trained, blocks = on_ranks(2, pictures, tmp_path / "two.toml")[0]
    folder = newest(tmp_path / "two" / "checkpoints")
    assert blocks == 2
    assert (folder / "diffusion_pytorch_model.safetensors.index.json").is_file()
    theirs = dict(SD3Transformer2DModel.from_pretrained(str(folder)).named_parameters())
    for name, value in trained.items():
        assert torch.equal(theirs[name], torch.tensor(value))
    on_ranks(2, went_on, tmp_path / "two")
