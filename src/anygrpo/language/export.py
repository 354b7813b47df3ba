"""A trained language model as files of the plain libraries: a PEFT folder, or a Hugging Face folder.

What was written is loaded by transformers (and PEFT) alone, in a process of its own, and compared with the training
pass; a folder that says something else is removed. See docs/language.md.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from anygrpo.core.device import of_a_child
from anygrpo.errors import ConfigError, TrainingError
from anygrpo.language.compute.head import BLOCK, score
from anygrpo.language.compute.log_probs import Targets
from anygrpo.language.compute.pictures import FIRST, Pictures
from anygrpo.language.export_page import model_card
from anygrpo.language.files import adapter_config, generation_config
from anygrpo.language.generation import Support
from anygrpo.language.merging import merged_model
from anygrpo.language.policy import CausalLM
from anygrpo.language.replay import listed
from anygrpo.language.ruler import base_of, ruler
from anygrpo.language.tasks.pictures import example
from anygrpo.models.origin import origin
from anygrpo.models.smollm2 import quiet
from anygrpo.scratch import Scratch
from anygrpo.spoken import Text

FORMATS = ("peft", "merged", "full")
"""peft: adapters alone; merged: adapters added to the base; full: all weights of a policy without adapters."""

PROMPTS = ("What is 12 + 30?", "Write one short sentence about the sea.", "为什么天空是蓝色的？", "List three colours.")
"""Prompts of the certificate where none are given."""

LIMIT = 1e-4
"""Nats that float32 log-probs may differ by."""
_OTHER_SUMS = 1 / 50
"""Share of a type's own loss that is nobody's fault: adapters added in another order (on a GPU) round a few weights the
other way. Of SmolLM2's 106 million in bfloat16 264 did, and cost 5e-5 nats."""

_PLACES, _COMPARED = 64, 64
"""Of each row in a narrow type: its last places, and the likeliest tokens compared at each."""

NEW = 12
"""Greedy tokens compared a prompt."""


def export(policy: CausalLM, folder: str | Path, format: str = "auto", prompts: Iterable[Any] = ()) -> list[Path]:
    """Write `folder` and certify it; the files written.

    Args:
        format: one of `FORMATS`; auto: peft of a policy with adapters, else full.
        prompts: on which the certificate compares; made up where none are given.

    Raises:
        ConfigError: a format that this policy does not have, or a folder that is not empty.
        TrainingError: the plain library does not give the policy's log-probs or greedy tokens.
    """
    lora = policy.config.train == "lora"
    format = ("peft" if lora else "full") if format == "auto" else format
    folder = Path(folder)
    if format not in FORMATS or (format == "full") == lora:
        fits = Text("peft or merged", "peft 或 merged") if lora else Text("full", "full")
        raise ConfigError(
            Text(
                f"format = {format!r} with train = {policy.config.train!r}",
                f"format = {format!r}，而 train = {policy.config.train!r}",
            ),
            Text("set format to ", "请把 format 设为 ") + fits,
        )
    start = origin(policy.config.model)
    if format == "peft" and start.kind != "plain":
        raise ConfigError(
            Text(
                f"format = peft, but training started from {policy.config.model}: {start.base} with more added, which "
                "no folder holds",
                f"format = peft，但训练从 {policy.config.model} 开始：{start.base} 加上其他权重，没有文件夹存有它",
            ),
            Text('set format = "merged"', '请设 format = "merged"'),
        )
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(
            Text(f"{folder} is not empty", f"{folder} 不是空的"),
            Text("name a folder that does not exist yet", "请给出尚不存在的文件夹"),
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".export-") as scratch:
        made = Path(scratch) / folder.name
        made.mkdir()
        write(policy, made, format)
        some = [example()] if policy.prompts.pictures else []
        certificate = certify(policy, made, format, list(prompts) or [*PROMPTS, *some])
        (made / "export.json").write_text(json.dumps(certificate, indent=1) + "\n")
        (made / "README.md").write_text(model_card(policy, folder.name, format, certificate))
        if folder.exists():
            folder.rmdir()
        shutil.move(made, folder)
    return sorted(folder.iterdir())


def write(policy: CausalLM, folder: Path, format: str) -> None:
    """The files alone, without a certificate."""
    with quiet():
        if format == "peft":
            module: Any = policy.weights.module
            module.save_pretrained(folder, save_embedding_layers=False)
            adapter_config(policy).save_pretrained(folder)
            (folder / "README.md").unlink(missing_ok=True)
        else:
            merged_model(policy).save_pretrained(folder)
        pictures = policy.prompts.pictures
        (pictures.processor if pictures else policy.prompts.tokenizer).save_pretrained(folder)
        generation_config(policy).save_pretrained(folder)


# -- the certificate ---------------------------------------------------------------------------------------------


@torch.no_grad()
def certify(policy: CausalLM, folder: Path, format: str, prompts: list[Any]) -> dict[str, Any]:
    """What a fresh process of the plain library says of the folder, beside what the policy says.

    In a narrow type the library's own loss between float32 and that type on the trained numbers (`ruler`) bounds the
    difference twice over; and the folder, taken as float32, must say what these numbers say, so that training smaller
    than the type's noise is not lost either.

    Raises:
        TrainingError: log-probs differ by more than `LIMIT` in float32 or that bound in a narrower type, by more than
            `LIMIT` or a fiftieth of that loss as float32; or a greedy token does.
    """
    ids = policy.prompts.encode(prompts, NEW)
    asked, own, tokens, greedy = _own_answers(policy, ids)
    dtype = str(policy.weights.dtype).removeprefix("torch.")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".export-") as place, Scratch("export") as scratch:
        question = {"folder": str(folder), "format": format, "dtype": dtype, "rows": asked, "prompts": ids,
                    "tokens": tokens, "base": base_of(policy, Path(place)) if format == "peft" else None,
                    "wide": ruler(policy, format, Path(place)), "ends": list(policy.prompts.ends),
                    "new": NEW}  # fmt: skip
        said = _asked_apart(question, policy.prompts.pictures, scratch)
    gap, unrounded = _gap(own, said["log_probs"], tokens, greedy), said["unrounded_gap"]
    limit, wide = (max(LIMIT, part * said["own_gap"]) for part in (2, _OTHER_SUMS))
    other = sum(a != b for a, b in zip(greedy, said["greedy"]))
    right = gap <= limit and unrounded <= wide and not (other and dtype == "float32")
    made = {"format": format, "certified": right, "dtype": dtype, "prompts": len(prompts), "limit": limit,
            "max_log_prob_gap": gap, "unrounded_gap": unrounded, "unrounded_limit": wide, "greedy_differ": other,
            "peft": said["peft"], "transformers": said["transformers"]}  # fmt: skip
    if not right:
        raise _other(made)
    return made


def _gap(one: list[Any], two: list[Any], tokens: list[Any], answers: list[list[int]]) -> float:
    """The largest difference at the answers' own tokens; NaN where there is one."""
    gaps = [torch.zeros(1)]
    for a, b, asked, answer in zip(one, two, tokens, answers):
        said = torch.tensor(asked)[-len(answer) :] == torch.tensor(answer)[:, None]
        gaps.append((torch.tensor(a) - torch.tensor(b)).abs()[-len(answer) :][said])
    return float(torch.cat(gaps).max())


def _other(made: dict[str, Any]) -> TrainingError:
    gap, limit, wide, least = (made[k] for k in ("max_log_prob_gap", "limit", "unrounded_gap", "unrounded_limit"))
    other, asked = made["greedy_differ"], made["prompts"]
    return TrainingError(
        Text(
            f"the exported folder differs from the policy: log-probs by {gap:.2g} nats (allowed {limit:.2g}), as "
            f"float32 by {wide:.2g} (allowed {least:.2g}), {other} of {asked} greedy answers",
            f"导出的文件夹与策略不同：对数概率相差 {gap:.2g} nat（允许 {limit:.2g}），按 float32 相差 {wide:.2g}（允许 "
            f"{least:.2g}），{asked} 个贪心回答中有 {other} 个不同",
        ),
        Text(
            "nothing was written; try another format, or report this model",
            "没有写入任何内容；请试另一种格式，或报告这个模型",
        ),
    )


def _own_answers(policy: CausalLM, ids: list[list[int]]) -> tuple[list[list[int]], list[Any], list[Any], list[Any]]:
    """(rows: prompt and greedy answer; log-probs [places, asked] at each row's last places; the asked ids, alike; the
    answers).

    Asked is each token of an answer. In a narrow type the likeliest ones in their place, and before the answer too: a
    type's step at a logit is met by few of the answers' tokens, and of few places one draw of the noise is no bound of
    another.
    """
    rollout = policy.answer(ids, NEW)
    answers = [row[:n] for row, n in zip(rollout.ids.tolist(), rollout.lengths.tolist())]
    rows, narrow = [p + a for p, a in zip(ids, answers)], policy.weights.dtype != torch.float32
    starts = [_start(row, len(p)) if narrow else len(p) for row, p in zip(rows, ids)]
    said = [row[n:] for row, n in zip(rows, starts)]
    samples = listed([row[:n] for row, n in zip(rows, starts)], said, policy.scorer.device)
    targets, model = Targets.of(samples, slice(0, max(map(len, said)))), policy.weights.training_model()
    hidden, head = policy.scorer.hidden(model, samples, targets), policy.scorer.head(model)
    if narrow:
        tops = [_likeliest(head.logits(part)) for part in hidden.split(BLOCK)]
        own, tokens = (torch.cat(parts) for parts in zip(*tops))
    else:
        own = score(hidden, head, targets.token, Support(), targets.decision).log_probs.float()[:, None]
        tokens = targets.token[:, None]
    values, asked = ([part.tolist() for part in x.cpu().split([*map(len, said)])] for x in (own, tokens))
    return rows, values, asked, answers


def _start(row: list[int], prompt: int) -> int:
    """Where the compared places begin: behind a prompt's pictures, the last `_PLACES` or the answer."""
    shown = max((place for place, token in enumerate(row) if token >= FIRST), default=0)
    return min(prompt, max(shown + 1, len(row) - _PLACES))


def _likeliest(logits: Tensor) -> tuple[Tensor, Tensor]:
    """(log-probs, ids) [n, at most 64] of the likeliest tokens."""
    top = logits.float().log_softmax(-1).topk(min(_COMPARED, logits.shape[-1]))
    return top.values, top.indices


def _asked_apart(spec: dict[str, Any], pictures: Pictures | None, scratch: Path) -> dict[str, Any]:
    """What a fresh process of the plain library answers."""
    spec = spec | _shown(spec, pictures, scratch / "pixels.safetensors")
    question, answer = scratch / "question.json", scratch / "answer.json"
    question.write_text(json.dumps(spec))
    script = Path(__file__).with_name("certificate.py")
    done = subprocess.run(
        [sys.executable, str(script), str(question), str(answer)],
        capture_output=True,
        text=True,
        check=False,
        env=of_a_child(),
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise TrainingError(
            Text(f"the plain library cannot load the export: {last}", f"原库无法加载导出：{last}"),
            Text("report this model", "请报告这个模型"),
        )
    return json.loads(answer.read_text())


def _shown(spec: dict[str, Any], pictures: Pictures | None, file: Path) -> dict[str, Any]:
    """Rows and prompts in the model's own ids, and where the pixels are that belong to them."""
    if pictures is None:
        return {"seen": None}
    pixels: dict[str, Tensor] = {}
    for number, ids in enumerate(spec["prompts"]):
        _, more = pictures.shown(torch.tensor([ids]))
        pixels |= {f"{number}.{name}": x.contiguous() for name, x in more.items() if name not in pictures.kinds}
    save_file(pixels, file)
    own = lambda rows: [pictures.own(torch.tensor(ids)).tolist() for ids in rows]  # noqa: E731
    seen = {"file": str(file), "token": pictures.token, "kinds": pictures.kinds}
    return {"rows": own(spec["rows"]), "prompts": own(spec["prompts"]), "seen": seen}
