"""`SelectorPolicy`: the pointer network as a policy. T: picks, or 1 where sequences or sets are what is clipped."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from anygrpo.core.policy import Policy
from anygrpo.core.rollout import Evaluation, Rollout
from anygrpo.core.task import Stored
from anygrpo.core.tree import Shared, Tree, tree_map
from anygrpo.errors import ConfigError
from anygrpo.selection import decoding, picks, replay
from anygrpo.selection import recorded as record
from anygrpo.selection.decoding import Drawn, Rules
from anygrpo.selection.grouping import Grouping
from anygrpo.selection.network import Encoded, SelectorNetwork
from anygrpo.selection.offer import Offer
from anygrpo.selection.prompts import Pools, choosable_by, is_range, pools
from anygrpo.selection.recorded import Recorded
from anygrpo.selection.reuse import Earlier, copied
from anygrpo.selection.settings import SelectorConfig
from anygrpo.spoken import Text


class SelectorPolicy(Policy):
    """Picks items from a query's own pool, without replacement.

    Sampling is always without dropout. Samples: prompt, a `Shared` leaf with what `Pools` holds, and chosen [P, G, K].
    """

    provides: ClassVar[frozenset[str]] = frozenset({"entropy", "kl", "supervised"})

    def __init__(self, config: SelectorConfig, network: SelectorNetwork) -> None:
        self.config, self.network = config, network.eval()
        self.temperature = config.temperature
        self.fix_reference()
        self._met: dict[tuple[int, tuple[int, ...]], Tensor] = {}
        self._recorded: Recorded | None = None
        self._may_keep = True
        self._earlier = Earlier(config.reuse) if config.reuse else None
        self.earlier_samples = config.reuse
        self.offer: Offer | None = None  # told by the export that this was loaded from
        self.offered = Offer()  # the pools that training met

    # --- the protocol -----------------------------------------------------------------------------------------

    def sample(self, prompts: list[Any], group_size: int, seed: int) -> Rollout:
        pool = self._pools(prompts, self.config.shots)
        generator = torch.Generator().manual_seed(seed)
        keep = self.one_update and self._may_keep
        encoded = self._encode(pool, keep)
        graph = keep and self.config.decision == "pick" and not self._earlier and record.recordable(self.network)
        drawn = decoding.sample(self.network, encoded, pool.choosable, group_size, self.rules(), generator, graph)
        if keep:
            self._recorded = Recorded(vars(pool), encoded, drawn if graph else None, record.versions(self.network))
        return self._rollout(pool, drawn)

    def judged(self, prompts: list[Any], rollout: Rollout) -> Rollout:
        self.offered = self.offered.seen(prompts)
        return rollout if self._earlier is None else self._earlier.joined(rollout, prompts, self.version)

    def new_stage(self) -> None:
        self.offered = Offer()
        if self._earlier is not None:
            self._earlier.draws.clear()  # another stage may reward them otherwise

    def check_copied(self) -> None:
        if self._earlier is not None:
            raise copied(self.config.reuse)

    def carried(self) -> dict[str, Any]:
        told = self.offered.told()
        offered = {"offered": told} if told else {}
        return offered if self._earlier is None else offered | {"earlier": self._earlier.state()}

    def opened(self, state: dict[str, Any]) -> None:
        self.offered = Offer.of(state.get("offered") or {})

    def resumed(self, state: dict[str, Any]) -> None:
        self.opened(state)
        if self._earlier is not None:
            self._earlier.load(state.get("earlier", []))

    def greedy(self, prompts: list[Any]) -> Rollout:
        shots = self.config.evaluation_shots or self.config.shots
        pool = self._pools(prompts, shots)
        encoded = self._encode(pool)
        chosen = decoding.greedy(self.network, encoded, pool.choosable, self.rules(shots))
        return self._rollout(pool, self._scored(pool, encoded, chosen[:, None]))

    def beam(self, prompts: list[Any], width: int) -> tuple[list[list[tuple[int, ...]]], list[list[float]]]:
        """The best `width` selections of each prompt and their log-probabilities, best first. Deterministic: these
        log-probabilities are scores, not propensities."""
        pool = self._pools(prompts, self.config.shots)
        chosen, scores = decoding.beams(self.network, self._encode(pool), pool.choosable, self.rules(), width)
        found = torch.isfinite(scores).tolist()
        actions = [[a for a, ok in zip(row, keep) if ok] for row, keep in zip(picks.tuples(chosen), found)]
        return actions, [[s for s, ok in zip(row, keep) if ok] for row, keep in zip(scores.tolist(), found)]

    def replay(self, prompts: list[Any], stored: Stored, seed: int) -> Rollout:
        self.offered = self.offered.seen(prompts)
        pool = self._pools(prompts, 1)
        chosen, valid = replay.padded(prompts, stored, self.config.shots, self.config.stop)
        rollout = self._rollout(pool, self._scored(pool, self._encode(pool), chosen.to(pool.query.device)))
        return replay.with_behaviour(rollout, prompts, stored, valid, self.config, self._met)

    def evaluate(self, samples: Tree, times: slice, want: frozenset[str] = frozenset()) -> Evaluation:
        self.check_wanted(want)
        if self.config.decision != "pick":
            return self._evaluate_whole(samples, want)
        self.network.train(self.config.dropout_in_scoring)
        if not want and (recorded := self._recorded_log_probs(samples)) is not None:
            return Evaluation(recorded[:, times])
        log_probs, _ = self._distributions(samples)
        chosen = samples["chosen"]
        mine = picks.of_chosen(log_probs, chosen)
        exact = picks.kl(log_probs, self._reference_distributions(samples)) if "kl" in want else None
        return Evaluation(
            mine[:, times],
            picks.entropy(log_probs)[:, times] if "entropy" in want else None,
            exact[:, times] if exact is not None else None,
            {"supervised": self._supervised(samples)} if "supervised" in want else {},
        )

    def decode(self, samples: Tree) -> list[list[tuple[int, ...]]]:
        return picks.tuples(samples["chosen"])

    def trainable(self) -> SelectorNetwork:
        return self.network

    # --- beyond the protocol ----------------------------------------------------------------------------------

    def rules(self, shots: int | None = None) -> Rules:
        return Rules(shots or self.config.shots, self.config.stop, self.config.min_shots, self.temperature)

    def first_pick(self, samples: Tree) -> Tensor:
        """[n, M + 1] probabilities of the first pick (the last column: STOP), without gradient."""
        with torch.no_grad():
            return self._distributions(samples)[0][:, 0].exp()

    @torch.no_grad()
    def pick_log_probs(self, samples: Tree) -> Tensor:
        """[n, K] of each pick given those before it (0 after the end), whatever `decision` is; without gradient."""
        return picks.of_chosen(self._distributions(samples)[0], samples["chosen"])

    def log_probs_of(self, prompts: list[Any], actions: list[list[Any]]) -> list[list[float]]:
        """Log-probabilities of whole given selections, ragged as they come; without gradient."""
        pool = self._pools(prompts, 1)
        chosen, valid = replay.padded(prompts, Stored(actions), self.config.shots, self.config.stop)
        totals = self._scored(pool, self._encode(pool), chosen.to(pool.query.device)).log_probs.sum(-1)
        return [row[keep].tolist() for row, keep in zip(totals.cpu(), valid)]

    def set_log_probs(self, samples: Tree) -> Tensor:
        """[n] log-probability of the picks in any order: logsumexp over their K! sequences (K <= 4)."""
        samples = self._here(samples)
        chosen = samples["chosen"]
        every = picks.orders(chosen)  # [n, K!, K]
        options = self._options(choosable_by(samples["prompt"])[:, None], every)
        log_probs = picks.log_softmax(self._logits(samples, every), options)
        totals = picks.of_chosen(log_probs, every).sum(-1)
        return totals.logsumexp(-1) - picks.repeats(chosen).log()

    def show(self, prompts: list[Any], outputs: list[list[Any]]) -> list[dict[str, Any]]:
        return [{"prompt": str(p.get("id")), "outputs": [list(o) for o in row]} for p, row in zip(prompts, outputs)]

    # --- inside -----------------------------------------------------------------------------------------------

    def _pools(self, prompts: list[Any], shots: int) -> Pools:
        found = pools(prompts, self.config.features, 1 if self.config.stop else shots)
        return found.to(next(self.network.parameters()).device)

    def _encode(self, pool: Pools, graph: bool = False) -> Encoded:
        self.network.eval()
        with torch.set_grad_enabled(graph):
            return self.network.encode(pool.query, pool.candidates, pool.choosable)

    @torch.no_grad()
    def _scored(self, pool: Pools, encoded: Encoded, chosen: Tensor) -> Drawn:
        """Given selections [P, G, K] as if they had been drawn."""
        options = self._options(pool.choosable[:, None], chosen)
        log_probs = picks.log_softmax(self.network.logits(encoded, chosen) / self.temperature, options)
        return Drawn(chosen, picks.of_chosen(log_probs, chosen), picks.decision_mask(options, chosen))

    def before_sharding(self, dtype: torch.dtype | None) -> None:
        self._may_keep = False  # whole weights exist in passing only; a graph must not hold them

    def _rollout(self, pool: Pools, drawn: Drawn) -> Rollout:
        """Selections [P, G, K] as a rollout under the present weights, without dropout."""
        p, g, _ = drawn.chosen.shape
        which = torch.arange(p, device=drawn.chosen.device)[:, None].expand(p, g)
        samples = {"prompt": Shared(vars(pool), which), "chosen": drawn.chosen}
        mask, log_probs = drawn.free, drawn.log_probs
        if self.config.decision != "pick":
            mask, log_probs = mask.any(-1, keepdim=True), log_probs.sum(-1, keepdim=True)
        if self.config.decision == "set":
            with torch.no_grad():
                log_probs = self.set_log_probs(tree_map(lambda x: x.flatten(0, 1), samples)).view(p, g, 1)
        version = torch.full((p, g), self.version, dtype=torch.int64, device=log_probs.device)
        return Rollout.of(samples, log_probs, mask, version=version, limit=log_probs.shape[-1])

    def _options(self, choosable: Tensor, chosen: Tensor) -> Tensor:
        return picks.open_columns(choosable, chosen, self.config.stop, self.config.min_shots)

    def _distributions(self, samples: Tree) -> tuple[Tensor, Tensor]:
        """Log-probabilities and open columns [n, K, M + 1]."""
        samples = self._here(samples)
        options = self._options(choosable_by(samples["prompt"]), samples["chosen"])
        logits = self._logits(samples, samples["chosen"][:, None])[:, 0]
        return picks.log_softmax(logits, options), options

    def _encoded_prompts(self, values: dict[str, Tensor], index: Tensor) -> Encoded:
        """The prompts at `index`, with the graph recorded in sampling where there is one: it serves once."""
        recorded = self._take_recorded(values)
        if recorded is None:
            pool = Pools.of(values, index.device).rows(index)
            return self.network.encode(pool.query, pool.candidates, pool.choosable)
        every = is_range(index, len(values["query"]))
        return recorded.encoded if every else recorded.encoded.map(lambda x: x[index])

    def _recorded_log_probs(self, samples: Tree) -> Tensor | None:
        """[n, K] as recorded in sampling, where the rows are all of the last rollout's and the weights still those."""
        prompt = samples["prompt"]
        recorded = self._take_recorded(prompt.values)
        if recorded is None:
            return None
        made = recorded.log_probs(self.network, prompt.index, samples["chosen"], self.temperature)
        if made is None:
            self._recorded = recorded  # the encoded prompts may serve yet
        return made

    def _take_recorded(self, values: dict[str, Tensor]) -> Recorded | None:
        recorded = self._recorded
        if recorded is None or self.network.training or not torch.is_grad_enabled():
            return None
        self._recorded = None
        return recorded if recorded.fits(self.network, values) else None

    def _here(self, samples: Tree) -> Tree:
        device = next(self.network.parameters()).device
        return tree_map(lambda x: x.to(device), samples)

    def _logits(self, samples: Tree, chosen: Tensor) -> Tensor:
        """Tempered logits [n, c, K, M + 1] of c selections [n, c, K] of each row; each prompt is encoded once, however
        many rows it has."""
        n, count, _ = chosen.shape
        own_noise = self.network.training and self.config.dropout > 0
        prompt = samples["prompt"]
        grouping = Grouping.of(torch.arange(n, device=chosen.device) if own_noise else prompt.index)
        encoded = self._encoded_prompts(prompt.values, prompt.index[grouping.first]).map(grouping.cells)
        grid = grouping.spread(chosen, picks.NOTHING).flatten(1, 2)
        logits = self.network.logits(encoded, grid) / self.temperature
        return grouping.rows(logits.unflatten(1, (-1, count)))

    def _reference_distributions(self, samples: Tree) -> Tensor:
        training = self.network.training
        self.network.eval()
        with torch.no_grad(), self.reference():
            log_probs = self._distributions(samples)[0]
        self.network.train(training)
        return log_probs

    def _supervised(self, samples: Tree) -> Tensor:
        """Cross-entropy of each row's picks, mean over its decisions, with dropout and label smoothing where they are
        configured; [n]. Smoothing spreads its share of the target over the open columns."""
        self.network.train(self.config.dropout > 0)
        log_probs, options = self._distributions(samples)
        self.network.eval()
        chosen = samples["chosen"].to(options.device)
        mask = picks.decision_mask(options, chosen)
        found, share = picks.of_chosen(log_probs, chosen), self.config.label_smoothing
        if share:
            spread = torch.where(options, log_probs, 0.0).sum(-1) / options.sum(-1).clamp_min(1)
            found = (1 - share) * found + share * spread
        return -(found * mask).sum(-1) / mask.sum(-1).clamp_min(1)

    def _whole(self, samples: Tree) -> Tensor:
        """[n] log-probability of whole sequences, or of sets."""
        if self.config.decision == "set":
            return self.set_log_probs(samples)
        return picks.of_chosen(self._distributions(samples)[0], samples["chosen"]).sum(-1)

    def _evaluate_whole(self, samples: Tree, want: frozenset[str]) -> Evaluation:
        if exact := sorted(want & {"entropy", "kl"}):
            raise ConfigError(
                Text(
                    f"exact {' and '.join(exact)} of whole {self.config.decision}s would be sums over every selection",
                    f"整个 {self.config.decision} 的精确 {' 与 '.join(exact)} 要对所有选择求和",
                ),
                Text(
                    'set policy.decision = "pick", or kl = "k3" and entropy_coef = 0',
                    '请设 policy.decision = "pick"，或 kl = "k3" 且 entropy_coef = 0',
                ),
            )
        self.network.train(self.config.dropout_in_scoring)
        scored = self._whole(samples)[:, None]  # before the supervised pass, which has a mode of its own
        return Evaluation(scored, losses={"supervised": self._supervised(samples)} if "supervised" in want else {})
