"""A selector applied to queries: what to show before each, with the probability of every pick."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from anygrpo.core.applied import add_rows, digest_of, kept_rows, made_by
from anygrpo.core.tree import tree_map
from anygrpo.errors import ConfigError, DataError
from anygrpo.selection.judged import read_rows
from anygrpo.selection.offer import IDS, POOL, Offer, offer_of
from anygrpo.selection.policy import SelectorPolicy
from anygrpo.selection.tables import Table, read_table
from anygrpo.spoken import Text, say

_BATCH = 64
_KEYS = ("queries", "candidates", "embedding", "pool", "ids", "own_place")

Inputs = Mapping[str, Any]
"""queries, candidates: a table of embeddings (.npz, .npy, .pt, .parquet), JSONL of rows with `question` or `text`, or a
`Table`. embedding: for JSONL. pool: the nearest so many candidates of a query are its pool (0: all). ids: "one" keeps a
query's own id out of its picks; own_place (default True): and it takes a place of its pool. What is not given is as in
training, by the export or the run; where these do not say: minilm, 64, two."""


def apply(
    policy: SelectorPolicy,
    inputs: Inputs | Any,
    out: str | Path | None = None,
    *,
    candidates: Any = None,
    embedding: str | None = None,
    pool: int | None = None,
    ids: str | None = None,
    seed: int | None = None,
    recipe: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """Picks for every query, in order.

    Args:
        inputs: see `Inputs`; or the queries alone, with candidates, embedding, pool and ids as arguments.
        out: JSONL file, written as rows come; rows that it holds are kept and not made again.
        seed: draws the picks from the policy's probabilities; None: the likeliest pick at each step.
        recipe: of the run, which says what queries are offered where neither inputs nor an export do.
        progress: called with (queries done, all).

    Returns:
        {"query": id, "picks": candidate ids, "probabilities": of each pick given those before it, "probability": of the
        whole list, "stopped": whether the policy chose to pick no more, "of": what made it (weights, settings)}.

    Raises:
        ConfigError: an unknown input, or features of another size. DataError: a file that cannot be read, or an `out`
            that holds picks of something else.
    """
    named = {"candidates": candidates, "embedding": embedding, "pool": pool, "ids": ids}
    given = dict(inputs) if isinstance(inputs, Mapping) else {"queries": inputs}
    given |= {name: value for name, value in named.items() if value is not None}
    offer = Offer.of(given).or_else(offer_of(policy, recipe))
    queries, shown = _tables(given | ({} if offer.embedding is None else {"embedding": offer.embedding}))
    for whose, table in (("queries", queries), ("candidates", shown)):
        if table.width != policy.config.features:
            raise ConfigError(
                Text(
                    f"{whose} have {table.width} features, the selector was trained on {policy.config.features}",
                    f"{whose} 有 {table.width} 个特征，选择器以 {policy.config.features} 个训练",
                ),
                Text("embed them as its training data were", "请按训练数据的方式嵌入"),
            )
    _say_assumed(offer, queries, shown)
    offer = offer.or_else(Offer(POOL, IDS, True))
    how: dict[str, Any] = {"pool": int(offer.pool or 0), "one": offer.ids == "one"}
    how |= {"own_place": False} if how["one"] and not offer.own_place else {}
    prompts = _prompts(queries, shown, **how)
    file = None if out is None else Path(out)
    tables = [digest_of(table.rows, table.index) for table in (queries, shown)]
    shots = policy.config.evaluation_shots if seed is None else None
    of = made_by(policy, seed=seed, shots=shots or policy.config.shots, tables=tables, **how)
    rows = kept_rows(file, of, [prompt["id"] for prompt in prompts], "query", _BATCH)
    for a in range(len(rows), len(prompts), _BATCH):
        made = _picked(policy, prompts[a : a + _BATCH], None if seed is None else seed + a)
        add_rows(file, made, of)
        rows += made
        if progress is not None:
            progress(len(rows), len(prompts))
    return rows


def table_of(source: Any, embedding: str = "minilm") -> Table:
    """A table as it is, from a file of embeddings, or from a JSONL file's texts.

    Raises:
        DataError: the file cannot be read, or a row has no text.
    """
    if isinstance(source, Table):
        return source
    if Path(source).suffix not in (".jsonl", ".json"):
        return read_table(source)
    from anygrpo.models.embedding import embed

    rows = read_rows(str(source))
    texts = [str(row.get("question") or row.get("text") or "") for row in rows.values()]
    if not all(texts):
        raise DataError(
            Text(
                f"{source}: some row has neither question nor text to embed",
                f"{source}：有一行既没有问题也没有可嵌入的文本",
            ),
            Text("give a table of embeddings", "请给出嵌入表"),
        )
    return Table(str(source), {name: i for i, name in enumerate(rows)}, embed(texts, embedding))


def _tables(inputs: Inputs) -> tuple[Table, Table]:
    unknown = sorted(set(inputs) - set(_KEYS))
    missing = [name for name in ("queries", "candidates") if name not in inputs]
    if unknown or missing:
        raise ConfigError(
            Text(
                f"inputs of a selector: unknown {unknown}, missing {missing}",
                f"选择器的输入：未知 {unknown}，缺少 {missing}",
            ),
            Text(f"they are {', '.join(_KEYS)}", f"应为 {', '.join(_KEYS)}"),
        )
    kind = str(inputs.get("embedding", "minilm"))
    return table_of(inputs["queries"], kind), table_of(inputs["candidates"], kind)


def _say_assumed(offer: Offer, queries: Table, candidates: Table) -> None:
    """Tell what is assumed of pools where nothing says it and it changes picks."""
    assumed = []
    if offer.pool is None and len(candidates.index) > POOL:
        assumed.append(say(f"the {POOL} nearest candidates (--pool)", f"最近的 {POOL} 个候选（--pool）"))
    if offer.ids is None and queries.index.keys() & candidates.index.keys():
        same = "equal ids are not the same item (--ids two)", "编号相同并非同一项（--ids two）"
        assumed.append(say(*same))
    if assumed:
        head = "this selector does not say what its queries were offered; assumed: "
        print(say(head, "这个选择器没有说明查询面对哪些候选；假定：") + "; ".join(assumed), file=sys.stderr, flush=True)


def _prompts(queries: Table, candidates: Table, pool: int, one: bool, own_place: bool = True) -> list[dict[str, Any]]:
    """Pools by cosine first (one product over all candidates), so that the policy sees `pool` of however many."""
    names = list(candidates.index)
    unit = F.normalize(candidates.rows, dim=-1)
    whole = not pool or pool >= len(names)
    places = {name: i for i, name in enumerate(names)}
    prompts = []
    for name, row in queries.index.items():
        query = queries.rows[row]
        without = places.get(name) if one and not own_place else None
        at = list(range(len(names))) if whole else _nearest(unit, query, pool, without)
        own = [i for i, k in enumerate(at) if one and names[k] == name]
        prompts.append(
            {
                "id": name,
                "query": query,
                "candidates": candidates.rows if whole else candidates.rows[at],
                "ids": [names[i] for i in at],
                "excluded": own,
            }
        )
    return prompts


def _nearest(unit: Tensor, query: Tensor, pool: int, without: int | None) -> list[int]:
    likeness = unit @ F.normalize(query, dim=-1)
    if without is not None:
        likeness[without] = -torch.inf  # pool < all, so that enough others are there
    return sorted(likeness.topk(pool).indices.tolist())


def _picked(policy: SelectorPolicy, prompts: list[dict[str, Any]], seed: int | None) -> list[dict[str, Any]]:
    """One selection a prompt with the probability of each pick."""
    rollout = policy.greedy(prompts) if seed is None else policy.sample(prompts, 1, seed)
    samples = tree_map(lambda x: x.flatten(0, 1), rollout.samples)
    log_probs = policy.pick_log_probs(samples)
    out = []
    for prompt, action, row in zip(prompts, policy.decode(rollout.samples), log_probs.tolist()):
        picks = action[0]
        stopped = policy.config.stop and len(picks) < len(row)
        shown = row[: len(picks) + stopped]
        out.append(
            {
                "query": prompt["id"],
                "picks": [prompt["ids"][i] for i in picks],
                "probabilities": [round(_exp(x), 6) for x in row[: len(picks)]],
                "probability": round(_exp(sum(shown)), 6),
                "stopped": bool(stopped),
            }
        )
    return out


def _exp(x: float) -> float:
    return float(torch.tensor(x, dtype=torch.float64).exp())
