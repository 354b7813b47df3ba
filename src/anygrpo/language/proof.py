"""The model proved by trying, once, when it is loaded: each of our ways against the library's own forward.

A ladder for each job. The first way that gives what the library gives is taken, and what was left to the library is
said once. Nothing is decided by a model's name.
"""

from __future__ import annotations

import logging
import types
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor, nn

from anygrpo.errors import ConfigError
from anygrpo.language.adapters import Adapters
from anygrpo.language.compute.bodies import body_of
from anygrpo.language.compute.capability import PLAIN, Ability, ability
from anygrpo.language.compute.head import score
from anygrpo.language.compute.log_probs import Scorer, Targets
from anygrpo.language.compute.output_layer import HeadForm, found_forms, head_of
from anygrpo.language.compute.paths import Paths, Sampling
from anygrpo.language.compute.support import restrict
from anygrpo.language.compute.trial import COMPLETIONS, Trial, attempt, difference, named, own_logits
from anygrpo.language.generation import Sampling as Generating
from anygrpo.language.generation import Support
from anygrpo.language.kernels.gated import fuse_gates
from anygrpo.language.kernels.linear import fuse_linears
from anygrpo.language.kernels.norms import fuse_norms
from anygrpo.language.kernels.rotary import fuse_rotary
from anygrpo.language.kernels.together import fuse_together
from anygrpo.language.probed_gradients import apart, gradients_of, probed_of
from anygrpo.spoken import Text

if TYPE_CHECKING:
    from anygrpo.language.body import Weights

log = logging.getLogger("anygrpo")

KERNELS: dict[str, Callable[[nn.Module], int]] = {
    "gated feed-forward": fuse_gates,
    "norm": fuse_norms,
    "rotary": fuse_rotary,
    "linear": fuse_linears,
    "products together": fuse_together,
}


def put_in(model: nn.Module, kernels: tuple[str, ...]) -> None:
    """These functions in place of the library's, in this model."""
    for name in kernels:
        KERNELS[name](model)


def proved_kernels(model: nn.Module, trained: list[nn.Parameter], trial: Trial) -> tuple[tuple[str, ...], list[str]]:
    """(names of the functions that give what the library's give on this model, why others do not). They stay in.

    Values with a graph and without, and gradients of some of what is `trained`.
    """
    on_cpu = next(model.parameters()).device.type == "cpu"
    probed = probed_of(trained)
    wanted = _answer(model, trial, probed)
    good, notes = [], []
    for name, put in KERNELS.items():
        if on_cpu == (name == "products together") and name in ("linear", "products together"):
            continue
        before = {id(m): m.__dict__.get("forward") for m in model.modules()}
        problem = attempt(lambda put=put: _unlike(model, trial, probed, wanted) if put(model) else "")
        if problem is None:
            good.append(name)
            continue
        _restore(model, before)
        if problem:
            notes.append(f"the library's own {name} is kept ({problem})")
    return tuple(good), notes


def proved_adapters(core: nn.Module, trial: Trial) -> tuple[Adapters | None, list[str]]:
    """Our pass through the adapters of `core` where it gives PEFT's numbers and gradients, else None and why."""
    probed = probed_of([p for n, p in core.named_parameters() if p.requires_grad])
    wanted = _answer(core, trial, probed)
    ours = Adapters(core)

    def wrong() -> str | None:
        ours.refresh()
        ours.bind()
        return _unlike(core, trial, probed, wanted)

    problem = attempt(wrong)
    if problem is None:
        return ours, []
    ours.release()
    return None, [f"PEFT's own pass through adapters is kept ({problem})"]


Answer = tuple[Tensor, Tensor, list[Tensor]]
"""Logits [n, V] without a graph, with one, and gradients."""


def _answer(model: nn.Module, trial: Trial, probed: list[nn.Parameter]) -> Answer:
    ids = trial.rows[0]
    with torch.no_grad():
        plain = own_logits(model, ids)
    made = own_logits(model, ids)
    return plain, made.detach(), gradients_of(made.float().log_softmax(-1)[:, 7], probed)


def _unlike(model: nn.Module, trial: Trial, probed: list[nn.Parameter], wanted: Answer) -> str | None:
    """What differs from an earlier answer of the model."""
    made = _answer(model, trial, probed)
    for ours, theirs in zip(made[:2], wanted[:2]):
        gap = difference(ours.float().log_softmax(-1), theirs.float().log_softmax(-1), theirs)
        if gap is not None:
            return f"log-probs differ by {gap:.2g}"
    return apart(made[2], wanted[2], wanted[0].dtype)


def _restore(model: nn.Module, before: dict[int, Any]) -> None:
    for module in model.modules():
        held = before.get(id(module))
        if held is None:
            module.__dict__.pop("forward", None)
        elif isinstance(held, types.MethodType):
            module.forward = held


def prove_scoring(weights: Weights, trial: Trial, wanted: str, precise: bool) -> Paths:
    """The first way to score on the ladder that gives the library's log-probs and gradients.

    Raises:
        ConfigError: attention = "shared" of a model that cannot; no way at all.
    """
    model = weights.training_model()
    probed = probed_of(weights.parameters())
    own = trial.own(model)
    truth = trial.log_probs(own)
    slope = gradients_of(truth, probed)
    problems: list[str] = []
    can = ability(model, "plain" if trial.apart else wanted, trial.text)
    if trial.apart:  # what a few tokens and small weights may not show
        can = Ability(False, reason=f"prompts are not shared, since {trial.apart}")
        if wanted == "shared":
            raise ConfigError(
                Text(f'attention = "shared": {can.reason}', f'attention = "shared"：{can.reason}'),
                Text('set attention = "auto" or "plain"', '请设 attention = "auto" 或 "plain"'),
            )
    form = _form(model, trial, own[0], precise)
    ladder = [Paths(replace(can), form)] if can.shared and form is not None else []
    plain = Ability(False, reason="" if can.shared else can.reason)
    ladder += [Paths(plain, f, padded) for f in ([form] if form else []) + [None] for padded in (True, False)]
    for paths in ladder:

        def wrong(paths: Paths = paths) -> str | None:
            made = _scored(weights, trial, paths, precise)
            if (gap := difference(made, truth, own[0])) is not None:
                return f"log-probs differ by {gap:.2g}"
            return apart(gradients_of(made, probed), slope, own[0].dtype)

        problem = attempt(wrong)
        if problem is None:
            return replace(paths, notes=tuple(_said(paths, problems, form)))
        problems.append(problem)
        if paths.ability.shared and wanted == "shared":
            raise ConfigError(
                Text(f'attention = "shared": {problem}', f'attention = "shared"：{problem}'),
                Text('set attention = "auto" or "plain"', '请设 attention = "auto" 或 "plain"'),
            )
    raise ConfigError(
        Text(
            f"{named(model)} cannot be scored: {'; '.join(dict.fromkeys(problems))}",
            f"无法给 {named(model)} 评分：{'; '.join(dict.fromkeys(problems))}",
        ),
        Text(
            "its own forward gives other numbers when it is asked again; train another model",
            "再次询问时，它自己的前向计算给出别的数；请训练另一个模型",
        ),
    )


def _said(paths: Paths, problems: list[str], form: HeadForm | None) -> list[str]:
    notes = []
    if paths.ability.shared:
        notes += [paths.ability.reason] if paths.ability.reason else []
    elif paths.ability.reason != PLAIN:
        since = problems[0] if problems and form else "logits come from the model itself"
        notes.append(paths.ability.reason or f"prompts are not shared, since {since}")
    if paths.form is None:
        notes.append("logits come from the model's own forward" + ("" if form else ", whose output layer is its own"))
    if not paths.padded:
        notes.append(f"rows are scored without padding ({problems[-1]})")
    return notes


def _form(model: nn.Module, trial: Trial, logits: Tensor, precise: bool) -> HeadForm | None:
    """The constants with which a linear head reproduces the model's logits, or None."""

    def found() -> HeadForm | None:
        with torch.no_grad():
            out = body_of(model)(input_ids=trial.rows[0][None], use_cache=False)
            hidden = out.last_hidden_state[0]
            for form in found_forms(model, hidden, logits):
                made = head_of(model, precise, form).logits(hidden)
                same = made.shape == logits.shape
                if same and difference(made.float().log_softmax(-1), logits.float().log_softmax(-1), logits) is None:
                    return form
        return None

    try:
        return found()
    except Exception:  # no output layer, or none of the usual form: the model itself is asked
        return None


def _scored(weights: Weights, trial: Trial, paths: Paths, precise: bool) -> Tensor:
    """[m] log-probs of the trial's completions by our pass, with a graph."""
    samples, model = trial.samples, weights.training_model()
    scorer = Scorer(samples["prompt_ids"].device, precise, paths)
    targets = Targets.of(samples, slice(0, max(COMPLETIONS)))
    hidden = scorer.hidden(model, samples, targets)
    return score(hidden, scorer.head(model), targets.token, Support(), targets.decision).log_probs


def prove_sampling(
    weights: Weights, paths: Paths, trial: Trial, engine_of: Callable[[nn.Module, Paths], Any]
) -> tuple[Paths, Any]:
    """(the paths with which generated tokens have the library's log-probs, the engine that does so).

    Args:
        engine_of: (model, paths) -> the built-in engine on it.

    Raises:
        ConfigError: no way at all.
    """
    problems: list[str] = [trial.apart] if trial.apart else []

    def right(paths: Paths, model: nn.Module, what: str) -> bool:
        problem = attempt(lambda: _sampled_wrong(weights, paths, trial, engine_of, model))
        if problem is not None:
            problems.append(f"{what}: {problem}")
        return problem is None

    for live in (True,) if weights.live else (False, True):
        model = weights.sample_live() if live else weights.sampler
        plain = [
            replace(paths, ability=Ability(False), sampling=way) for way in get_args(Sampling)[bool(trial.apart) :]
        ]
        taken = next((p for p in plain if right(p, model, p.sampling)), None)
        if taken is None:
            continue
        notes, can = list(paths.notes), paths.ability
        if taken.sampling != "padded":
            notes.append(f"generation {_WAYS[taken.sampling]} ({problems[-1]})")
        if can.shared and not right(replace(paths, sampling=taken.sampling), model, "groups"):
            notes.append(f"prompts are not shared, since in generation {problems[-1]}")
            can = Ability(False, reason=problems[-1])
        made = replace(paths, ability=can, sampling=taken.sampling, notes=tuple(notes))
        return made, engine_of(model, made)
    raise ConfigError(
        Text(
            f"{named(weights.training_model())} cannot generate: {'; '.join(problems)}",
            f"{named(weights.training_model())} 不能生成：{'; '.join(problems)}",
        ),
        Text("train another model", "请训练另一个模型"),
    )


_WAYS = {"cached": "is the library's own", "whole": "computes whole rows again for each token"}


def _sampled_wrong(
    weights: Weights, paths: Paths, trial: Trial, engine_of: Callable[[nn.Module, Paths], Any], model: nn.Module
) -> str | None:
    """Do a few sampled tokens have the log-probs that the training model's own forward gives them?"""
    engine = engine_of(model, paths)
    engine.refresh(weights.merged())
    trained = weights.training_model()
    config: Any = trained.config
    size = config.get_text_config().vocab_size
    # Every second token ends an answer, so that rows leave at different times.
    support = Support(eos_ids=tuple(range(0, size, 2)), never=trial.never)
    made = engine.generate(trial.prompts, 2, Generating(support, 5), 0)
    with torch.no_grad():
        for i, (ids, count) in enumerate(zip(made.ids, made.lengths.tolist())):
            prompt = torch.tensor(trial.prompts[i // 2])
            row = torch.cat([prompt, ids[:count]]).to(trial.rows[0].device)
            logits = own_logits(trained, row)
            place = slice(len(prompt) - 1, len(row) - 1)
            z = restrict(logits[place], Support(never=trial.never), torch.zeros(count, device=row.device))
            own = z.log_softmax(-1).gather(1, row[len(prompt) :, None])[:, 0]
            gap = difference(made.log_probs[i, :count].to(own.device), own, logits)
            if gap is not None:
                return f"sampled log-probs differ by {gap:.2g}"
    return None
