"""vLLM in this process as the generation engine. Full weights are sent in memory before each generation and read back;
of adapters only they are sent, through a folder, each time under a new name.

Log-probs are vLLM's *processed* ones: of the distribution that it samples from, at the same temperature and support as
the training pass scores. What remains between the two is rounding; the policy measures it (`parity/abs_max`).

vLLM is imported here alone; `engine = "vllm"` asks for this module.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.errors import ConfigError, DataError, TrainingError
from anygrpo.language.engine.external import Likely
from anygrpo.language.engine.requests import Said, Talks, side_by_side
from anygrpo.language.engine.vllm_limits import check_settings, check_version, installed, lora_size
from anygrpo.language.generation import Generation, Sampling, Turn
from anygrpo.language.settings import CausalLMConfig
from anygrpo.scratch import Scratch
from anygrpo.spoken import Text

_PROBED = ("embed_tokens.weight", "o_proj.weight", "down_proj.weight", "norm.weight")
"""Weights that vLLM keeps under their Hugging Face name and, where its kernels do not repack them, in their shape: by
these a sync is checked."""


def build_engine(config: CausalLMConfig, dtype: torch.dtype, prompts: Any) -> VllmEngine:
    """The engine of a recipe's [policy] section.

    Raises:
        ConfigError: a vLLM that is too old, or settings that it cannot serve. DataError: it cannot load the model.
    """
    check_version(installed())
    check_settings(config)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            Text('engine = "vllm" works in one process', 'engine = "vllm" 只在一个进程中工作'),
            Text(
                'under torchrun use engine = "vllm_server" with a server for each rank',
                '在 torchrun 下请用 engine = "vllm_server"，每个进程一个服务',
            ),
        )
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # weights are handed over in memory
    from vllm import LLM  # pyright: ignore[reportMissingImports]

    from anygrpo.models.loading import resolve
    from anygrpo.models.origin import origin

    if origin(config.model).kind != "plain":
        raise ConfigError(
            Text(
                f"model = {config.model!r} is an adapter or a run, which vLLM cannot load by itself",
                f"model = {config.model!r} 是适配器或运行，vLLM 不能直接加载",
            ),
            Text("export it as merged and name that folder", "请导出为 merged，并给出那个文件夹"),
        )
    lora = config.train == "lora"
    adapters = {"enable_lora": True, "max_loras": 1, "max_lora_rank": lora_size(config.lora.rank)} if lora else {}
    try:
        llm = LLM(
            model=resolve(config.model),
            dtype=str(dtype).removeprefix("torch."),
            logprobs_mode="processed_logprobs",
            enable_prefix_caching=True,
            gpu_memory_utilization=config.engine_memory,
            enforce_eager=not torch.cuda.is_available(),  # on a CPU compiling takes minutes and gains little
            seed=0,
            **adapters,
        )
    except (OSError, ValueError) as error:
        raise DataError(
            Text(f"vLLM cannot load {config.model!r}: {error}", f"vLLM 无法加载 {config.model!r}：{error}"),
            Text('use engine = "builtin"', '请用 engine = "builtin"'),
        ) from None
    return VllmEngine(llm, adapters=lora, seconds=config.engine_timeout)


def parameters(sampling: Sampling, count: int, seed: int) -> dict[str, Any]:
    """`count` completions of one prompt as vLLM's sampling parameters, in Python and over HTTP alike."""
    s = sampling.support
    return {
        "n": count,
        "temperature": 0.0 if sampling.greedy else s.temperature,
        "top_p": s.top_p,
        "top_k": s.top_k,
        "min_p": s.min_p,
        "seed": seed % 2**31,
        "max_tokens": sampling.max_new_tokens,
        "min_tokens": s.min_new_tokens,
        "stop_token_ids": list(s.eos_ids),
        "stop": list(sampling.stop) or None,
        "skip_special_tokens": False,  # a stop text may be one
        "logprobs": 0,
    }


def prompt_seed(seed: int, prompt: int) -> int:
    """Each prompt's own seed: rows of different prompts must not share their random numbers."""
    return seed + 1_000_003 * prompt


class VllmEngine:
    """Implements `Engine` and `External` on a `vllm.LLM` of this process.

    Args:
        llm: with logprobs_mode "processed_logprobs", and adapters enabled where they are sent.
        adapters: send adapters alone.
        seconds: longest generation.

    Attributes:
        syncs: how often weights were sent.
    """

    def __init__(self, llm: Any, adapters: bool = False, seconds: float = 600.0) -> None:
        self.llm, self.adapters, self.seconds = llm, adapters, seconds
        self.syncs, self._adapter = 0, None

    @torch.no_grad()
    def refresh(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Send all weights; what is read back must be what was sent.

        Raises:
            TrainingError: vLLM still holds other weights.
        """
        sent = [(name, value.detach()) for name, value in weights]
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(sent)})
        self.llm.reset_prefix_cache()
        self.syncs += 1
        wrong = self.llm.apply_model(lambda model: _differing(model, sent))[0]
        if wrong:
            raise TrainingError(
                Text(
                    f"after sync {self.syncs} vLLM holds stale weights: {wrong[0]}",
                    f"第 {self.syncs} 次同步后，vLLM 的权重已过期：{wrong[0]}",
                ),
                Text('report this model; use "builtin"', '请报告这个模型；并用 "builtin"'),
            )

    def refresh_adapters(self, save: Callable[[Path], None]) -> None:
        """Adapters under a new name and number, which keys vLLM's caches; the former ones leave.

        Raises:
            TrainingError: vLLM did not take them.
        """
        from vllm.lora.request import LoRARequest  # pyright: ignore[reportMissingImports]

        old, self.syncs = self._adapter, self.syncs + 1
        with Scratch("adapter") as folder:
            save(folder)
            self._adapter = LoRARequest(f"sync-{self.syncs}", self.syncs, str(folder))
            if old is not None:
                self.llm.llm_engine.remove_lora(old.lora_int_id)
            self.llm.llm_engine.add_lora(self._adapter)
            held = self.llm.llm_engine.list_loras()
        if self.syncs not in held:
            raise TrainingError(
                Text(
                    f"after sync {self.syncs} vLLM holds adapters {sorted(held)}",
                    f"第 {self.syncs} 次同步后，vLLM 装有适配器 {sorted(held)}",
                ),
                Text('report this model; use "builtin"', '请报告这个模型；并用 "builtin"'),
            )

    def generate(
        self, prompts: list[list[int]], group_size: int, sampling: Sampling, seed: int, turn: Turn | None = None
    ) -> Generation:
        """See `Engine.generate`.

        Raises:
            TrainingError: it takes longer than `seconds`.
        """
        from vllm import SamplingParams  # pyright: ignore[reportMissingImports]

        start = time.perf_counter()
        if turn is not None:
            talks = Talks(prompts, group_size, sampling, seed, turn)
            side_by_side(talks, *self._by_turns(sampling.greedy))
            return talks.finish({"decode": time.perf_counter() - start})
        given = [parameters(sampling, group_size, prompt_seed(seed, p)) for p in range(len(prompts))]
        made = self._made(prompts, [SamplingParams(**one) for one in given])
        rows = [row for one in made for row in sorted(one.outputs, key=lambda r: r.index)]
        return _generation(rows, sampling.greedy, {"decode": time.perf_counter() - start})

    def _by_turns(self, greedy: bool) -> tuple[Any, Any]:
        """(begins the turn of a row, gives those that are done after one step of the engine)."""
        from vllm import SamplingParams  # pyright: ignore[reportMissingImports]

        rows: dict[str, int] = {}
        end = time.monotonic() + self.seconds

        def begin(row: int, ids: list[int], settings: Sampling, seed: int) -> None:
            wanted: Any = [{"prompt_token_ids": ids}]
            given = [SamplingParams(**parameters(settings, 1, seed))]
            (name,) = self.llm.enqueue(wanted, given, lora_request=self._adapter, use_tqdm=False)
            rows[name.split("-")[0]] = row

        def poll() -> list[tuple[int, Said]]:
            made = [out for out in self.llm.llm_engine.step() if out.finished]
            if time.monotonic() > end:
                self.llm.llm_engine.abort_request(list(rows))
                raise TrainingError(
                    Text(
                        f"vLLM did not finish {len(rows)} turns in engine_timeout = {self.seconds:g} s",
                        f"vLLM 在 engine_timeout = {self.seconds:g} 秒内没有完成 {len(rows)} 轮",
                    ),
                    Text(
                        "raise policy.engine_timeout, sample fewer prompts a step or shorter answers",
                        "请增大 policy.engine_timeout，减少每步的提示，或缩短回答",
                    ),
                )
            return [(rows.pop(out.request_id.split("-")[0]), _said(out.outputs[0])) for out in made]

        return begin, poll

    def likely(self, prompts: list[list[int]], count: int) -> Likely:
        """See `External.likely`."""
        from vllm import SamplingParams  # pyright: ignore[reportMissingImports]

        made = self._made(prompts, [SamplingParams(max_tokens=1, temperature=1.0, logprobs=count) for _ in prompts])
        return [{int(t): at.logprob for t, at in one.outputs[0].logprobs[0].items()} for one in made]

    def _made(self, prompts: list[list[int]], settings: list[Any]) -> list[Any]:
        """vLLM's outputs in the order of the prompts; waited for until `seconds` are over."""
        given: list[Any] = [{"prompt_token_ids": ids} for ids in prompts]
        wanted = self.llm.enqueue(given, settings, lora_request=self._adapter, use_tqdm=False)
        engine, made, end = self.llm.llm_engine, {}, time.monotonic() + self.seconds
        while engine.has_unfinished_requests():
            made |= {out.request_id: out for out in engine.step() if out.finished}
            if time.monotonic() > end:
                engine.abort_request([name for name in wanted if name not in made])
                raise TrainingError(
                    Text(
                        f"vLLM finished {len(made)} of {len(wanted)} prompts in engine_timeout = {self.seconds:g} s",
                        f"vLLM 在 engine_timeout = {self.seconds:g} 秒内只完成了 {len(wanted)} 个提示中的 {len(made)} "
                        "个",
                    ),
                    Text(
                        "raise policy.engine_timeout, sample fewer prompts a step or shorter answers",
                        "请增大 policy.engine_timeout，减少每步的提示，或缩短回答",
                    ),
                )
        # A request's name is its number, maybe with a suffix of vLLM's own.
        by_number = {name.split("-")[0]: out for name, out in made.items()}
        return [by_number[name.split("-")[0]] for name in wanted]


def _differing(model: Any, sent: list[tuple[str, Tensor]]) -> list[str]:
    """The probed weights that differ from what was sent, by more than the rounding to vLLM's type."""
    held = dict(model.named_parameters())
    pairs = [(n, v, held[n]) for n, v in sent if n.endswith(_PROBED) and n in held and held[n].shape == v.shape]
    if not pairs:
        return ["none of the weights sent is found there"]
    return [name for name, value, own in pairs if not torch.equal(value.to(own.dtype).to(own.device), own.data)]


def _said(row: Any) -> Said:
    logs = [at[t].logprob for at, t in zip(row.logprobs, row.token_ids)]
    return list(row.token_ids), logs, row.finish_reason == "stop"


def _generation(rows: list[Any], greedy: bool, seconds: dict[str, float]) -> Generation:
    ids = [list(row.token_ids) for row in rows]
    logs = [[at[t].logprob for at, t in zip(row.logprobs, row.token_ids)] for row in rows]
    return generation(ids, logs, [row.finish_reason == "stop" for row in rows], greedy, seconds)


def generation(
    ids: list[list[int]], logs: list[list[float]], ended: list[bool], greedy: bool, seconds: dict[str, float]
) -> Generation:
    """Rows of unequal length as a `Generation`; greedy ones carry no log-probs."""
    lengths = torch.tensor([len(row) for row in ids])
    width = max(int(lengths.max()), 1)
    pad = lambda rows, kind: torch.tensor([row + [0] * (width - len(row)) for row in rows], dtype=kind)  # noqa: E731
    inside = torch.arange(width) < lengths[:, None]
    log_probs = torch.zeros(inside.shape) if greedy else pad(logs, torch.float32)
    return Generation(pad(ids, torch.int64), lengths, inside, log_probs, torch.tensor(ended), seconds)
