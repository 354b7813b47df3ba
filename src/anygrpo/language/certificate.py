"""Run as a file, in a process of its own: what transformers and PEFT alone make of an exported folder. Nothing of ours
is imported."""

import json
import sys
from typing import Any

import torch


def load(spec, dtype):
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    kind = AutoModelForImageTextToText if spec["seen"] else AutoModelForCausalLM
    if spec["format"] != "peft":
        return kind.from_pretrained(spec["folder"], dtype=dtype).eval()
    from peft import PeftModel

    base = kind.from_pretrained(spec["base"], dtype=dtype)
    return PeftModel.from_pretrained(base, spec["folder"]).eval()


def inputs(spec, number, ids, dtype):
    """Arguments of the model's forward for a prompt's ids, its pictures among them."""
    made, seen = {"input_ids": ids[None]}, spec["seen"]
    if not seen:
        return made
    from safetensors.torch import load_file

    mine = {n.partition(".")[2]: x for n, x in load_file(seen["file"]).items() if n.startswith(f"{number}.")}
    if mine:
        made |= {n: x.to(dtype) if x.is_floating_point() else x for n, x in mine.items()}
        made |= {n: (ids == seen["token"]).long()[None] * value for n, value in seen["kinds"].items()}
    return made


def said_of(model, spec):
    """Log-probs [positions, vocabulary] of each row."""
    dtype = next(model.parameters()).dtype
    for number, row in enumerate(spec["rows"]):
        yield model(**inputs(spec, number, torch.tensor(row), dtype)).logits[0].float().log_softmax(-1)


def log_probs(model, spec):
    """[places, asked] of the asked ids (`spec["tokens"]`) at each row's last places, a tensor for each row."""
    out = []
    for row, asked, said in zip(spec["rows"], spec["tokens"], said_of(model, spec)):
        out.append(said[len(row) - 1 - len(asked) : len(row) - 1].gather(1, torch.tensor(asked)))
    return out


def greedy(model, spec, number):
    """The likeliest token each time, whole rows again: no cache and no settings can come between."""
    prompt, dtype = spec["prompts"][number], next(model.parameters()).dtype
    ids = list(prompt)
    for _ in range(spec["new"]):
        logits = model(**inputs(spec, number, torch.tensor(ids), dtype)).logits[0, -1]
        if spec["seen"]:
            logits[spec["seen"]["token"]] = float("-inf")
        ids.append(int(logits.argmax()))
        if ids[-1] in spec["ends"]:
            break
    return ids[len(prompt) :]


def gap(one, two):
    """The largest difference; NaN where there is one."""
    return float(torch.cat([(a - b).abs().flatten() for a, b in zip(one, two)]).max())


def rounded(model, dtype):
    """Its weights, adapters apart, in the narrow type and written as float32."""
    for name, p in model.named_parameters():
        if ".lora_" not in name:
            p.data = p.data.to(dtype).float()
    return model


def measured(spec, dtype):
    """(what the narrow type costs in the library on the trained numbers; how far the folder, as float32, is from them).

    Both over the tokens that the policy is compared at. The library merges adapters by itself where a merged folder is
    judged: no pass of the ruler is the folder's.
    """
    other, adapters = spec | spec["wide"], spec["wide"]["format"] == "peft"
    merges = adapters and spec["format"] != "peft"
    merged: Any = lambda model: model.merge_and_unload() if merges else model  # noqa: E731
    wide = log_probs(load(other, torch.float32), spec)
    own = gap(wide, log_probs(merged(load(other, dtype)), spec))
    if spec["format"] == "peft":  # its base may be wider in its folder than in training
        folder = load(spec, torch.float32) if adapters else load(spec, dtype).float()
        return own, gap(wide, log_probs(folder, spec))
    # What it may hold: the base of the narrow type and the training, added and cast once.
    wide = log_probs(rounded(merged(rounded(load(other, torch.float32), dtype)), dtype), spec)
    return own, gap(wide, log_probs(load(spec, torch.float32), spec))


def main():
    import peft
    import transformers

    transformers.utils.logging.set_verbosity_error()
    with open(sys.argv[1], encoding="utf-8") as file:
        spec = json.load(file)
    dtype = getattr(torch, spec["dtype"])
    with torch.no_grad():
        model = load(spec, dtype)
        found = [row.tolist() for row in log_probs(model, spec)]
        said = {"log_probs": found, "transformers": transformers.__version__, "peft": peft.__version__}
        said["greedy"] = [greedy(model, spec, number) for number in range(len(spec["prompts"]))]
        del model
        said["own_gap"], said["unrounded_gap"] = measured(spec, dtype) if spec["wide"] else (0.0, 0.0)
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump(said, file)


if __name__ == "__main__":
    main()
