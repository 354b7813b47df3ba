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
        parts = [f"{say('start', '起点') if step == 0 else row.get('stage', '')} {step}/{self.total}"]
        shown = {k: v for k, v in row.items() if k not in _UNLESS_ZERO or v}
        if not (row.get("clip/low") or row.get("clip/high")):
            shown.pop("clip/low", None)
        parts += [
            label.said().format(*(row[k] for k in keys)) for keys, label in _PARTS if all(k in shown for k in keys)
        ]
        if "time/step" in row:
            parts.append(say(f"{row['time/step']:.1f} s", f"{row['time/step']:.1f} 秒"))
        if 0 < step < self.total and self._times:
            parts.append(f"{say('left', '剩余')} {_clock((self.total - step) * sum(self._times) / len(self._times))}")
        if row.get("steps_refused"):
            parts.append(f"{say('refused', '拒绝')} {row['steps_refused']:.0f}")
        held_out = [f"{held_out_name(k)} {row[k]:.3f}" for k in _HELD_OUT if k in row]
        if "eval/reward_se" in row:
            held_out.append(f"± {row['eval/reward_se']:.3f}")
        if held_out:
            parts.append(say("HELD-OUT ", "留出集 ") + " ".join(held_out))
        return "  ".join(parts)

    def close(self) -> None:
        self.file.flush()


_PARTS: list[tuple[tuple[str, ...], Text]] = [
    (("reward/mean", "reward/std_within"), Text("reward {:.3f}±{:.3f}", "奖励 {:.3f}±{:.3f}")),
    (("groups/live",), Text("live groups {:.0%}", "有信号的组 {:.0%}")),
    (("invalid/share",), Text("invalid {:.0%}", "无效 {:.0%}")),
    (("loss/supervised",), Text("supervised loss {:.4f}", "监督损失 {:.4f}")),
    (("kl/reference",), Text("KL {:.4f}", "KL {:.4f}")),
    (("log_ratio/abs_max",), Text("max |log-ratio| {:.2g}", "最大 |对数概率比| {:.2g}")),
    (("clip/low", "clip/high"), Text("clipped low {:.1%} high {:.1%}", "裁剪 下 {:.1%} 上 {:.1%}")),
    (("entropy",), Text("entropy {:.2f}", "熵 {:.2f}")),
    (("length/mean",), Text("length {:.1f}", "长度 {:.1f}")),
]
_UNLESS_ZERO = ("invalid/share", "log_ratio/abs_max")
_HELD_OUT = ("eval/accuracy", "eval/psnr", "eval/ssim", "eval/motion/judge", "eval/reward")
_NAMES = {
    "accuracy": "正确率",
    "reward": "奖励",
    "psnr": "PSNR",
    "ssim": "SSIM",
    "motion/judge": "评判者（不参与奖励）",
    "invalid": "无效份额",
    "length": "长度",
}


def held_out_name(key: str) -> str:
    """ "eval/accuracy" as a person reads it."""
    name = key.removeprefix("eval/")
    return say(name, _NAMES.get(name, name))


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
