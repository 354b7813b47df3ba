"""docs/terms.zh.md: the documents' words and what they are called here; every setting and metric named there exists."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import anygrpo
from anygrpo.doctor.synonyms import METRICS
from anygrpo.metrics.catalogue import CATALOGUE
from anygrpo.recipe.algorithm import AlgorithmConfig
from anygrpo.recipe.section import Section
from anygrpo.recipe.training import EvaluationConfig, OptimizerConfig

PAGE = (Path(__file__).parents[1] / "docs" / "terms.zh.md").read_text(encoding="utf-8")
ROWS = [line.split("|")[1:-1] for line in PAGE.splitlines() if line.startswith("|") and "---" not in line]
NAMED = sorted(
    {key for row in ROWS for key in re.findall(r"`((?:algorithm|optimizer|evaluation|task|policy)\.\w+)", row[1])}
)
TABLES = {"algorithm": AlgorithmConfig, "optimizer": OptimizerConfig, "evaluation": EvaluationConfig}
DOCUMENTS = [
    "kl_beta", "KL_BETA", "kl_penalty", "BETA_KL", "rl_lr", "GRPO_LR", "LEARNING_RATE", "reward_alpha", "reward_beta",
    "beam_score", "correctness", "shot_num", "USE_RANK_ADVANTAGE", "REQUIRE_POSITIVE_QUERY", "clip_epsilon",
    "CLIP_RATIO", "advantage_clip", "lambda_sup", "lambda_pg", "lambda_consistency", "w_psnr", "w_ssim", "grpo_",
    "分阶段", "mean_ratio", "mean_advantage", "std_reward", "mean_log_prob_current", "mean_log_prob_ref",
    "length_reward", "coherence_reward", "GROUP_SIZE", "TEMPERATURE", "ENTROPY_COEF", "MAX_GRAD_NORM", "验证集",
]  # fmt: skip


def fields_of_families() -> set[str]:
    """Names of all settings that some recipe section has."""
    for found in pkgutil.walk_packages(anygrpo.__path__, "anygrpo."):
        if found.name.endswith("settings"):
            importlib.import_module(found.name)
    every, waiting = set(), [Section]
    while waiting:
        made = waiting.pop()
        every |= set(made.model_fields)
        waiting += made.__subclasses__()
    return every


@pytest.mark.parametrize("word", DOCUMENTS)
def test_every_word_of_the_documents_is_found(word):
    assert word in PAGE


@pytest.mark.parametrize("key", NAMED)
def test_every_setting_exists(key):
    table, _, name = key.partition(".")
    assert name in (TABLES[table].model_fields if table in TABLES else fields_of_families())


def test_every_metric_exists():
    named = {name for row in ROWS for name in re.findall(r"`(\w+/\w+)`", row[1])}
    assert len(named) >= 5
    assert named <= set(CATALOGUE) | set(METRICS)
