"""Nothing but scoring: one step at rate 0, and samples scored again after a few updates."""

from __future__ import annotations

from typing import Any

from anygrpo.core.probe_outcome import Outcome
from anygrpo.doctor import Finding
from anygrpo.probes import parity
from anygrpo.probes.check import probe_stage
from anygrpo.probes.confirm.ground import Ground, Trial, subject_of
from anygrpo.probes.subject import Subject
from anygrpo.spoken import Text
from anygrpo.train.loop import train
from anygrpo.train.run import Run

_SCORER = ("ratio_one", "replay_parity")
_PROBES: dict[str, tuple[str, ...]] = {
    "wrong_reference": ("reference_kl",), "kl_far": ("reference_kl",), "z2": ("z2",),
    "zero_gradient": ("trainable", "gradient_terms"),
}  # fmt: skip
"""Rule -> probes of the run's own start that decide it; all others ask whether the scorer is the sampler."""
_UPDATES, _MOST_UPDATES = 4, 12
"""Updates between two looks at the sampler; until they show, but no more than these."""
_VISIBLE = 0.02
"""Change of a log-prob that no rounding makes."""


def zero_rate(ground: Ground, rule: str, finding: Finding | None) -> Trial:
    """At rate 0 nothing moves: ratios are 1, the KL to the start is 0, whatever the log shows later."""
    del finding
    with ground.subject() as subject:
        outcomes = probe_stage(subject, only=_PROBES.get(rule, _SCORER))
    bad = [o for o in outcomes if o.status in ("serious", "warning")]
    said = "; ".join(o.say("en") for o in (bad or outcomes)), "; ".join(o.say("zh") for o in (bad or outcomes))
    numbers = {"en": said[0], "zh": said[1]}
    if not bad and all(o.status == "not applicable" for o in outcomes):
        return Trial("undecided", Text("not decided: {en}", "无法判定：{zh}"), numbers)
    if rule == "log_ratio_explosion":  # the suspicion is that updates did it
        text = Text("at rate 0: {en}. So it was not the updates", "学习率为 0 时：{zh}。所以不是更新造成的")
        fine = Text("at rate 0: {en}. So the updates did it", "学习率为 0 时：{zh}。所以是更新造成的")
        return Trial("refuted", text, numbers) if bad else Trial("confirmed", fine, numbers)
    return Trial("confirmed" if bad else "refuted", Text("at rate 0: {en}", "学习率为 0 时：{zh}"), numbers)


def frozen_replay(ground: Ground, rule: str, finding: Finding | None) -> Trial:
    """Fresh samples scored before any update and after a few: the sampler has the newest weights, or is left behind."""
    del finding
    with ground.run() as run:
        first, step = subject_of(run, ground.seconds), run.step
        before, batch = _looks(first), first.everything()
        scores = first.score(batch)
        updates, moved = 0, 0.0
        while updates < _MOST_UPDATES and moved < _VISIBLE:
            _train(run, _UPDATES, step if updates == 0 else run.step)
            updates += _UPDATES
            moved = float((first.score(batch) - scores)[batch.mask].abs().max())
        after = _looks(subject_of(run, ground.seconds))
    numbers = {"before": _largest(before), "after": _largest(after), "updates": updates, "moved": moved}
    bad_before, bad_after = (any(o.status in ("serious", "warning") for o in looks) for looks in (before, after))
    if rule == "stale_rollouts" and moved < _VISIBLE and not bad_after:
        text = Text(
            "{updates} updates moved no log-prob by more than {moved:.1e}: too little to tell",
            "{updates} 次更新移动的对数概率不超过 {moved:.1e}：太少，无从判断",
        )
        return Trial("undecided", text, numbers)
    text = Text(
        "largest log-ratio of fresh samples: {before:.2g} before any update, {after:.2g} after {updates} updates that"
        " moved log-probs by up to {moved:.2g}",
        "新样本的最大对数比值：更新前 {before:.2g}；{updates} 次更新（对数概率最多移动 {moved:.2g}）后 {after:.2g}",
    )
    found = bad_after and not bad_before if rule == "stale_rollouts" else bad_before or bad_after
    return Trial("confirmed" if found else "refuted", text, numbers)


def _looks(subject: Subject) -> list[Outcome]:
    return [parity.ratio_one(subject), parity.replay_parity(subject)]


def _largest(outcomes: list[Outcome]) -> float:
    return max(float(o.numbers.get("abs_max", o.numbers.get("twice", 0.0))) for o in outcomes)


def _train(run: Run, steps: int, at: int) -> None:
    """A few steps of the run itself, from step `at`; what was probed before left no trace in them."""
    run.step, run.stop_reason = at, None
    end = at + steps

    def far_enough(row: dict[str, Any], own: Run) -> None:
        if row["step"] + 1 >= end:
            own.stop("far enough")

    run.observers.append(far_enough)
    train(run)
    run.observers.remove(far_enough)
    run.stop_reason = None
