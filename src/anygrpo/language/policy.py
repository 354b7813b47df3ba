"""A causal language model as a policy: T is the tokens of a completion."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from anygrpo.core.policy import Policy
from anygrpo.core.rollout import Evaluation, Rollout
from anygrpo.core.saved import Form
from anygrpo.core.task import Stored
from anygrpo.core.tree import Tree
from anygrpo.errors import ConfigError, DataError
from anygrpo.language import agreement, beside, files
from anygrpo.language.body import Weights
from anygrpo.language.compute.head import score
from anygrpo.language.compute.log_probs import Scorer, Targets
from anygrpo.language.compute.longest import holds_for_the_longest
from anygrpo.language.conversation import Conversations
from anygrpo.language.dials import TOKENS, decode_rows, held_budget, settle
from anygrpo.language.engine.builtin import BuiltinEngine
from anygrpo.language.engine.external import External, SyncProbe
from anygrpo.language.generation import Engine, Generation, Sampling, Support, apart
from anygrpo.language.prompts import Prompts
from anygrpo.language.replay import listed, replayed
from anygrpo.language.routers import Routers, states_and_losses
from anygrpo.language.samples import rollout_of
from anygrpo.language.settings import CausalLMConfig
from anygrpo.language.tasks.pictures import unseen, with_thumbnails
from anygrpo.language.turns.driver import Turns
from anygrpo.language.turns.record import recorded
from anygrpo.language.turns.talk import Talk
from anygrpo.spoken import Text


class CausalLM(Policy):
    """See `anygrpo.language.build.build`.

    Attributes:
        temperature, top_p, top_k, min_p: of the sampled *and* scored distribution; may be changed by `settings`.
        parity: largest difference seen between the sampler's log-probs and the training pass's, None before any check.
        held: the engine's weights stay as they are until `release_sampler`, or (of a copy) `follow`.
        trust_sampler: do the sampler's log-probs go into the rollout as they are? None until the first check.
    """

    provides: ClassVar[frozenset[str]] = frozenset({"entropy", "kl"})

    def __init__(
        self, config: CausalLMConfig, weights: Weights, scorer: Scorer, prompts: Prompts, engine: Engine
    ) -> None:
        self.config, self.weights, self.scorer, self.prompts, self.engine = config, weights, scorer, prompts, engine
        self.temperature, self.top_p = _start(config.temperature), _start(config.top_p)
        self.top_k, self.min_p = int(_start(config.top_k)), _start(config.min_p)
        self.scales_loss = weights.dtype == torch.float16
        if scorer.device.type != "cpu":
            self.block_rows = 2**30  # there the token budget alone decides
        self.parity: float | None = None
        self.trust_sampler: bool | None = None
        self.one_update = self.held = False
        self.conversations, self._unproved = Conversations(prompts), True
        self.talk = Talk.of(config, prompts)
        if self.talk is not None:
            self.conversations.read = self.talk.message
        self._probe = SyncProbe(self.next_log_probs)
        self.routers = Routers(weights.training_model(), config.router_loss) if config.router_loss else None
        self.own_losses = frozenset({"router"}) if config.router_loss else frozenset()

    @property
    def old_from_training(self) -> bool:
        """With one update a rollout, a sampler that failed the check is not rescored: the first pass is."""
        return self.one_update and self.trust_sampler is False

    def carried(self) -> dict[str, Any]:
        pictures = self.prompts.pictures
        return agreement.carried(self) | ({} if pictures is None else {"pictures": pictures.carried()})

    def resumed(self, state: dict[str, Any]) -> None:
        agreement.resumed(self, state)
        if self.prompts.pictures is not None:
            self.prompts.pictures.resumed(state.get("pictures", {}))

    # -- sampling ----------------------------------------------------------------------------------------------------

    @property
    def support(self) -> Support:
        return Support(
            self.temperature,
            int(self.top_k),
            self.top_p,
            self.min_p,
            self.config.min_new_tokens,
            self.prompts.ends,
            self.prompts.never,
        )

    def sample(self, prompts: list[Any], group_size: int, seed: int) -> Rollout:
        """Completions of each prompt.

        samples: prompt_ids [P, G, Lp], prompt_lengths [P, G], completion_ids [P, G, T], completion_lengths [P, G],
        group [P, G] (a number for each different prompt), written_by [P, G, T] (see `conversation`), and of
        conversations their number, conversation [P, G]. log_probs are those of the training pass.
        """
        return self._generate(prompts, group_size, seed, greedy=False)

    def check_prompts(self, prompts: list[Any]) -> None:
        if self.talk is not None:
            self.talk.check(prompts)
        if self.prompts.pictures is not None and (name := next(filter(None, map(unseen, prompts)), None)):
            raise DataError(
                Text(f"rows have a column {name!r} that no prompt shows", f"数据有 {name!r} 列，而提示中没有显示它"),
                Text(f'set task.pictures = "{name}", or rename the column', f'请设 task.pictures = "{name}"，或改列名'),
            )
        self.prompts.check(prompts, self.config.max_new_tokens)

    def greedy(self, prompts: list[Any]) -> Rollout:
        """The likeliest token each time, G = 1."""
        return self._generate(prompts, 1, seed=0, greedy=True)

    def _generate(self, prompts: list[Any], group_size: int, seed: int, greedy: bool) -> Rollout:
        start = time.perf_counter()
        config = self.config
        outside, between = beside.turns_of(self)
        turns = self.talk and Turns(self.talk, prompts, group_size, config.max_new_tokens, outside)
        try:
            ids = turns.ids() if turns else self.prompts.encode(prompts, config.max_new_tokens)
            rows = decode_rows(self, ids, group_size)
            sampling = Sampling(self.support, config.max_new_tokens, config.stop, greedy, rows, between)
            if not self.held:
                self._sync(ids)
            made = self.engine.generate(ids, group_size, sampling, seed, turns or None)
        except BaseException:
            if turns:
                turns.abandon()
            raise
        rollout = rollout_of(ids, group_size, made, config.max_new_tokens, self.version)
        if turns:
            rollout = recorded(rollout, turns.finish(made), self.conversations, turns.talk.format is not None)
        rollout.info["time/generate"] = time.perf_counter() - start
        if greedy:
            return rollout
        if self._unproved and not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            self._unproved = not holds_for_the_longest(self, rollout)
            if self._unproved:
                return self._generate(prompts, group_size, seed, greedy)
        return agreement.checked(self, rollout)

    def hold_sampler(self) -> bool:
        """True where the engine's weights can be its own memory and its log-probs are taken as they are (by a check
        that has been made, or because the loop corrects for what differs)."""
        if self.prompts.pictures is not None and torch.distributed.is_initialized():
            raise ConfigError(
                Text("pictures in prompts, sampled ahead on several ranks", "提示含图片，并在多个进程上提前采样"),
                Text("set training.off_policy_steps = 0", "请设 training.off_policy_steps = 0"),
            )
        known = self.trust_sampler or (self.corrects and self.trust_sampler is not None)
        proved = torch.distributed.is_initialized() or not self._unproved  # a proof beside an update sees it move
        if known and proved and apart(self.engine):
            self.weights.separate()
            self._sync([])
            self.held = True
        return self.held

    def release_sampler(self) -> None:
        self.held = False

    def check_copied(self) -> None:
        beside.check(self)

    def copied(self, prompts: list[Any]) -> CausalLM:
        return beside.second_sampler(self, prompts)

    def follow(self, other: Policy) -> None:
        assert isinstance(other, CausalLM)
        self.engine.refresh(other.weights.copies())

    def _sync(self, prompts: list[list[int]]) -> None:
        """Bring the engine up to date, and see that one outside of this memory has followed."""
        if not isinstance(self.engine, External):
            if self.weights.live:
                self.weights.training_model()  # casts of the present adapters
            self.engine.refresh(self.weights.merged())
            return
        if self.engine.adapters:
            self.engine.refresh_adapters(self.weights.save_adapters)
        else:
            self.engine.refresh(self.weights.merged())
        self._probe.check(self.engine, prompts)

    @torch.no_grad()
    def rescore(self, samples: Tree) -> Tensor:
        """[n, T] log-probs of rows [n, ...] by the training pass, without gradient, in blocks of `token_budget`."""
        total = samples["completion_ids"].shape[1]
        out = torch.zeros(samples["completion_ids"].shape)
        for index in self.plan(samples, len(out)):
            rows = {name: x[index] for name, x in samples.items()}
            out[index] = self.evaluate(rows, slice(0, total)).log_probs.float().cpu()
        return out

    def plan(self, samples: Tree, rows: int) -> list[Tensor]:
        """Blocks of at most `rows` rows and `token_budget` tokens, rows that share a prompt together."""
        budget = self.config.token_budget
        return self.scorer.plan(samples, rows, held_budget(self.speed) or TOKENS if budget == "auto" else budget)

    def settle(self, samples: Tree, beside: int) -> str:
        return settle(self, samples, beside)

    def before_sharding(self, dtype: torch.dtype | None) -> None:
        """The built-in engine gets a model of its own, in `dtype`."""
        sampler = self.weights.own_sampler()
        if isinstance(self.engine, BuiltinEngine):
            self.engine = self.engine.with_model(sampler, dtype or self.engine.dtype)

    @torch.no_grad()
    def next_log_probs(self, prompts: list[list[int]], tokens: list[list[int]]) -> list[list[float]]:
        """Log-probs by the training pass, at temperature 1, of given next tokens of each prompt."""
        rows = [p for p, row in enumerate(tokens) for _ in row]
        flat = [[t] for row in tokens for t in row]
        samples = listed([prompts[p] for p in rows], flat, self.scorer.device)
        samples["group"] = torch.tensor(rows, device=self.scorer.device)
        targets, model = Targets.of(samples, slice(0, 1)), self.weights.training_model()
        hidden, head = self.scorer.hidden(model, samples, targets), self.scorer.head(model)
        flat = score(hidden, head, targets.token, Support(), targets.decision).log_probs.float().cpu()
        return [part.tolist() for part in flat.split([len(row) for row in tokens])]

    def answer(self, prompts: list[list[int]], length: int) -> Generation:
        """The likeliest answers of at most `length` tokens to prompts of token ids, whatever the sampling settings."""
        self._sync(prompts)
        support = Support(eos_ids=self.prompts.ends, never=self.prompts.never)
        return self.engine.generate(prompts, 1, Sampling(support, length, greedy=True), 0)

    # -- scoring -----------------------------------------------------------------------------------------------------

    def evaluate(self, samples: Tree, times: slice, want: frozenset[str] = frozenset()) -> Evaluation:
        """Log-probs [n, t] of completion tokens (0 beyond a row's end). With "kl", the exact KL over the vocabulary."""
        self.check_wanted(want)
        device = self.scorer.device
        samples = {name: x.to(device) for name, x in samples.items()}
        targets = Targets.of(samples, times)
        model = self.weights.training_model()
        hidden, losses = states_and_losses(self.scorer, self.routers, model, samples, targets)
        head = self.scorer.head(model)
        reference = self._reference(samples, targets) if "kl" in want else None
        made = score(hidden, head, targets.token, self.support, targets.decision, "entropy" in want, reference)
        shape = samples["completion_ids"][:, times].shape
        column = targets.decision - (times.start or 0)
        spread = lambda x: None if x is None else x.new_zeros(shape).index_put((targets.row, column), x)  # noqa: E731
        return Evaluation(spread(made.log_probs), spread(made.entropy), spread(made.kl), losses)  # type: ignore[arg-type]

    @torch.no_grad()
    def _reference(self, samples: Tree, targets: Targets) -> tuple[Tensor, Any]:
        with self.reference():
            model = self.weights.training_model()
            return self.scorer.hidden(model, samples, targets), self.scorer.head(model)

    def reference(self) -> AbstractContextManager[None]:
        return self.weights.reference()

    def trainable(self) -> nn.Module:
        return self.weights.module

    def saved_names(self) -> dict[str, str]:
        return files.names_of(self)

    def saved_form(self) -> Form:
        return files.form_of(self)

    # -- texts -------------------------------------------------------------------------------------------------------

    def decode(self, samples: Tree) -> list[list[str]]:
        """The completions [P, G] as a reward reads them: texts, of conversations an `Answer`."""
        ids, lengths = samples["completion_ids"].tolist(), samples["completion_lengths"].tolist()
        if "written_by" not in samples:
            return [[self.prompts.text(row[:n]) for row, n in zip(*some)] for some in zip(ids, lengths)]
        numbers = samples["conversation"].tolist() if "conversation" in samples else [[-1] * len(row) for row in ids]
        read = self.conversations.answer
        return [
            [read(row[:n], by, number) for row, n, by, number in zip(*some)]
            for some in zip(ids, lengths, samples["written_by"].tolist(), numbers)
        ]

    def show(self, prompts: list[Any], outputs: list[list[Any]]) -> list[dict[str, Any]]:
        """As any policy; of a model that sees, the first rows with thumbnails of their pictures."""
        rows = super().show(prompts, outputs)
        return rows if self.prompts.pictures is None else with_thumbnails(rows, prompts)

    def replay(self, prompts: list[Any], stored: Stored, seed: int) -> Rollout:
        """Given answers as a rollout, tokenised once, each with the end token; short lists padded with valid = False.

        log_probs are the present weights' own, since text carries none by token. Where `stored.log_probs` gives the
        propensity of a whole answer, each token's is shifted by the same amount, so that the sum is the given one.
        """
        return replayed(self, prompts, stored)


def _start(number: Any) -> float:
    return number if isinstance(number, (int, float)) else number.start
