"""What a stage's update will be, in words: denominator, which rows carry which term, clip, horizon, what is written and
read by nothing, and the nearest settings elsewhere. Printed by `anygrpo train --dry-run`; nothing is loaded."""

from __future__ import annotations

import json
from typing import Any

from anygrpo.choices.card import KINDS
from anygrpo.choices.catalogue import CARDS, card_of
from anygrpo.recipe.algorithm import AlgorithmConfig
from anygrpo.recipe.peers import TRL, VERL, Nearest, trl, verl
from anygrpo.recipe.recipe import Stage, largest_beta, number
from anygrpo.recipe.section import Schedule, Section
from anygrpo.spoken import Text, say

FIELDS = AlgorithmConfig.model_fields
_CHOSEN = {kind: key for kind, (where, *_) in KINDS.items() if (key := where.removeprefix("algorithm.")) in FIELDS}
"""Kind of card -> the key of [algorithm] that names it."""


def semantics(stage: Stage, policy: Section) -> list[tuple[str, str]]:
    """Label and text of each line of a stage's card."""
    a = stage.algorithm
    key = policy.limit_key
    limit = None if key is None else getattr(policy, key)
    lines = [(say("denominator", "分母"), _denominator(stage, limit, key)), (say("rows", "行"), _rows(stage))]
    if stage.method == "grpo":
        lines += [("KL", _kl(a)), (say("entropy", "熵"), _entropy(a)), (say("clip", "裁剪"), _clip(a, policy.own_clip))]
    if a.refill and stage.source == "policy" and stage.method == "grpo":
        lines.append((say("refill", "补采"), _refill(a)))
    if a.overlong_buffer:
        text = say(
            f"0 to -1 over the last {a.overlong_buffer} of {limit or 'the policy limit'} decisions",
            f"在 {limit or '策略上限'} 个决策的最后 {a.overlong_buffer} 个里从 0 降到 -1",
        )
        lines.append((say("overlong", "超长"), text))
    if unread := written_and_unread(stage):
        lines.append((say("read by nothing", "没有用到"), ", ".join(unread)))
    if stage.method == "grpo" and policy.language_peers:
        lines += _nearest(TRL, trl(a, stage.optimizer)) + _nearest(VERL, verl(a))
    return lines


def _denominator(stage: Stage, limit: int | None, key: str | None) -> str:
    a = stage.algorithm
    if stage.method == "rce":
        return say("valid rows: a mean over rows of summed cross-entropies", "有效的行：交叉熵按行求和，再取均值")
    card = card_of("reduction", a.reduction)
    if card is None:
        return say("your own function's", "由你的函数决定")
    text = f"{a.reduction}: {card.formula}"
    if a.reduction == "constant":
        own = f"{limit} ({key})" if limit else say("the policy's limit", "策略上限")
        text += say("; horizon ", "；horizon 为 ") + str(a.horizon if a.horizon is not None else own)
    counted = say("; groups without spread count", "；没有差异的组也计入") if stage.method == "grpo" else ""
    where = say(f", each of {a.minibatches} minibatches its own", f"，{a.minibatches} 个小批各算各的")
    where = where if a.minibatches > 1 else ""
    out = say("; filters other than drop_constant take rows out of it", "；drop_constant 以外的过滤器会从中去掉行")
    return text + counted + where + out


def _rows(stage: Stage) -> str:
    if stage.method == "supervised":
        return say("each prompt's best stored answers, all alike", "每个提示最好的存储答案，权重相同")
    if stage.method == "rce":
        return say("every stored answer, by the weight of its reward", "每个存储答案，按其奖励加权")
    card = card_of("objective", stage.algorithm.objective)
    if card is None:
        return say("policy loss: every row: your own objective", "策略损失：每一行（目标是你自己的函数）")
    return say(
        "policy loss: rows whose advantage is not 0; the others are skipped, and count",
        "策略损失：优势不为 0 的行；其余跳过，但计入分母",
    )


def _moves(value: float | Schedule) -> str:
    if not isinstance(value, Schedule):
        return f"{value:g}"
    return say(f"{value.start:g} to {value.end:g} ({value.kind})", f"{value.start:g} 到 {value.end:g}（{value.kind}）")


_EVERY = Text("every valid row, those without spread too", "每个有效的行，组内没有差异的也在内")


def _kl(a: AlgorithmConfig) -> str:
    if not largest_beta(a):
        return say("none: beta is 0", "没有：beta 为 0")
    within = f"[{a.beta_min:g}, {a.beta_max:g}]"
    moved = say(f", moved by {a.kl_controller} within {within}", f"，由 {a.kl_controller} 在 {within} 内调节")
    moved = "" if a.kl_controller == "fixed" else moved
    gradient = "new/old x (log new - log ref)"
    how = say(f"value {a.kl}, gradient {gradient}", f"数值用 {a.kl}，梯度为 {gradient}")
    how = say("exact", "精确") if a.kl == "exact" else how
    return _EVERY.said() + say(f"; weight {_moves(a.beta)}{moved}; {how}", f"；权重 {_moves(a.beta)}{moved}；{how}")


def _entropy(a: AlgorithmConfig) -> str:
    if not number(a.entropy_coef):
        return say("none: entropy_coef is 0", "没有：entropy_coef 为 0")
    return _EVERY.said() + say("; weight ", "；权重 ") + _moves(a.entropy_coef)


def _refill(a: AlgorithmConfig) -> str:
    kinds = [f.kind for f in a.filters]
    card = card_of("advantage", a.advantage)
    others = card is not None and (card.by_part or card.baseline != "group")  # see train.batches
    learn = others or a.credit != "outcome"
    replaced = [kind for kind in kinds if not (learn and kind == "drop_constant")]
    if not replaced:
        by = f'advantage = "{a.advantage}"' if others else f'credit = "{a.credit}"'
        why = say(
            f"; with {by} groups without spread learn too",
            f"；{by} 时，没有差异的组也提供学习信号",
        )
        why = why if "drop_constant" in kinds else ""
        return say("nothing to replace: no filter takes groups out", "无可补采：没有过滤器去掉整组") + why
    gone = say(
        "; groups without spread leave, and their KL and entropy with them", "；没有差异的组离开，其 KL 与熵也一并离开"
    )
    draws = say(
        f"up to {a.refill} further draws for groups that {', '.join(replaced)} name",
        f"为 {'、'.join(replaced)} 去掉的组最多再采 {a.refill} 次",
    )
    return draws + (gone if "drop_constant" in replaced else "")


def _clip(a: AlgorithmConfig, own: str) -> str:
    card = card_of("objective", a.objective)
    if card is not None and "clip_low" not in card.settings:
        return say(f"none: {a.objective} has no clip", f"没有：{a.objective} 不裁剪")
    chinese = own.replace(" unless it has one", "，除非它自带")
    type_own = say(f"the policy type's own ({own})", f"策略类型自己的值（{chinese}）")
    low, high = (type_own if value is None else _moves(value) for value in (a.clip_low, a.clip_high))
    if a.clip_low is None and a.clip_high is None:
        text = say(f"ratios, by {type_own}", f"裁剪概率比，范围是{type_own}")
    else:
        text = say(f"ratios from 1 - {low} to 1 + {high}", f"概率比从 1 - {low} 到 1 + {high}")
    text += "" if a.dual_clip is None else say(f", dual {a.dual_clip:g}", f"，双重裁剪 {a.dual_clip:g}")
    once = say(
        "; one update a rollout: it acts where the sampler is another policy, or never",
        "；每次采样只更新一次：除非采样的是另一个策略，否则裁剪从不起作用",
    )
    return text + (once if a.epochs * a.minibatches == 1 else "")


def written_and_unread(stage: Stage) -> list[str]:
    """Keys of [algorithm] that the recipe gives and that no choice of this stage reads."""
    a = stage.algorithm
    readers: dict[str, set[str]] = {}
    for kind, cards in CARDS.items():
        if kind in _CHOSEN:
            for card in cards.values():
                for setting in card.settings:
                    readers.setdefault(setting, set()).add(kind)
    unread = []
    given = {key for key in a.model_fields_set if getattr(a, key) != FIELDS[key].get_default(call_default_factory=True)}
    for key in sorted(given & readers.keys() - {"beta"}):
        chosen = {kind: getattr(a, _CHOSEN[kind]) for kind in readers[key]}
        if stage.method == "rce":
            chosen |= {"objective": "rce"} if "objective" in chosen else {}
        cards = [card_of(kind, choice) for kind, choice in chosen.items()]
        if not any(card is None or key in card.settings for card in cards):
            by = say(" or ", " 与 ").join(f"{_CHOSEN[kind]} = {json.dumps(choice)}" for kind, choice in chosen.items())
            unread.append(say(f"{key} (not by {by})", f"{key}（{by} 不用它）"))
    return unread


def _nearest(name: str, near: Nearest) -> list[tuple[str, str]]:
    spelt: Any = ", ".join(f"{key} = {json.dumps(value)}" for key, value in near.settings.items())
    return [
        (say(name, f"相当于 {name}"), spelt),
        *((say(f"{name.split()[0]} differs", f"{name.split()[0]} 不同"), text) for text in near.differs),
    ]
