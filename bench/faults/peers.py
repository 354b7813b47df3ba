"""Runs in an environment with rldoctor, rlprobe and rlwatch (and without anygrpo): what each of them says of each log.

    python peers.py logs.json out.json      # logs: {name: [row under TRL's names, ...]}

Each tool gets the log through its own documented entrance: rldoctor's `run_from_records` and `diagnose`, rlprobe's
`Recorder` and `diagnose`, rlwatch's detectors with `log_step`'s arguments. An alert is anything above "info".
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from pathlib import Path

RLPROBE = {
    "reward": "reward_mean", "reward_std": "reward_std", "frac_reward_zero_std": "zero_variance_group_frac",
    "kl": "kl_mean", "entropy": "entropy_mean", "clip_ratio/region_mean": "clip_fraction", "loss": "loss",
    "learning_rate": "lr", "grad_norm": "grad_norm", "completions/mean_length": "completion_len_mean",
    "completions/max_length": "completion_len_max", "completions/clipped_ratio": "truncation_rate",
    "advantages_std": "adv_std",
}  # fmt: skip
"""rlprobe's own map of TRL names, and the std of the advantages."""

RLWATCH = {
    "entropy": "entropy", "kl": "kl_divergence", "reward": "reward_mean", "reward_std": "reward_std",
    "advantages_std": "advantage_std", "loss": "loss", "grad_norm": "grad_norm",
}  # fmt: skip


def rldoctor(rows: list[dict[str, float]], folder: Path) -> list[str]:
    from rl_doctor import Severity, diagnose, run_from_records

    heavy = [f for f in diagnose(run_from_records(rows)).findings if f.severity >= Severity.WARNING]
    return [f.detector for f in sorted(heavy, key=lambda f: -f.severity)]


def rlprobe(rows: list[dict[str, float]], folder: Path) -> list[str]:
    from rlprobe.doctor.engine import diagnose
    from rlprobe.recorder import Recorder

    recorder = Recorder(folder / "recording", algorithm="grpo", capture_env=False, install_handlers=False)
    for row in rows:
        parts = {k[8:-5]: v for k, v in row.items() if k.startswith("rewards/")}
        recorder.log_step(
            int(row["step"]), reward_components=parts, **{RLPROBE[k]: v for k, v in row.items() if k in RLPROBE}
        )
    recorder.close()
    return [f.signature_id for f in diagnose(folder / "recording") if f.severity != "info"]


def rlwatch(rows: list[dict[str, float]], folder: Path) -> list[str]:
    from rlwatch.config import RLWatchConfig
    from rlwatch.detectors import DetectorSuite

    suite, said = DetectorSuite(RLWatchConfig()), []
    for row in rows:
        given = {RLWATCH[k]: v for k, v in row.items() if k in RLWATCH}
        for alert in suite.check_step(int(row["step"]), **given):
            if alert.detector not in said:
                said.append(alert.detector)
    return said


def main() -> None:
    logs = json.loads(Path(sys.argv[1]).read_text())
    out: dict[str, dict[str, list[str]]] = {}
    for name, rows in logs.items():
        out[name] = {}
        for tool in (rldoctor, rlprobe, rlwatch):
            with tempfile.TemporaryDirectory() as folder:
                clean = (
                    rows if tool is not rlprobe else [{k: v for k, v in r.items() if math.isfinite(v)} for r in rows]
                )
                try:
                    out[name][tool.__name__] = tool(clean, Path(folder))
                except Exception as error:
                    out[name][tool.__name__] = [f"error: {type(error).__name__}: {error}"]
    Path(sys.argv[2]).write_text(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
