"""A checkpoint's folder is what the policy's own library loads, at the trained strength, without an export."""

import json
import subprocess
import sys

import pytest
import tiny_pipelines
import torch
from golden_runs import golden, image_run, trained

import anygrpo
from anygrpo.train import checkpoint

APART = {
    "peft": """
import sys, json, torch
from transformers import AutoModelForCausalLM
from peft import PeftModel
base = AutoModelForCausalLM.from_pretrained(sys.argv[2], dtype=torch.float32)
model = PeftModel.from_pretrained(base, sys.argv[1]).eval()
""",
    "transformers": """
import sys, json, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
""",
}
_LOGITS = """
assert not any(name.startswith("anygrpo") for name in sys.modules)
ids = torch.arange(3, 15)[None]
print(json.dumps(model(input_ids=ids).logits[0].log_softmax(-1).tolist()))
"""


def said_by_another_process(text: str, *words: str):
    done = subprocess.run([sys.executable, "-c", text, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("train", ["lora", "all"])
def test_a_language_models_checkpoint_in_peft_and_transformers(tmp_path, train):
    golden.language(tmp_path)
    case = golden.cases()["language_lora_centred_k3"]
    changed = case["policy"] | {"train": train} | ({} if train == "lora" else {"dtype": "float32"})
    run = trained(tmp_path, "language_lora_centred_k3", policy=changed, optimizer={"learning_rate": 0.03})
    best = run / "checkpoints" / "best"
    folder = best if best.is_dir() else checkpoint.newest(run / "checkpoints")
    base = anygrpo.load(run).recipe.policy.model
    text = APART["peft" if train == "lora" else "transformers"] + _LOGITS
    theirs = torch.tensor(said_by_another_process(text, str(folder), str(base)))
    opened = anygrpo.load(folder)
    ids = torch.arange(3, 15)[None]
    with torch.no_grad():
        ours = opened.policy.weights.training_model()(input_ids=ids).logits[0].float().log_softmax(-1)
        with opened.policy.reference():
            before = opened.policy.weights.training_model()(input_ids=ids).logits[0].float().log_softmax(-1)
    assert (theirs - ours).abs().max() < 1e-4
    assert (theirs - before).abs().max() > 1e-3
    again = anygrpo.load(str(folder), like=opened.recipe.policy)
    assert again.step == opened.step
    assert not checkpoint.problems(folder)


_LORA = """
import sys, json, torch
from diffusers import DiffusionPipeline
from safetensors.torch import load_file
pipe = DiffusionPipeline.from_pretrained(sys.argv[2], local_files_only=True)
pipe.load_lora_weights(sys.argv[1])
assert not any(name.startswith("anygrpo") for name in sys.modules)
model = getattr(pipe, sys.argv[4])
call = load_file(sys.argv[3])
call.pop("output")
given = {}
for name, x in call.items():
    head, _, rest = name.partition("/")
    if rest:
        given.setdefault(head, {})[rest] = x
    else:
        given[head] = x
with torch.no_grad():
    out = model(**given, return_dict=False)[0]
print(json.dumps(out.flatten().tolist()))
"""


@pytest.mark.parametrize(("kind", "sampler"), [("sd15", "ddim"), ("sd3", "flow_grpo")])
def test_a_pipelines_checkpoint_in_diffusers_at_its_strength(tmp_path, kind, sampler):
    pipe = str(getattr(tiny_pipelines, kind)(tmp_path))
    run = image_run(tmp_path, pipe, sampler)
    opened = anygrpo.load(run)
    folder = run / "checkpoints" / "best"
    from safetensors.torch import save_file

    from anygrpo.denoising.call import record_call

    call = record_call(opened.policy)
    save_file(call, tmp_path / "call.safetensors")
    component = "unet" if kind == "sd15" else "transformer"
    words = (str(folder), pipe, str(tmp_path / "call.safetensors"), component)
    theirs = torch.tensor(said_by_another_process(_LORA, *words))
    wanted = call["output"].flatten()
    with opened.policy.reference():
        base = record_call(opened.policy)["output"].flatten()
    assert (wanted - base).abs().max() > 100 * (theirs - wanted).abs().max()
    assert (theirs - wanted).abs().max() <= 1e-4 * wanted.abs().max()
