"""Cards of the reward modes: what a selection of demonstrations earns, by its published name."""

from __future__ import annotations

from anygrpo.choices.card import Card
from anygrpo.spoken import Text

_KEYS = {
    "hard": Text("w_h, of h.", "w_h，h 的权重。"),
    "soft": Text("w_s, of the soft part.", "w_s，软性部分的权重。"),
    "relevance": Text("w_rel, of rho.", "w_rel，rho 的权重。"),
    "beam": Text("w_beam: alpha of the legacy modes.", "w_beam：legacy 模式的 alpha。"),
    "alpha": Text("Weight of the beam score; beam where not given.", "束得分的权重；未给出时用 beam。"),
    "beta": Text("Weight of correctness; hard where not given.", "正确性的权重；未给出时用 hard。"),
    "missing_beam": Text("Beam score of candidates that have none.", "没有束得分的候选所用的值。"),
    "per_shot": Text("Taken off for each pick that counts.", "每个计入的选择扣除的量。"),
}
_HS, _HG = ("hard", "soft", "per_shot"), ("hard", "soft", "per_shot")
_LEGACY = ("hard", "beam", "alpha", "beta", "missing_beam", "per_shot")
_PARTS_EN = "h: correct, 0 or 1"
_PARTS_ZH = "h 为是否正确"


def _mode(name: str, formula: str, sentence: Text, settings: tuple[str, ...], source: str = "") -> Card:
    return Card(
        "reward",
        name,
        "anygrpo.selection.rewards:reward",
        formula,
        sentence,
        source,
        settings,
        metrics=("reward/mean",),
        spelt=f'[task.reward] mode = "{name}"',
        keys={k: _KEYS[k] for k in settings},
    )


CARDS = (
    _mode(
        "hard_only",
        "w_h h",
        Text(f"Whether the frozen model answers right ({_PARTS_EN}).", f"冻结模型是否答对（{_PARTS_ZH}）。"),
        ("hard", "per_shot"),
    ),
    _mode(
        "soft_only",
        "w_s s",
        Text(
            "The accuracy score alone, which counts answers that are partly right.", "仅用准确度得分，部分正确也计分。"
        ),
        ("soft", "per_shot"),
    ),
    _mode(
        "hard_plus_soft",
        "w_h h + w_s s",
        Text("Correctness and the accuracy score.", "正确性加准确度得分。"),
        _HS,
    ),
    _mode(
        "hard_plus_soft_v2",
        "2 w_h h + w_s s",
        Text("As hard_plus_soft, a right answer counting twice.", "同 hard_plus_soft，答对的权重加倍。"),
        _HS,
    ),
    _mode(
        "separated", "2 w_h h + w_s s", Text("Another name of hard_plus_soft_v2.", "hard_plus_soft_v2 的别名。"), _HS
    ),
    _mode(
        "hard01_plus_gtprob",
        "w_h h + w_s g",
        Text("Correctness and the probability g of the true answer.", "正确性加真实答案的概率 g。"),
        _HG,
    ),
    _mode(
        "hard_plus_gtprob",
        "w_h h + w_s g",
        Text("Another name of hard01_plus_gtprob.", "hard01_plus_gtprob 的别名。"),
        _HG,
    ),
    _mode(
        "hard01_plus_gtprob_separated",
        "2 w_h h + w_s g",
        Text("As hard01_plus_gtprob, a right answer counting twice.", "同 hard01_plus_gtprob，答对的权重加倍。"),
        _HG,
    ),
    _mode(
        "hard_plus_gtprob_plus_rel",
        "w_h h + w_s g + w_rel (1 - h) rho",
        Text(
            "Wrong answers earn by how relevant the demonstrations are; w_s is .5 where not given, as published.",
            "答错时按示例的相关度 rho 计分；w_s 未给出时为 0.5（与发表一致）。",
        ),
        ("hard", "soft", "relevance", "per_shot"),
    ),
    _mode(
        "legacy",
        "alpha b + beta h",
        Text("The beam score b and correctness.", "束得分 b 加正确性。"),
        _LEGACY,
    ),
    _mode(
        "legacy_pm1",
        "alpha b + beta (2 h - 1)",
        Text("As legacy, with -1 for a wrong answer.", "同 legacy，答错为 −1。"),
        _LEGACY,
    ),
    _mode(
        "info_score",
        "w_s InfoScore",
        Text(
            "How much the demonstrations raise the log-probability of the true answer.",
            "示例使真实答案的对数概率提高多少。",
        ),
        ("soft", "per_shot"),
    ),
    _mode(
        "score",
        "w_s score",
        Text("The number that a scorer of your own gives.", "自定义评分器给出的数。"),
        ("soft", "per_shot"),
    ),
)
