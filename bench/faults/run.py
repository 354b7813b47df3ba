"""The fault bench: does the doctor name the fault that was put in, and stay silent where there is none?

    python bench/faults/run.py                        # all cases, about six CPU-minutes; writes runs/faults/
    python bench/faults/run.py --peers VENV/bin/python   # the same logs given to rldoctor, rlprobe, rlwatch too
    python bench/faults/run.py --only hack frozen

Each case is a real training run (see cases.py). Its folder is judged afterwards by `anygrpo doctor`; so is its log
alone, once under our names and once as the few columns of TRL that the other tools get; its rows are streamed through
the live doctor (how many steps until the fault is named), and its recipe is given to `anygrpo check`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
from cases import CONTROLS, FAULTS, SMOKE, Case

from anygrpo.doctor import LiveDoctor, diagnose_log, read
from anygrpo.doctor.configs import read_settings
from anygrpo.errors import TrainingError
from anygrpo.probes import check
from anygrpo.recipe.load import parse_recipe
from anygrpo.train.build import new_run
from anygrpo.train.folder import read_rows
from anygrpo.train.loop import train

OUT = Path("runs/faults")


@dataclass
class Result:
    """What was seen of one case.

    Attributes:
        first: the doctor's first finding of weight on the finished run folder, log and recipe ("-": none).
        others: the further ones.
        alone: all its findings of weight on the log alone.
        alone_trl: the same on the columns that the other tools get, under TRL's names.
        named_at: row at which the live doctor first named an accepted rule; None: never.
        check: outcomes of the pre-flight check that name the fault, before a single step: all serious ones, and the
            warnings of the case's own probes.
        warned: all its warnings.
        peers: first alert of each other tool, in its own words.
    """

    name: str
    what: str
    accepted: tuple[str, ...]
    first: str
    others: list[str]
    named_at: int | None
    check: list[str]
    warned: list[str]
    rows: int
    seconds: float
    alone: list[str] = field(default_factory=list)
    alone_trl: list[str] = field(default_factory=list)
    peers: dict[str, list[str]] = field(default_factory=dict)

    @property
    def named(self) -> bool:
        """By the log, or by the check before the run."""
        return bool({self.first, *self.others} & set(self.accepted) or self.check)

    @property
    def right(self) -> bool:
        return self.first_is_right(self.first if self.first != "-" else "")

    def first_is_right(self, first: str) -> bool:
        return first in self.accepted if self.accepted else not first


def measure(case: Case, root: Path, preflight: bool = True) -> Result:
    """Train the case in its own folder and judge it."""
    began = time.perf_counter()
    folder = root / case.name
    shutil.rmtree(folder, ignore_errors=True)
    recipe = parse_recipe(case.table() | {"folder": str(folder)})
    run = new_run(recipe)
    try:
        run.evaluate_start()
        train(run)
    except TrainingError:
        pass  # some faults end a run; its log is what counts
    finally:
        run.close()
    outcomes = check(recipe, seconds=1).outcomes if preflight else []
    warned = [o.probe for o in outcomes if o.status == "warning"]
    serious = [o.probe for o in outcomes if o.status == "serious"] + [p for p in warned if p in case.probes]
    said = judged(case, folder)
    return Result(
        case.name, case.what, case.accepted, check=serious, warned=warned,
        seconds=round(time.perf_counter() - began, 1), **said,
    )  # fmt: skip


def known(case: Case, root: Path) -> Result:
    """A case already run: its log judged again by the doctor of today, everything else as it was."""
    old = Result(**json.loads((root / case.name / "result.json").read_text(encoding="utf-8")))
    return replace(old, what=case.what, accepted=case.accepted, **judged(case, root / case.name))


def judged(case: Case, folder: Path) -> dict[str, Any]:
    """What the doctor says of a finished run: of its folder, of its log alone, of TRL's columns, and row by row."""
    heavy, rows = heavy_findings(folder), training_rows(folder)
    with tempfile.TemporaryDirectory() as empty:
        log, trl = Path(empty) / "log.jsonl", Path(empty) / "trl.jsonl"
        shutil.copy(folder / "metrics.jsonl", log)
        trl.write_text("".join(json.dumps(row) + "\n" for row in trl_rows(folder)), encoding="utf-8")
        alone, alone_trl = heavy_findings(log), heavy_findings(trl)
    return {
        "first": heavy[0] if heavy else "-",
        "others": heavy[1:],
        "named_at": named_at(folder, rows, case.accepted),
        "rows": len(rows),
        "alone": alone,
        "alone_trl": alone_trl,
    }


def heavy_findings(path: Path) -> list[str]:
    return [f.rule for f in diagnose_log(read(str(path))).findings if f.severity != "info"]


def training_rows(folder: Path) -> list[dict[str, Any]]:
    return [r for r in read_rows(folder / "metrics.jsonl")[0] if r["step"] >= 0]


def named_at(folder: Path, rows: list[dict[str, Any]], accepted: tuple[str, ...]) -> int | None:
    """The row (from 1) at which the live doctor, beside its recipe, first says an accepted rule with weight."""
    doctor = LiveDoctor(read_settings(folder / "config.toml"), every=5)
    for i, row in enumerate(rows, 1):
        if any(f.rule in accepted and f.severity != "info" for f in doctor.observe(row)):
            return i
    return None


_TRL = {
    "step": "step", "reward/mean": "reward", "reward/std": "reward_std", "kl/reference": "kl", "entropy": "entropy",
    "loss/total": "loss", "lr": "learning_rate", "grad_norm/total": "grad_norm", "eval/accuracy": "eval_score",
    "length/mean": "completions/mean_length", "length/max": "completions/max_length",
    "truncated/share": "completions/clipped_ratio", "advantage/std": "advantages_std",
}  # fmt: skip


def trl_rows(folder: Path) -> list[dict[str, float]]:
    """Our log under TRL's names, which is what the other tools read best."""
    out = []
    for row in read_rows(folder / "metrics.jsonl")[0]:
        if row["step"] < 0:
            continue
        made = {theirs: float(row[ours]) for ours, theirs in _TRL.items() if ours in row}
        if "groups/live" in row:
            made["frac_reward_zero_std"] = 1 - row["groups/live"]
        if "clip/low" in row:
            made["clip_ratio/region_mean"] = row["clip/low"] + row["clip/high"]
        made |= {f"rewards/{k[17:]}/mean": row[k] for k in row if k.startswith("reward/component/")}
        out.append(made)
    return out


def ask_peers(python: str, root: Path, results: list[Result]) -> None:
    """Run the other tools, in their own environment, over all logs at once."""
    logs = {r.name: trl_rows(root / r.name) for r in results}
    (root / "peers_in.json").write_text(json.dumps(logs), encoding="utf-8")
    command = [
        python,
        str(Path(__file__).with_name("peers.py")),
        str(root / "peers_in.json"),
        str(root / "peers_out.json"),
    ]
    subprocess.run(command, check=True, timeout=600)
    found = json.loads((root / "peers_out.json").read_text(encoding="utf-8"))
    for result in results:
        result.peers = found[result.name]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="names of cases")
    parser.add_argument(
        "--part", type=int, nargs=2, metavar=("I", "N"), help="every N-th case from the I-th, for two cores"
    )
    parser.add_argument("--join", action="store_true", help="no training: score what the parts have left in --out")
    parser.add_argument("--smoke", action="store_true", help="three faults and two controls")
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter that has rldoctor, rlprobe and rlwatch")
    parser.add_argument("--seeds", type=int, default=0, metavar="N", help="added to the seed of every case")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    torch.set_num_threads(1)
    wanted = set(args.only or (SMOKE if args.smoke else ()))
    cases = [case for case in (*FAULTS, *CONTROLS) if not wanted or case.name in wanted]
    cases = [replace(case, seed=case.seed + args.seeds) for case in cases]
    if args.part:
        cases = cases[args.part[0] :: args.part[1]]
    finished = [case for case in cases if (args.out / case.name / "result.json").is_file()]
    results = [known(case, args.out) for case in finished] if args.join else []
    for case in () if args.join else cases:
        results.append(measure(case, args.out))
        r = results[-1]
        (args.out / case.name / "result.json").write_text(json.dumps(asdict(r)), encoding="utf-8")
        print(
            f"{'ok  ' if r.right else 'MISS'} {r.name}: {r.first} {r.others} alone {r.alone} "
            f"in TRL's names {r.alone_trl}, named at {r.named_at}, check {r.check}",
            flush=True,
        )
    if args.peers:
        ask_peers(args.peers, args.out, results)
    from table import markdown

    (args.out / "results.json").write_text(json.dumps([asdict(r) for r in results], indent=1), encoding="utf-8")
    text = markdown(results)
    (args.out / "table.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
