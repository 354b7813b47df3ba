"""Recipe sections of selection: the pointer policy, and the tasks that judge its picks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from anygrpo.recipe.section import Section
from anygrpo.spoken import Text

RewardMode = Literal[
    "hard_plus_soft",
    "hard_plus_soft_v2",
    "separated",
    "hard_only",
    "soft_only",
    "hard01_plus_gtprob",
    "hard01_plus_gtprob_separated",
    "hard_plus_gtprob_plus_rel",
    "legacy",
    "legacy_pm1",
    "info_score",
    "score",
    "hard_plus_gtprob",
]


class SelectorConfig(Section):
    """A pointer network that picks items, one after the other, from a query's own pool."""

    kind: Literal["selector"]
    features: int = Field(ge=1)
    "d: size of query and candidate embeddings (the task's documentation names it)."
    width: int = Field(256, ge=1)
    "Of the state that picks."
    hidden: int = Field(0, ge=0)
    """Units of a hidden layer between embeddings and width; 0: one linear map. Cosines of linear maps cannot say "the
    same question *and* the same answer"; with a hidden layer they can."""
    heads: int = Field(1, ge=1)
    "Heads of the query's cross-attention over its pool."
    layers: int = Field(1, ge=1, le=1024)
    "Layers of that cross-attention, each with a residual and a norm."
    set_layers: int = Field(0, ge=0, le=1024)
    "Transformer layers in which a pool's candidates attend to each other (blind to their order); 0: none."
    shots: int = Field(2, ge=1)
    "K: most picks in training."
    evaluation_shots: int | None = Field(None, ge=1)
    "Picks of the greedy decoder (every shorter selection is its prefix); none: shots."
    decoder: Literal["none", "gated", "gru"] = "gated"
    "How the query's state takes in what was picked."
    logits: Literal["cosine", "additive", "bilinear"] = "cosine"
    "bilinear: state times a learnt matrix times candidate (the unit matrix at the start: a cosine)."
    logit_temperature: float = Field(0.1, gt=0)
    "Cosines and bilinear products are divided by this (additive logits are not)."
    diversity: bool = False
    "Subtract a learnt lambda_t times the largest cosine to what was picked."
    stop: bool = False
    "A STOP action: fewer than K picks, or none."
    stop_bias: float = 0.0
    """Start of STOP's logit, added to what the network says. Cosines start near .7: at a temperature of .1 each open
    candidate has a logit of 7, and with a bias much below 7 + log(candidates) STOP is never sampled."""
    min_shots: int = Field(0, ge=0)
    "STOP is not allowed before this many picks."
    temperature: float = Field(1.0, gt=0)
    "Sampling temperature; log-probabilities are those of the tempered policy."
    decision: Literal["pick", "sequence", "set"] = "pick"
    "What is clipped separately: each pick, the whole sequence, or the set in any order (K <= 4)."
    device: str = "auto"
    "auto: the first GPU where there is one."
    freeze: tuple[str, ...] = ()
    'Name patterns of parameters that stay fixed, such as "encoder.*".'
    dropout: float = Field(0.0, ge=0, lt=1)
    "Acts on the supervised loss alone, unless dropout_in_scoring is set."
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    "Supervised loss: share of the target spread evenly over all that could be picked."
    dropout_in_scoring: bool = False
    "Score with dropout what was sampled without it. This is the fault of recipes/selection/flat_line.toml."
    behaviour: Literal["current", "first", "stored"] = "current"
    """Stored actions: whose log-probabilities the ratio divides by. current: the policy's own at replay; nothing then
    bounds how far many epochs go. first: the policy's own when it first met the action, so that clipping bounds the
    whole stage (met anew in each process: a resumed run starts a new count). stored: the file's."""
    reuse: int = Field(0, ge=0)
    """Online: so many earlier selections of a query, at most, join its group again, so that a scorer's answers teach
    more than once; 0: none. They keep their rewards and the log-probabilities they were drawn with. Ratios are to those
    (clipped); with `algorithm.importance` the factor old / behaviour is truncated instead. reward/* are means over
    both."""
    model: str | None = None
    """To start from: a run, a checkpoint, an export, a file of weights (.safetensors, .pt, .ckpt), or a name of the Hub
    (owner/name[@revision]). Names of pointer selectors trained elsewhere are translated where the network is one of
    these; the rest is refused."""

    @model_validator(mode="after")
    def _sizes_agree(self) -> SelectorConfig:
        if self.width % self.heads:
            raise ValueError(
                Text(
                    f"width = {self.width} is not a multiple of heads = {self.heads}",
                    f"width = {self.width} 不是 heads = {self.heads} 的倍数",
                )
            )
        if self.min_shots > self.shots:
            raise ValueError(
                Text(
                    f"min_shots = {self.min_shots} is more than shots = {self.shots}",
                    f"min_shots = {self.min_shots} 大于 shots = {self.shots}",
                )
            )
        if self.decision == "set" and self.shots > 4:
            raise ValueError(
                Text(
                    f'decision = "set" sums over shots! orders; shots = {self.shots} is more than 4',
                    f'decision = "set" 要对 shots! 种顺序求和；shots = {self.shots} 大于 4',
                )
            )
        if self.set_layers and self.width % 4:
            raise ValueError(
                Text(
                    f"width = {self.width} is not a multiple of 4, the heads of set_layers",
                    f"width = {self.width} 不是 4（set_layers 的头数）的倍数",
                )
            )
        if self.dropout_in_scoring and not self.dropout:
            raise ValueError(
                Text("dropout_in_scoring = true, but dropout = 0", "dropout_in_scoring = true，但 dropout = 0")
            )
        return self


class RewardConfig(Section):
    """h = correct 0/1, s = accuracy score, g = probability of the true answer, rho = relevance, b = beam score."""

    mode: RewardMode = "hard_only"
    """h: the answer is right (0 or 1). s, g, b, rho: accuracy score, the truth's probability, beam score, relevance.
    hard_only: w_h h. soft_only: w_s s. hard_plus_soft: w_h h + w_s s. hard_plus_soft_v2 and separated (synonyms):
    2 w_h h + w_s s. hard01_plus_gtprob and hard_plus_gtprob (synonyms): w_h h + w_s g. hard01_plus_gtprob_separated:
    2 w_h h + w_s g. hard_plus_gtprob_plus_rel: w_h h + w_s g + w_rel (1 - h) rho. legacy: alpha b + beta h; legacy_pm1
    with 2h - 1 in place of h. info_score: w_s times the InfoScore (the gain in log-probability of the true answer).
    score: w_s times the number that a scorer of your own gives."""
    hard: float = 1.0
    "w_h"
    soft: float | None = None
    "w_s; none: 1, or .5 in hard_plus_gtprob_plus_rel (as published)."
    relevance: float = 0.3
    "w_rel"
    beam: float = 0.2
    "w_beam: alpha of the legacy modes."
    alpha: float | None = None
    "Legacy modes: weight of the beam score, by its published name; none: `beam`."
    beta: float | None = None
    "Legacy modes: weight of correctness, by its published name; none: `hard`."
    missing_beam: float = 0.0
    "Legacy modes: beam score of candidates that have none (sampled, retrieved, random), as published."
    per_shot: float = Field(default=0.0, ge=0)
    "Taken off for each pick that counts: where one more changes nothing, STOP is better by this much."

    @model_validator(mode="after")
    def _alpha_and_beta_are_legacy(self) -> RewardConfig:
        given = [name for name in ("alpha", "beta") if getattr(self, name) is not None]
        if given and not self.mode.startswith("legacy"):
            raise ValueError(
                Text(
                    f"{' and '.join(given)} weigh the legacy modes, and mode = {self.mode!r} has none",
                    f"{'、'.join(given)} 只给旧模式加权，而 mode = {self.mode!r} 用不到",
                )
            )
        return self


class DigitsVQAConfig(Section):
    """Choosing demonstrations for questions about handwritten digits; the frozen learner is a kernel average."""

    kind: Literal["digits_vqa"]
    pool: int = Field(32, ge=2)
    "Candidates a query."
    ragged: bool = False
    "Pools of different sizes (pool / 2 to pool), padded and masked."
    shots: int = Field(2, ge=1)
    "Picks that count for the reward."
    reward_shots: tuple[int, ...] = ()
    "Average the reward over these prefixes of a selection, (1, 2, 4) say; empty: all `shots` picks alone."
    queries: int = Field(0, ge=0)
    "Training queries in an epoch (0: endless)."
    held_out: int = Field(500, ge=1)
    "Measured queries."
    embedding: str = "minilm"
    """Question embeddings: "minilm", "ngrams" (hashed character n-grams), a path or Hub name of a sentence encoder, or
    an npz of `texts` and `embeddings` made beforehand."""
    image_sharpness: float = Field(12.0, gt=0)
    "Inverse temperature of the frozen learner's kernel, of pictures."
    text_sharpness: float = Field(12.0, gt=0)
    "The same of texts."
    reward: RewardConfig = RewardConfig()
    "`[task.reward]`: what a selection earns."


class DemonstrationsConfig(Section):
    """Choosing labelled examples to put before a query, for a frozen language model."""

    kind: Literal["demonstrations"]
    path: str = "movie"
    'JSONL with "text" and "label", or a name that scripts/fetch_sentiment.py fetched ("movie", "amazon").'
    labels: tuple[str, ...] = ("negative", "positive")
    "Answers that the frozen model chooses among."
    instruction: str = "Classify the sentiment of each review as negative or positive."
    "Stands first in the prompt."
    template: str | None = None
    """File of a Jinja template with `instruction`, `demonstrations` (rows of `text` and `label`), `query` (`text`) and
    `labels`; what it renders ends where the label begins. none: "Review: ... Sentiment: ..."."""
    pool: int = Field(32, ge=2)
    "Candidate demonstrations, the same for every query."
    shots: int = Field(4, ge=1)
    "Picks that count for the reward."
    reward_shots: tuple[int, ...] = ()
    "Average the reward over these prefixes of a selection; empty: all `shots` picks alone."
    queries: int = Field(128, ge=1)
    "Training queries."
    held_out_validation: int = Field(100, ge=1)
    "Queries to choose settings on."
    held_out_test: int = Field(200, ge=1)
    "Queries for the last word."
    held_out_split: Literal["validation", "test"] = "validation"
    "Which of the two are measured."
    split_seed: int = 1
    "Which texts are pool, training, validation and test: fixed, whatever the run's seed."
    model: str = "smollm2"
    "The frozen language model: smollm2, a path, or a Hub name."
    dtype: Literal["float32", "bfloat16"] = "float32"
    "Type that the frozen model computes in."
    batch_size: int = Field(16, ge=1)
    "Prompts a forward pass of the frozen model."
    embedding: str = "minilm"
    "As in digits_vqa."
    cache: str | None = None
    "SQLite file of the frozen model's answers; none: in the user's cache folder."
    reward: RewardConfig = RewardConfig(mode="hard01_plus_gtprob")
    "`[task.reward]`: what a selection earns."


class CompositionConfig(Section):
    """Two-word answers of a frozen language model that no single demonstration can give it."""

    kind: Literal["composition"]
    rule: Literal["codes", "hops"] = "codes"
    """codes: one demonstration for each half of the answer, many to each half. hops: the second demonstration is found
    by what the first one says."""
    pool: int = Field(10, ge=6, le=24)
    "Candidates a query (hops: an even number)."
    shots: int = Field(2, ge=1)
    "Picks that count for the reward."
    reward_shots: tuple[int, ...] = ()
    "Average the reward over these prefixes of a selection; empty: all `shots` picks alone."
    queries: int = Field(240, ge=1)
    "Training queries."
    held_out_validation: int = Field(60, ge=1)
    "Queries to choose settings on."
    held_out_test: int = Field(200, ge=1)
    "Queries for the last word."
    held_out_split: Literal["validation", "test"] = "validation"
    "Which of the two are measured."
    model: str = "smollm2"
    "The frozen language model: smollm2, a path, or a Hub name."
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    "Type that the frozen model computes in."
    batch_size: int = Field(64, ge=1)
    "Prompts a forward pass of the frozen model."
    embedding: str = "ngrams"
    "As in digits_vqa."
    cache: str | None = None
    "SQLite file of the frozen model's answers; none: in the user's cache folder."
    reward: RewardConfig = RewardConfig(mode="hard01_plus_gtprob")
    "`[task.reward]`: what a selection earns."

    @model_validator(mode="after")
    def _pairs(self) -> CompositionConfig:
        if self.rule == "hops" and self.pool % 2:
            raise ValueError(
                Text(
                    f"pool = {self.pool} is odd, and hops holds as many people as teams",
                    f"pool = {self.pool} 是奇数，而 hops 中的人数与队数相等",
                )
            )
        if self.rule == "codes" and self.pool > 15:
            raise ValueError(
                Text(
                    f"pool = {self.pool}, and codes has words for at most 15",
                    f"pool = {self.pool}，而 codes 至多有 15 个词",
                )
            )
        return self
