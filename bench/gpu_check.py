"""Exactness on a GPU: shared against plain passes, captured against eager decoding. Prints one JSON object.

PYTHONPATH=src python3 bench/gpu_check.py [--model shape:qwen2.5-0.5b]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from anygrpo.bench.cases import model_folder, prompt_texts
from anygrpo.language import build as causal_lm
from anygrpo.language.compute.capability import Ability
from anygrpo.language.engine.group import generate_groups
from anygrpo.language.settings import CausalLMConfig


def check(folder: str, dtype: str) -> dict[str, Any]:
    """Largest differences of log-probs (nats), and of gradients relative to their norm."""
    config = CausalLMConfig(
        kind="causal_lm",
        model=folder,
        dtype=dtype,
        train="all",
        chat_template=False,
        max_new_tokens=160,  # type: ignore[arg-type]
    )
    policy = causal_lm.build(config, seed=0)
    prompts = [{"prompt": t} for t in prompt_texts(policy.prompts.tokenizer, 3, 200)]
    rollout = policy.sample(prompts, 4, seed=0)
    rows = {name: x.flatten(0, 1) for name, x in rollout.samples.items()}
    ids = policy.prompts.encode(prompts, 0)
    engine = policy.engine
    decoder = next(iter(engine._captured.decoders.values()))
    sampling = decoder.sampling
    captured = engine._captured.generate(engine._head(engine.model), ids, 4, sampling, seed=0)
    eager = generate_groups(engine.model, engine._head(engine.model), ids, 4, sampling, seed=0)
    width = min(captured.ids.shape[1], eager.ids.shape[1])
    same = (captured.ids[:, :width] == eager.ids[:, :width]).cumprod(1).bool()
    able, gradients, scores = policy.scorer.ability, [], []
    for ability in (able, Ability(False)):
        policy.scorer.ability = ability
        policy.trainable().zero_grad(set_to_none=True)
        scores.append(policy.evaluate(rows, slice(0, rollout.shape[2])).log_probs)
        scores[-1].sum().backward()
        gradients.append({n: p.grad.clone() for n, p in policy.trainable().named_parameters()})
    a, b = gradients
    far = sum((a[n] - b[n]).double().square().sum() for n in a).sqrt()
    return {
        "dtype": dtype,
        "ability": str(able),
        "graphs": decoder.capture,
        "sampler_to_training_log_prob": policy.parity,
        "shared_to_plain_log_prob": (scores[0] - scores[1]).abs().max().item(),
        "shared_to_plain_gradient": (far / sum(x.double().square().sum() for x in b.values()).sqrt()).item(),
        "captured_to_eager_same_tokens": same.float().mean().item(),
        "captured_to_eager_log_prob": (captured.log_probs - eager.log_probs)[:, :width][same].abs().max().item(),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="shape:qwen2.5-0.5b")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = model_folder(args.model, Path(scratch))
        for dtype in ("float32", "bfloat16"):
            print(json.dumps(check(folder, dtype)), flush=True)


if __name__ == "__main__":
    main()
