"""Run as a file, in a process of its own: what transformers and PEFT alone make of an exported folder. Nothing of ours
is imported."""

import json
import sys

import torch


def load(spec, dtype):
    from transformers import AutoModelForCausalLM

    if spec["format"] != "peft":
        return AutoModelForCausalLM.from_pretrained(spec["folder"], dtype=dtype).eval()
    from peft import PeftModel

    base = AutoModelForCausalLM.from_pretrained(spec["base"], dtype=dtype)
    return PeftModel.from_pretrained(base, spec["folder"]).eval()


def log_probs(model, spec):
    out = []
    for row, prompt in zip(spec["rows"], spec["prompts"]):
        ids = torch.tensor(row)
        logits = model(input_ids=ids[None]).logits[0].float().log_softmax(-1)
        start = len(prompt)
        out.append(logits[start - 1 : len(row) - 1].gather(1, ids[start:, None])[:, 0].tolist())
    return out


def greedy(model, prompt, ends, new):
    """The likeliest token each time, whole rows again: no cache and no settings can come between."""
    ids = list(prompt)
    for _ in range(new):
        ids.append(int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
        if ids[-1] in ends:
            break
    return ids[len(prompt) :]


def main():
    import peft
    import transformers

    transformers.utils.logging.set_verbosity_error()
    with open(sys.argv[1], encoding="utf-8") as file:
        spec = json.load(file)
    dtype = getattr(torch, spec["dtype"])
    with torch.no_grad():
        model = load(spec, dtype)
        said = {"log_probs": log_probs(model, spec), "transformers": transformers.__version__, "peft": peft.__version__}
        said["greedy"] = [greedy(model, prompt, spec["ends"], spec["new"]) for prompt in spec["prompts"]]
        said["own_gap"] = 0.0
        if dtype != torch.float32:
            wide = log_probs(load(spec, torch.float32), spec)
            pairs = [(a, b) for x, y in zip(wide, said["log_probs"]) for a, b in zip(x, y)]
            said["own_gap"] = max((abs(a - b) for a, b in pairs), default=0.0)
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump(said, file)


if __name__ == "__main__":
    main()
