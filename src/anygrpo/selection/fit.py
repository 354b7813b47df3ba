"""From a file of scored selections to a portable selector: read, report, train, compare, write."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anygrpo.errors import ConfigError, DataError
from anygrpo.files import read_toml
from anygrpo.selection.apply import table_of
from anygrpo.selection.evaluation import compare_runs
from anygrpo.selection.export import export
from anygrpo.selection.layouts import read_stored
from anygrpo.selection.quality import inspect, richest
from anygrpo.selection.settings import RewardConfig
from anygrpo.selection.stored_query import StoredFile
from anygrpo.spoken import Text


@dataclass(frozen=True)
class Fitted:
    """Attributes:
    inspected: quality of the file. compared: as `select evaluate` gives it. folder: the selector. run: of the training.
    """

    inspected: dict[str, Any]
    compared: dict[str, Any]
    folder: Path
    run: Path
    mode: str


def fit(
    file: str | Path,
    queries: str | Path,
    candidates: str | Path,
    out: str | Path,
    *,
    scorer: str | None = None,
    embedding: str = "minilm",
    mode: str | None = None,
    flags: tuple[str, ...] = (),
) -> Fitted:
    """Train a selector on a file and write it.

    Args:
        file: scored selections, in any layout. queries, candidates: tables of embeddings, or JSONL of texts.
        out: a folder: selector/ is the result; run/ the training; recipe.toml what was trained, to be changed at will.
        scorer: "path.py:judge", or a TOML file with a [scorer] table; then online GRPO follows RCE. It is shown rows:
            queries and candidates must be JSONL.
        flags: of the recipe, as for `anygrpo train`.

    Raises:
        ConfigError, DataError: what cannot be read or meant, before anything is trained.
    """
    out = Path(out)
    stored = read_stored(file)
    mode = mode or _mode(stored)
    inspected = inspect(stored, RewardConfig(mode=mode))  # type: ignore[arg-type]
    out.mkdir(parents=True, exist_ok=True)
    tables = {
        name: _kept(out, name, source, embedding) for name, source in (("queries", queries), ("candidates", candidates))
    }
    task = {
        "kind": "stored_candidates",
        "path": str(file),
        "query_features": tables["queries"][0],
        "candidate_features": tables["candidates"][0],
        "reward": {"mode": mode},
    }
    if scorer is not None:
        task["live"] = _live(task, scorer, queries, candidates)
    shots = max(len(c.selection) for q in stored.queries for c in q.candidates)
    policy = {"kind": "selector", "features": tables["queries"][1], "hidden": 256, "width": 64, "shots": shots}
    recipe = out / "recipe.toml"
    recipe.write_text(_toml(policy, task, scorer is not None), encoding="utf-8")
    trained, task_made, start, made_by = _train(recipe, out / "run", flags)
    compared = compare_runs([(trained, task_made, start)], oracle_sets=0 if scorer else 1)
    texts = Path(queries).suffix in (".jsonl", ".json")
    export(trained, out / "selector", made_by, **({"embedding": embedding} if texts else {}))
    return Fitted(inspected, compared, out / "selector", out / "run", mode)


def _mode(stored: StoredFile) -> str:
    """The richest reward that some candidates allow."""
    if mode := richest(stored):
        return mode
    raise DataError(
        Text("no candidate of this file has a score", "这个文件没有带分数的候选"),
        Text(
            "vqa_correct, vqa_acc_score, vqa_gt_prob, score_list, ...",
            "可用：vqa_correct、vqa_acc_score、vqa_gt_prob、score_list 等",
        ),
    )


def _kept(out: Path, name: str, source: str | Path, embedding: str) -> tuple[str, int]:
    """Path of a table and its width; texts are embedded once and kept beside the recipe."""
    table = table_of(source, embedding)
    if Path(source).suffix not in (".jsonl", ".json"):
        return str(source), table.width
    import numpy as np

    path = out / f"{name}.npz"
    np.savez(path, ids=np.array(list(table.index)), embeddings=table.rows.numpy())
    return str(path), table.width


def _live(task: dict[str, Any], scorer: str, queries: str | Path, candidates: str | Path) -> dict[str, Any]:
    if any(Path(x).suffix not in (".jsonl", ".json") for x in (queries, candidates)):
        raise ConfigError(
            Text(
                f"--scorer is shown rows, but {queries} and {candidates} are not both JSONL",
                f"--scorer 需要看到行，但 {queries} 与 {candidates} 不都是 JSONL",
            ),
            Text(
                "give rows (id, question or text, answer, ...) as JSONL; they are embedded",
                "请以 JSONL 给出各行（id、question 或 text、answer 等）；它们会被嵌入",
            ),
        )
    if scorer.endswith(".toml"):
        section = read_toml(Path(scorer)).get("scorer")
        if section is None:
            raise ConfigError(Text(f"{scorer} has no [scorer] table", f"{scorer} 没有 [scorer] 表"))
    else:
        section = {"kind": "python", "function": scorer}
    features = {name: task[name] for name in ("query_features", "candidate_features")}
    return {"kind": "judged", "queries": str(queries), "candidates": str(candidates), "scorer": section, **features}


def _toml(policy: dict[str, Any], task: dict[str, Any], online: bool) -> str:
    """A recipe: RCE on the file; where there is a scorer, GRPO against it after that."""
    stages = [{"name": "rce", "method": "rce", "epochs": 20.0}]
    if online:
        stages.append({"name": "grpo", "steps": 200})
    parts = [f"[[stages]]\n{_lines(stage)}" for stage in stages]
    parts += [_table("policy", policy), _table("task", task)]
    parts += [_table("algorithm", {"prompts_per_step": 32, "group_size": 16})]
    rate = 'learning_rate = { kind = "cosine", start = 1e-3, end = 1e-4, warmup = 10 }'
    parts += [f"[optimizer]\n{rate}\n", "[training]\nthreads = 1\n"]
    parts += [_table("evaluation", {"every_epochs": 2.0, "metric": "eval/reward"})]
    return "# Written by `anygrpo select fit`. Change it and train again: anygrpo train recipe.toml\n" + "\n".join(
        parts
    )


def _table(name: str, values: dict[str, Any]) -> str:
    inner = {k: v for k, v in values.items() if isinstance(v, dict)}
    own = _lines({k: v for k, v in values.items() if k not in inner})
    return f"[{name}]\n{own}" + "".join(_table(f"{name}.{k}", v) for k, v in inner.items())


def _lines(values: dict[str, Any]) -> str:
    return "".join(f"{k} = {json.dumps(v, ensure_ascii=False)}\n" for k, v in values.items())


def _train(recipe: Path, folder: Path, flags: tuple[str, ...]) -> tuple[Any, Any, dict[str, Any], Any]:
    """Policy (with its best weights where some were), the last stage's task, the weights at the start, the recipe."""
    from anygrpo.core.trained import load_state, state_of
    from anygrpo.recipe.load import load_recipe
    from anygrpo.train import checkpoint
    from anygrpo.train.build import new_run
    from anygrpo.train.loop import train

    run = new_run(load_recipe(recipe, ["--folder", str(folder), *flags]))
    start = {name: x.clone() for name, x in state_of(run.policy.trainable()).items()}
    try:
        run.evaluate_start()
        train(run)
    finally:
        run.close()
    best = folder / "checkpoints" / "best"
    if best.is_dir():
        load_state(run.policy.trainable(), checkpoint.load(best)[0])
    return run.policy, run.stages[-1].task, start, run.recipe
