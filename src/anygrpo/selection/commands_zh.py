"""The Chinese of what `anygrpo select --help` prints, by its English."""

from __future__ import annotations

CHINESE: dict[str, str] = {
    "write scored candidates: beams, samples, random, retrieved": "写出打分的候选：beam、抽样、随机、检索",
    "quality of a file of stored candidates": "存储候选文件的质量",
    "a run's policy beside its start and the baselines, paired": "一次运行的策略，与起点和各基线配对比较",
    "which selections to score next, so that a file decides a comparison": (
        "接下来给哪些选择打分，才能由文件判定一项比较"
    ),
    "a file of scored selections -> a portable selector, compared with retrieval": (
        "由打分的选择文件得到可携带的选择器，并与检索比较"
    ),
    "a selector's picks for queries": "选择器为各查询挑选的示例",
    "a recipe (its policy as it starts), or a run folder (its best checkpoint)": (
        "配方（其初始策略），或运行文件夹（其最好的检查点）"
    ),
    "temperature:count, ...": "温度:个数，……",
    "reward mode": "奖励方式",
    "rows judged by a stand-in": "由替身打分的行",
    "run folders that differ in their seed": "仅种子不同的运行文件夹",
    "demonstrations: which queries": "示例：哪些查询",
    "held-out queries": "留出集查询",
    "picks of the greedy decoder, 4 say, whatever training used": ("贪心解码的挑选数，例如 4，不论训练时用多少"),
    "sets of a size tried for a query; 0: no oracle": "每个查询每种大小所试的组合数；0：不做上界",
    "run folder, trained from stored candidates": "用存储候选训练的运行文件夹",
    "start, nearest, or another run folder": "start、nearest 或另一个运行文件夹",
    "in accuracy: what shall be told from 0": "以正确率计：多大的差别要能与 0 区分",
    "write them as a file to be scored": "把它们写成待打分的文件",
    "at most this many of them; as many as decide where left out": "最多这么多个；不给则以足够判定为准",
    "embeddings (.npz .npy .pt .parquet) or JSONL of texts": ("嵌入（.npz .npy .pt .parquet）或 JSONL 文本"),
    "path.py:judge or a TOML file with [scorer]: then GRPO against it follows": (
        "path.py:judge 或含 [scorer] 的 TOML 文件：随后据此做 GRPO"
    ),
    "folder for selector/, run/ and recipe.toml": ("存放 selector/、run/ 和 recipe.toml 的文件夹"),
    "for JSONL: minilm, ngrams, a path or Hub name": ("对 JSONL：minilm、ngrams、路径或 Hub 名称"),
    "reward mode; the richest that the file allows where left out": ("奖励方式；不给则取文件所允许的最丰富的一种"),
    "folder that select fit or export wrote": "select fit 或 export 写出的文件夹",
    "nearest candidates that a query chooses among; 0: all": "每个查询从最近的这么多候选中挑选；0：全部",
    "one: a query is not its own candidate": "one：查询不能是自己的候选",
    "for JSONL; as in training where left out": "对 JSONL；不给则与训练时相同",
    "draw from the probabilities; the likeliest picks where left out": "按概率抽取；不给则取最可能的挑选",
}
