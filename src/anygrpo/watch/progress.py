"""The line a step that a person reads while it trains."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

from anygrpo.spoken import Text, say


class ProgressLine:
    """Reward and spread, informative groups, KL, clip fraction, length, seconds, time left; held-out numbers when due.

    Args:
        total: steps of the whole run.
        file: where to print.
    """

    def __init__(self, total: int, file: TextIO | None = None) -> None:
        self.total, self.file = total, file or sys.stdout
        self._times: list[float] = []
        self._last = time.monotonic()

    def write(self, row: dict[str, Any]) -> None:
        now = time.monotonic()
        if row.get("step", 0) >= 0:
            self._times = [*self._times[-19:], now - self._last]
        self._last = now
        print(self.text(row), file=self.file, flush=True)

    def text(self, row: dict[str, Any]) -> str:
        """The line for a row; numbers that were not logged are left out."""
        step = int(row.get("step", 0)) + 1
        parts = [f"{row.get('stage', '')} {step}/{self.total}"]
        shown = {k: v for k, v in row.items() if k not in _UNLESS_ZERO or v}
        parts += [
            label.said().format(*(row[k] for k in keys)) for keys, label in _PARTS if all(k in shown for k in keys)
        ]
        if "time/step" in row:
            parts.append(f"{row['time/step']:.1f}s")
        if 0 < step < self.total and self._times:
            parts.append(f"{say('left', '剩余')} {_clock((self.total - step) * sum(self._times) / len(self._times))}")
        if row.get("steps_refused"):
            parts.append(f"{say('refused', '拒绝')} {row['steps_refused']:.0f}")
        held_out = [f"{k[5:]} {row[k]:.3f}" for k in _HELD_OUT if k in row]
        if held_out:
            parts.append(say("HELD-OUT ", "留出集 ") + " ".join(held_out))
        return "  ".join(parts)

    def close(self) -> None:
        self.file.flush()


_PARTS: list[tuple[tuple[str, ...], Text]] = [
    (("reward/mean", "reward/std_within"), Text("reward {:.3f}±{:.3f}", "奖励 {:.3f}±{:.3f}")),
    (("groups/live",), Text("live {:.0%}", "有信号的组 {:.0%}")),
    (("invalid/share",), Text("invalid {:.0%}", "无效 {:.0%}")),
    (("loss/supervised",), Text("sup {:.4f}", "监督损失 {:.4f}")),
    (("kl/reference",), Text("kl {:.4f}", "KL {:.4f}")),
    (("log_ratio/abs_max",), Text("|logratio| {:.2g}", "|对数概率比| {:.2g}")),
    (("clip/low", "clip/high"), Text("clip {:.1%}/{:.1%}", "裁剪 {:.1%}/{:.1%}")),
    (("entropy",), Text("H {:.2f}", "熵 {:.2f}")),
    (("length/mean",), Text("len {:.1f}", "长度 {:.1f}")),
]
_UNLESS_ZERO = ("invalid/share",)
_HELD_OUT = ("eval/accuracy", "eval/reward", "eval/reward_se", "eval/psnr", "eval/ssim", "eval/matching")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
