"""What the doctor does about a finding: lower the rate, raise the KL weight, narrow the clip, go back, stop.

Pure decisions on plain numbers: the levers belong to whoever owns the training loop. Every action carries its
reason, there are at most `max_actions`, and each turn is taken back once the run has stayed calm.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from anygrpo.doctor import Finding
from anygrpo.watch.belief import WINDOW, Belief
from anygrpo.watch.levers import Levers, Setting


@dataclass(frozen=True)
class Remedy:
    """How one trouble is met. Numbers are factors on what is in force; `beta_at_least` and `clip` are absolute.

    Attributes:
        back: go back to a checkpoint from before the trouble.
        level: a graver remedy may follow a lighter one at once; others wait.
        stop: no lever helps.
    """

    why: str
    learning_rate: float = 1.0
    beta: float = 1.0
    beta_at_least: float = 0.0
    clip: float = 1.0
    back: bool = False
    level: int = 1
    stop: bool = False


_RATIO = "largest |log-ratio| per decision to the behaviour policy is {value:.3g}{unit}"
TIERS: tuple[tuple[float, Remedy], ...] = (
    (20.0, Remedy(_RATIO + ", above 20", 0.01, beta_at_least=2.0, clip=0.5, back=True, level=3)),
    (10.0, Remedy(_RATIO + ", between 10 and 20", 0.05, beta_at_least=1.0, clip=0.5, level=2)),
    (5.0, Remedy(_RATIO + ", between 5 and 10", 0.1, beta_at_least=0.5, level=1)),
)
"""log_ratio_explosion. The published tiers are rates of 1e-6, 5e-7 and 1e-7; here they are factors on the recipe's own
rate, which suits policies of every size. They are made for decisions clipped at TIERS_CLIP: `Actor.unit`."""
TIERS_CLIP = 0.2

_NO_LEVER = "; no lever mends that"
REMEDIES: dict[str, Remedy] = {
    "markov_bound": Remedy("the samples were not drawn by what scores them" + _NO_LEVER, stop=True, level=4),
    "saturated_clamp": Remedy("ratios sit at a clamp and have no gradient" + _NO_LEVER, stop=True, level=4),
    "z2": Remedy("the scorer is not the sampler" + _NO_LEVER, stop=True, level=4),
    "kl_blowup": Remedy("the KL to the reference has blown up without gain", 1 / 3, 5.0, 0.05, back=True),
    "lr_too_large": Remedy("the rate is too large for its warm-up", 0.2, back=True),
    "validation_drop": Remedy("held-out results are below their best by over two standard errors", 0.5, back=True),
    "late_collapse": Remedy("the reward has fallen from its peak and stays there", 0.5, back=True),
}
"""By rule of the doctor. Those that stop the run are believed only where they are certain."""

_SOUND_ROWS = 2
"""A scorer that is not the sampler is so from the first row. Ratios that jump after so many sound rows have another
cause, a step too far, and are met by their tier: the run goes back."""

_COUNTS = ("_since_action", "_level", "_quiet", "_broken", "_healthy_step", "_sound", "_rows")
EARLIER = "earlier"
"""In place of a rule, where what is taken back was done in another mode."""
_NON_FINITE_STEPS = 3
NON_FINITE = Remedy("{value:.0f} steps in a row had a gradient or loss that is not finite", 0.3, back=True, level=2)


@dataclass(frozen=True)
class Action:
    """One thing done, for doctor.json and the log.

    Attributes:
        kind: "turn", "roll_back", "stop" or "relax" (an earlier turn taken back, or half way back).
        before, after: the factors on the run's own schedules.
        checkpoint: where the run went back to.
    """

    step: int
    kind: str
    rule: str
    reason: str
    before: Setting
    after: Setting
    checkpoint: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        """One line for a person."""
        after = asdict(self.after)
        changes = [f"{name} {a:g} -> {after[name]:g}" for name, a in asdict(self.before).items() if after[name] != a]
        where = f", back to {self.checkpoint}" if self.checkpoint else ""
        turned = f"; {', '.join(changes)}" if changes else ""
        return f"doctor {self.kind} ({self.rule}): {self.reason}{where}{turned}"


@dataclass
class Actor:
    """Decides on each row, and pulls the levers.

    Args:
        levers: of the loop.
        max_actions: turns, roll-backs and stops together; taking a turn back does not count.
        wait: rows after an action before another one of the same level or a lower one.
        calm: rows without trouble after which the last turn is taken back, in steps of at most a square root.
        unit: log-ratios are measured in it: the policy type's own clip range over TIERS_CLIP. A denoising step whose
            log-ratio is centred is clipped at 0.025; a log-ratio of 3 is as far from that as 24 from a token's 0.2.
        belief: asks for persistence and a second witness; None acts on every trouble in its first row.
    """

    levers: Levers
    max_actions: int
    wait: int = 10
    calm: int = 50
    unit: float = 1.0
    belief: Belief | None = field(default_factory=Belief)
    actions: list[Action] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.setting = Setting()
        self._undo: list[Setting] = []
        self._since_action, self._level = self.wait, 0
        self._quiet, self._broken, self._healthy_step, self._sound = 0, 0, 0, 0
        self._rows, self._signs = 0, deque[tuple[int, int]](maxlen=WINDOW)  # (row, step) of the last troubled rows

    def state(self) -> dict[str, Any]:
        """All that later decisions rest on, as plain data, for `load`."""
        return {
            "setting": asdict(self.setting),
            "undo": [asdict(one) for one in self._undo],
            "actions": [one.as_dict() for one in self.actions],
            "counts": [getattr(self, name) for name in _COUNTS],
            "signs": [list(sign) for sign in self._signs],
            "belief": None if self.belief is None else self.belief.state(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on as the actor whose `state` this is. The levers are not pulled: the run has its controls itself."""
        self.setting, self._undo = Setting(**state["setting"]), [Setting(**one) for one in state["undo"]]
        settings = lambda one: {key: Setting(**one[key]) for key in ("before", "after")}  # noqa: E731
        self.actions = [Action(**(one | settings(one))) for one in state["actions"]]
        for name, count in zip(_COUNTS, state["counts"], strict=True):
            setattr(self, name, int(count))
        self._signs.clear()
        self._signs.extend((int(row), int(step)) for row, step in state["signs"])
        if self.belief is not None and state["belief"] is not None:
            self.belief.load(state["belief"])

    def answers_for(self, acts: Actor | None, setting: Setting) -> None:
        """What it has seen stays; of what was done only `acts` counts (None: nothing), and `setting` is in force.

        For a run that goes on in another mode: what a shadow would have done has not happened, and the other way round.
        """
        self.setting, self.actions = setting, [] if acts is None else list(acts.actions)
        untouched = [] if setting == Setting() else [Setting()]
        self._undo = untouched if acts is None else list(acts._undo)
        self._since_action, self._level, self._quiet = self.wait, 0, 0

    @property
    def taken(self) -> int:
        return sum(a.kind != "relax" for a in self.actions)

    def consider(self, row: Mapping[str, Any], findings: Sequence[Finding], since: int | None = None) -> Action | None:
        """Look at a step's numbers and at what the doctor has just found.

        Args:
            since: step at which the trouble found begins, where the finding names one.
        """
        step = int(row.get("step", 0))
        self._since_action += 1
        self._rows += 1
        trouble = self._trouble(row, findings)
        value = _log_ratio(row) / self.unit
        if trouble is None and self.belief is not None:
            self.belief.calm(row, value)
        if trouble is None:
            self._quiet += 1
            self._sound += 1
            if self._broken == 0:
                self._healthy_step = step
            return self._relax(step) if self._quiet >= self.calm and self._undo else None
        self._quiet = 0
        self._signs.append((self._rows, step))
        rule, remedy, value = trouble
        tier = rule == "log_ratio_explosion"
        if tier and self.belief is not None and not self.belief.believes(row, value, remedy.level):
            return None
        if self.taken >= self.max_actions or (self._since_action <= self.wait and remedy.level <= self._level):
            return None
        first = min(sign for at, sign in self._signs if self._rows - at < WINDOW)
        before = self._healthy_step if self.belief is None else min(self._healthy_step, first - 1)
        healthy = before if since is None else min(before, since - 1)
        return self._act(step, rule, remedy, value, healthy)

    def _trouble(self, row: Mapping[str, Any], findings: Sequence[Finding]) -> tuple[str, Remedy, float] | None:
        """The gravest trouble: what no lever mends, then log-ratios, then what is not finite, then trends."""
        serious = [f for f in findings if f.rule in REMEDIES and f.severity != "info"]
        believed = [f for f in serious if f.certainty == "certain" or not REMEDIES[f.rule].stop]
        found = [(f.rule, REMEDIES[f.rule], 0.0) for f in believed]
        hopeless = [trouble for trouble in found if trouble[1].stop]
        if hopeless and (self._sound < _SOUND_ROWS or _log_ratio(row) / self.unit <= TIERS[0][0]):
            return hopeless[0]
        finite = all(math.isfinite(float(row.get(k, 0.0))) for k in _MUST_BE_FINITE)
        self._broken = 0 if finite else self._broken + 1
        value = _log_ratio(row) / self.unit
        for bound, remedy in TIERS:
            if value > bound:
                return "log_ratio_explosion", remedy, value
        if self._broken >= _NON_FINITE_STEPS:
            return "nonfinite", NON_FINITE, float(self._broken)
        return next((trouble for trouble in found if not trouble[1].stop), None)

    def _act(self, step: int, rule: str, remedy: Remedy, value: float, healthy: int) -> Action:
        unit = "" if self.unit == 1 else f" x {self.unit:g}"
        before, reason = self.setting, remedy.why.format(value=value, unit=unit)
        came_back = sum(a.rule == rule and a.kind == "roll_back" for a in self.actions) >= 2
        if remedy.stop or came_back:
            reason += "; it came back after two roll-backs" if came_back else ""
            self.levers.stop(f"{rule}: {reason}")
            return self._note(Action(step, "stop", rule, reason, before, before), remedy.level)
        self.setting = Setting(
            before.learning_rate * remedy.learning_rate,
            before.beta * remedy.beta,
            max(before.beta_at_least, remedy.beta_at_least),
            min(before.clip, remedy.clip),
        )
        self._undo.append(before)
        self.levers.turn(self.setting)
        checkpoint = self.levers.roll_back(healthy) if remedy.back else None
        self._broken = 0
        kind = "roll_back" if checkpoint else "turn"
        return self._note(Action(step, kind, rule, reason, before, self.setting, checkpoint), remedy.level)

    def _relax(self, step: int) -> Action:
        """Half way back (in logarithms) to what was in force before the last turn; all the way once that is near."""
        before, target = self.setting, self._undo[-1]
        if target.learning_rate <= 4 * before.learning_rate:
            self._undo.pop()
            self.setting = target
        else:
            rate = (before.learning_rate * target.learning_rate) ** 0.5
            self.setting = replace(target, learning_rate=rate, beta_at_least=before.beta_at_least / 4, clip=before.clip)
        self._quiet = 0
        self.levers.turn(self.setting)
        rule = self.actions[-1].rule if self.actions else EARLIER
        action = Action(step, "relax", rule, f"{self.calm} calm steps", before, self.setting)
        self.actions.append(action)
        return action

    def _note(self, action: Action, level: int) -> Action:
        self._since_action, self._level = 0, level
        self.actions.append(action)
        return action


_MUST_BE_FINITE = ("grad_norm/total", "loss/total", "grad_norm", "loss")


def _log_ratio(row: Mapping[str, Any]) -> float:
    """Largest |log-ratio| of a decision; 0 where it was not logged, infinite where it is not a number."""
    value = float(row.get("log_ratio/abs_max", 0.0))
    return math.inf if math.isnan(value) else value
