"""Any network with gates inside, as a policy. One decision is one site (or one element of a map)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from anygrpo.core import thumbnails
from anygrpo.core.rollout import Evaluation, Rollout
from anygrpo.core.task import Stored
from anygrpo.core.trained import frozen_weights, state_of
from anygrpo.core.tree import Tree, on
from anygrpo.errors import ConfigError
from anygrpo.gates.best import SITE, best_of, spread_of
from anygrpo.gates.calling import Call, prepared
from anygrpo.gates.choosing import Drawing, deterministic, replaying
from anygrpo.gates.examining import Examined
from anygrpo.gates.graphs import Graphs, Named, Pass
from anygrpo.gates.joining import Part, joined, prompts_at_once
from anygrpo.gates.loading import without_adapters
from anygrpo.gates.losses import one_target, weighted
from anygrpo.gates.sites import AllVisited, Choose, Tape, expect_sites, recording
from anygrpo.gates.sizes import COLUMNS, by_size, evaluation, shape_leaves, together, unsampled, widened
from anygrpo.spoken import Text

IMITATED = "imitated"
"""Leaf of a supervised stage's rows: their log-probs are no one's, and not computed beside its loss."""
PARTS = "parts"
"""The element of a map that each decision is for; the rollout's `turn`, not kept."""
COUNTS = "drawn"  # numbers that the edge guard moved and numbers drawn, per row; not kept
OF_OUTPUT = frozenset({"supervised", "consistency"})
"""What `evaluate` needs the output for; without them a pass may end at its last gate."""


class StochasticPolicy(Examined):
    """Samples the gates of `network`, and scores given gate values. The network always runs in eval mode: dropout or
    batch statistics would make the scored policy another one than the one that sampled.

    Samples: inputs and target by their keys, "restored" (the output), "site/NAME" of each site, and "at_mean" [P, G]
    bool: a supervised row whose gates follow the mean instead of the stored values.

    Args:
        network: forward(*inputs) -> [n, ...] with at least one `gate`.
        inputs: keys of a prompt that forward takes.
        target: key of a prompt that supervised losses compare with, or None.
        mode: "mean" or "mode": gate values of `greedy`.
        supervised: weights of the losses in `anygrpo.gates.losses`.
        supervised_gates: "mean", "sampled" or "best" (of `best_of` draws), for supervised stages.
        rows_at_once: rows in one forward pass while sampling.
        sites: shell patterns of the sites that are sampled; the others always follow their mean.
        graphs: replay passes of one shape as CUDA graphs.
        multiple, output, dtype: of a call of the network (`anygrpo.gates.calling.Call`).
    """

    provides: ClassVar[frozenset[str]] = frozenset({"entropy", "kl", "supervised", "consistency"})
    targets_in_samples: ClassVar[bool] = True

    def __init__(
        self,
        network: nn.Module,
        inputs: tuple[str, ...] = ("degraded",),
        target: str | None = "clean",
        mode: str = "mean",
        supervised: Mapping[str, float] | None = None,
        supervised_gates: str = "mean",
        best_of: int = 4,
        rows_at_once: int = 64,
        sites: tuple[str, ...] = ("*",),
        graphs: bool = False,
        multiple: int = 1,
        output: str | int | None = None,
        dtype: str = "float32",
    ) -> None:
        network = prepared(network)
        self.sites, self.source = sites, dict[str, Any]()  # source: how the network is made again, for exports
        self.call, self._graphs = Call(network, multiple, output, dtype), Graphs(network) if graphs else None
        self.network, self.inputs, self.target, self.mode = network.eval(), inputs, target, mode
        self.supervised: Mapping[str, float] = supervised or {"l1": 1.0}
        self.supervised_gates, self.best_of, self.rows_at_once = supervised_gates, best_of, rows_at_once
        self._frozen = {name: p.clone() for name, p in state_of(network).items() if "lora_" not in name}
        self._decisions: dict[tuple[tuple[int, ...], ...], int] = {}

    def trainable(self) -> nn.Module:
        return self.network

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    def probe(self, shapes: list[list[int]]) -> list[str]:
        """The site names met by one forward pass of noise of these shapes (one row of each input)."""
        rows = [torch.rand(1, *shape, device=self.device) for shape in shapes]
        with torch.no_grad():
            return list(self.run(rows, deterministic(self.mode))[1].sites)

    @contextmanager
    def reference(self) -> Iterator[None]:
        """The policy as it was built: the copy of what is trained in place, and every adapter off."""
        with frozen_weights(self.network, self._frozen), without_adapters(self.network):
            yield

    # --- sampling --------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def sample(self, prompts: list[Any], group_size: int, seed: int) -> Rollout:
        """P x G outputs, gates drawn from `seed`. Prompts may differ in shape (leaves are then padded with zeros)."""
        with self.seeded(seed):
            rollout = self._rollout(prompts, group_size, lambda given: self._pass("drawn", self._drawn, given))
        counts = rollout.samples.pop(COUNTS).flatten(0, 1).sum(0)
        told = spread_of(rollout.samples)
        moved, drawn, *values = torch.cat([counts.double(), *(x[None].double() for x in told.values())]).tolist()
        rollout.info.update(zip(told, values))
        rollout.info["restoration/gate_edge_share"] = moved / max(drawn, 1)
        return rollout

    def _drawn(self, given: Named) -> Named:
        return self._outcome(given, drawing := Drawing()) | {COUNTS: drawing.counts()}

    @torch.no_grad()
    def greedy(self, prompts: list[Any]) -> Rollout:
        """Gates at their mean (or mode): what the network does after training."""
        return self.rollout_with(prompts, 1, deterministic(self.mode))

    @torch.no_grad()
    def replay(self, prompts: list[Any], stored: Stored, seed: int) -> Rollout:
        """Supervised rows: `stored` holds one target a prompt (the clean picture); gates as `supervised_gates` says."""
        target = one_target(self.target, stored)
        prompts = [{**p, target: actions[0]} for p, actions in zip(prompts, stored.actions)]
        rollout = self._taught(prompts, seed)
        rollout.samples[IMITATED] = torch.ones(len(prompts), 1, dtype=torch.bool, device=self.device)
        return rollout

    def _taught(self, prompts: list[Any], seed: int) -> Rollout:
        if self.supervised_gates == "mean":
            return self._unsampled(prompts)
        if self.supervised_gates == "sampled":
            return self.sample(prompts, 1, seed)
        return best_of(self.sample(prompts, self.best_of, seed), str(self.target), self.supervised)

    def _unsampled(self, prompts: list[Any]) -> Rollout:
        """Rows whose gates will follow the mean: nothing is drawn, so log-probs are 0 (and no one reads them)."""
        return unsampled(prompts, self._keys(prompts[0]), [self._width(p) for p in prompts], self.device)

    def _width(self, prompt: Any) -> int:
        """Decisions of a prompt's rows: one pass for each shape, not one a step."""
        shapes = tuple(tuple(prompt[k].shape) for k in self.inputs)
        if shapes not in self._decisions:
            one = [prompt[k][None].to(self.device) for k in self.inputs]
            self._decisions[shapes] = self.run(one, deterministic("mean"))[1].width
        return self._decisions[shapes]

    def _keys(self, prompt: Any) -> list[str]:
        return [*self.inputs, *([self.target] if self.target and self.target in prompt else [])]

    def decode(self, samples: Tree) -> list[list[Tensor]]:
        """Outputs [P][G], on the policy's device, each without padding."""
        outputs, shapes = samples["restored"], samples["output_shape"].tolist()
        return [[x[tuple(slice(0, k) for k in s)] for x, s in zip(*row)] for row in zip(outputs, shapes)]

    def show(self, prompts: list[Any], outputs: list[list[Any]]) -> list[dict[str, Any]]:
        """A prompt's words and numbers, and each output's size and mean; of the first rows pictures as thumbnails, what
        was given too."""
        words = [{k: v for k, v in p.items() if not isinstance(v, Tensor)} for p in prompts]
        told = [[f"{list(x.shape)}, mean {float(x.mean()):.4f}" for x in row] for row in outputs]
        rows: list[dict[str, Any]] = [{"prompt": w, "outputs": t} for w, t in zip(words, told)]
        for row, prompt, made in zip(rows[: thumbnails.SHOWN], prompts, outputs):
            seen = [prompt[name] for name in self.inputs if thumbnails.looks_like_a_picture(prompt.get(name))]
            row |= {"pictures": [thumbnails.of_tensor(x) for x in seen]} if seen else {}
            some = [(x, thumbnails.looks_like_a_picture(x)) for x in made]
            row["outputs"] = [thumbnails.of_tensor(x) if so else t for (x, so), t in zip(some, row["outputs"])]
        return rows

    def evaluate(self, samples: Tree, times: slice, want: frozenset[str] = frozenset()) -> Evaluation:
        """Score rows at `times` of their sites.

        "supervised": the weighted losses of the output with these gate values against the target. "consistency": L1
        between that output and the deterministic one, which is held fixed: what training sees and what use sees
        should agree. "kl": exact, given the same input and the same values at earlier sites.

        Rows that differ in size are scored with those of their own. A wanted loss without a target: ConfigError.
        """
        self.check_wanted(want)
        columns, parts = by_size(on(samples, self.device), self._keys(samples))
        first, last = times.indices(columns)[:2]
        made = [(rows, widened(self._evaluate(part, times, want), last - first)) for rows, part in parts]
        return together(made)

    def _evaluate(self, samples: Tree, times: slice, want: frozenset[str]) -> Evaluation:
        """Rows of one size."""
        given, terms = self._given(samples, want)
        if "kl" not in want:
            return evaluation(
                self._pass(" ".join(["scored", *sorted(terms)]), lambda x: self._scored(x, terms)[0], given), times
            )
        with torch.no_grad(), self.reference():
            reference = self._scored(given, frozenset())[1]
        made, tape = self._scored(given, terms)
        return evaluation(made | {"kl": tape.kl_to(reference)}, times)

    def _given(self, samples: Tree, want: frozenset[str]) -> tuple[Named, frozenset[str]]:
        """What a pass over these rows reads: inputs, the target, and the sites' values (none: they follow the mean);
        and what it computes, with `IMITATED` where log-probs are left out."""
        at_mean = samples["at_mean"].any()
        imitated = samples[IMITATED].all() if IMITATED in samples else torch.zeros_like(at_mean)
        at_mean, imitated = torch.stack([at_mean, imitated]).tolist()
        keys = set(self.inputs)
        if "supervised" in want:
            if self.target is None or self.target not in samples:
                raise ConfigError(
                    Text("prompts have no target for the supervised loss", "提示没有用于监督损失的目标"),
                    Text("set lambda_supervised to 0", "请把 lambda_supervised 设为 0"),
                )
            keys.add(self.target)
        given = {k: x for k, x in samples.items() if k in keys or (k.startswith(SITE) and not at_mean)}
        return given, want | {IMITATED} if imitated and want == {"supervised"} else want

    def _scored(self, given: Named, want: frozenset[str]) -> tuple[Named, Tape]:
        """Log-probs, entropy and losses by name, and the sites. Without `OF_OUTPUT` the pass ends at the last site."""
        values = {k.removeprefix(SITE): x for k, x in given.items() if k.startswith(SITE)}
        choose = replaying(values) if values else deterministic("mean")
        rows = [given[key] for key in self.inputs]
        made: Named = {}
        if want & OF_OUTPUT:
            output, tape = self.run(rows, choose)
            if "supervised" in want:
                made["supervised"] = weighted(self.supervised, output, given[str(self.target)])
            if "consistency" in want:
                with torch.no_grad():
                    fixed, _ = self.run(rows, deterministic(self.mode))
                made["consistency"] = weighted({"l1": 1.0}, output, fixed)
        else:
            self.network.eval()
            run = recording(rows[0].shape[0], choose, self.sites, len(values) or None)
            with run as tape, suppress(AllVisited):
                self.call(rows)
        made["log_probs"] = rows[0].new_zeros(tape.rows, tape.width) if IMITATED in want else tape.log_probs()
        return made | ({"entropy": tape.entropy()} if "entropy" in want else {}), tape

    def _pass(self, name: str, function: Pass, given: Named) -> Named:
        return function(given) if self._graphs is None else self._graphs(name, function, given)

    def run(self, rows: list[Tensor], choose: Choose) -> tuple[Tensor, Tape]:
        """Output [n, ...] and the visited sites.

        Raises:
            ConfigError: the network has no site: every sample of a group would be the same.
        """
        self.network.eval()
        with recording(rows[0].shape[0], choose, self.sites) as tape:
            output = self.call(rows)
        expect_sites(tape, type(self.network).__name__, list(self.sites))
        return output, tape

    @torch.no_grad()
    def rollout_with(self, prompts: list[Any], group_size: int, choose: Choose) -> Rollout:
        """Outputs with gate values by your rule `choose(site name, distribution) -> value` (fixed gates, oracles)."""
        return self._rollout(prompts, group_size, lambda given: self._outcome(given, choose))

    def _rollout(self, prompts: list[Any], group_size: int, run: Callable[[Named], Named]) -> Rollout:
        by_shape: dict[Any, list[int]] = {}
        for i, prompt in enumerate(prompts):
            by_shape.setdefault(tuple(tuple(prompt[k].shape) for k in self.inputs), []).append(i)
        parts = [
            self._part(prompts, places[a : a + chunk], group_size, run)
            for shapes, places in by_shape.items()
            for chunk in [prompts_at_once(shapes[0], group_size, self.rows_at_once)]
            for a in range(0, len(places), chunk)
        ]
        samples, log_probs, mask = joined(parts)
        samples[COLUMNS] = torch.full(mask.shape[:2], mask.shape[2], device=mask.device)
        return Rollout.of(samples, log_probs, mask, turn=samples.pop(PARTS))

    def _part(self, prompts: list[Any], places: list[int], group_size: int, run: Callable[[Named], Named]) -> Part:
        keys = self._keys(prompts[places[0]])
        leaves = {k: torch.stack([prompts[i][k] for i in places]).to(self.device) for k in keys}
        leaves = {k: x.repeat_interleave(group_size, 0) for k, x in leaves.items()}
        leaves |= shape_leaves(keys, leaves)
        leaves |= run({k: leaves[k] for k in self.inputs})
        log_probs, mask, output = leaves.pop("log_probs"), leaves.pop("decided"), leaves["restored"]
        leaves["output_shape"] = torch.tensor([output.shape[1:]], device=output.device).expand(len(output), -1)
        leaves["at_mean"] = torch.zeros(output.shape[0], dtype=torch.bool, device=output.device)
        group = lambda x: x.reshape(len(places), group_size, *x.shape[1:])  # noqa: E731
        return places, {k: group(x) for k, x in leaves.items()}, group(log_probs), group(mask)

    def _outcome(self, given: Named, choose: Choose) -> Named:
        output, tape = self.run([given[key] for key in self.inputs], choose)
        values = {SITE + name: value for name, value in tape.values().items()}
        told = {"log_probs": tape.log_probs(), "decided": tape.mask(), PARTS: tape.parts().expand(tape.rows, -1)}
        return values | {"restored": output} | told

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(seed)
            yield
