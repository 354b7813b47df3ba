"""A vLLM server (its OpenAI-compatible one) as the generation engine, on a disk shared with it. docs/scaling.md says
how to start it.

Adapters go through `/v1/load_lora_adapter`, each sync under a name of its own: a server that was restarted does not
know the name and says so. All weights go through `/collective_rpc reload_weights` from a folder, and the server is told
a version (`/update_weight_version`) that must still be there at the next generation. Only the standard library is used.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.errors import ConfigError, TrainingError
from anygrpo.language.engine.external import Likely
from anygrpo.language.engine.requests import Said, Talks, one_after_another
from anygrpo.language.engine.vllm import generation, parameters, prompt_seed
from anygrpo.language.engine.vllm_limits import check_settings, check_version
from anygrpo.language.generation import Generation, Sampling, Turn
from anygrpo.language.settings import CausalLMConfig
from anygrpo.scratch import Scratch
from anygrpo.spoken import Text

_AT_ONCE = 64
"""Requests under way at once; vLLM batches them."""
TALKS = 256
"""Conversations under way at once: most of a thread's time is waiting."""


def build_engine(config: CausalLMConfig, dtype: torch.dtype, prompts: Any) -> VllmServer:
    """The engine of a recipe's [policy] section: the server must answer.

    Raises:
        ConfigError: settings that it cannot serve, a version that is too old, log-probs of another kind.
        TrainingError: it does not answer.
    """
    check_settings(config)
    url = config.engine_url or ""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and "{rank}" not in url:
        raise ConfigError(
            Text(f"engine_url = {url!r} for several ranks", f"多个进程共用 engine_url = {url!r}"),
            Text("put {rank} in it: a server for each rank", "请在其中写上 {rank}：每个进程一个服务"),
        )
    url = url.replace("{rank}", os.environ.get("RANK", "0"))
    made = VllmServer(url, config.train == "lora", dtype, config.engine_timeout, config.engine_folder)
    made.check()
    return made


class VllmServer:
    """Implements `Engine` and `External` over HTTP.

    Args:
        url: http://host:port.
        adapters: send adapters alone.
        dtype: of the weights written for the server.
        seconds: longest wait for one answer.
        folder: on a disk that the server sees too; None: a temporary folder here.

    Attributes:
        syncs: how often weights were sent.
        apart: generation may run beside updates.
    """

    apart = True

    def __init__(self, url: str, adapters: bool, dtype: torch.dtype, seconds: float, folder: str | None) -> None:
        self.url, self.adapters, self.dtype, self.seconds = url.rstrip("/"), adapters, dtype, seconds
        self._home = Path(folder) if folder else None
        self._token, self.syncs, self.model = uuid.uuid4().hex[:8], 0, ""
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open  # never through a proxy

    def check(self) -> None:
        """The server answers, is a version that was tested, and gives log-probs of the distribution it samples from."""
        check_version(str(self._ask("/version")["version"]))
        self.model = self._ask("/v1/models")["data"][0]["id"]
        only = {"prompt": [1, 2, 3], "max_tokens": 1, "temperature": 1.0, "top_k": 1, "logprobs": 0}
        value = self._ask("/v1/completions", only | {"model": self.model})["choices"][0]["logprobs"]["token_logprobs"][
            0
        ]
        if abs(value) > 1e-4:
            raise ConfigError(
                Text(
                    f"{self.url} gives raw log-probs ({value:.3f} for the only possible token)",
                    f"{self.url} 给出的是原始对数概率（唯一可能的 token 为 {value:.3f}）",
                ),
                Text(
                    "start the server with --logprobs-mode processed_logprobs",
                    "请以 --logprobs-mode processed_logprobs 启动服务",
                ),
            )

    @torch.no_grad()
    def refresh(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """All weights, through the disk.

        Raises:
            TrainingError: the server does not take them.
        """
        from safetensors.torch import save_file

        folder = self._next_folder()
        sent: dict[str, Tensor] = {}
        for name, value in weights:
            value = value.detach().to(self.dtype).cpu().contiguous()
            # A tied head is sent as well: vLLM reloads in place, and would keep the old one.
            shared = any(value.data_ptr() == other.data_ptr() for other in sent.values())
            sent[name] = value.clone() if shared else value
        save_file(sent, folder / "model.safetensors")
        try:
            self._ask(
                "/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(folder.resolve())}}
            )
            self._ask("/reset_prefix_cache", {})
            self._ask("/update_weight_version", {"new_version": self._version})
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def refresh_adapters(self, save: Callable[[Path], None]) -> None:
        """Adapters alone, through the disk.

        Raises:
            TrainingError: the server does not take them.
        """
        old, folder = self._version, self._next_folder()
        save(folder)
        try:
            self._ask("/v1/load_lora_adapter", {"lora_name": self._version, "lora_path": str(folder.resolve())})
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if self.syncs > 1:
            self._ask("/v1/unload_lora_adapter", {"lora_name": old})

    @property
    def _version(self) -> str:
        return f"anygrpo-{self._token}-{self.syncs}"

    def _next_folder(self) -> Path:
        self.syncs += 1
        if self._home is None:
            self._scratch = Scratch("vllm")  # goes with this object
            self._home = self._scratch.path
        folder = self._home / self._version
        folder.mkdir(parents=True)
        return folder

    def generate(
        self, prompts: list[list[int]], group_size: int, sampling: Sampling, seed: int, turn: Turn | None = None
    ) -> Generation:
        """See `Engine.generate`.

        Raises:
            TrainingError: no answer in time, or the server holds other weights.
        """
        self._same_weights()
        start = time.perf_counter()
        if turn is not None:
            talks = Talks(prompts, group_size, sampling, seed, turn)
            with ThreadPoolExecutor(min(TALKS, len(talks.prompts))) as pool:
                for done in [pool.submit(one_after_another, talks, row, self._turn) for row in range(len(talks.ids))]:
                    done.result()
            return talks.finish({"decode": time.perf_counter() - start})
        given = [parameters(sampling, group_size, prompt_seed(seed, p)) for p in range(len(prompts))]
        rows = [row for answer in self._completed(prompts, given) for row in answer]
        ids = [row["token_ids"] for row in rows]
        logs = [row["logprobs"]["token_logprobs"] for row in rows]
        ended = [row["finish_reason"] == "stop" for row in rows]
        return generation(ids, logs, ended, sampling.greedy, {"decode": time.perf_counter() - start})

    def _turn(self, ids: list[int], settings: Sampling, seed: int) -> Said:
        ((row,),) = self._completed([ids], [parameters(settings, 1, seed)])
        return row["token_ids"], row["logprobs"]["token_logprobs"], row["finish_reason"] == "stop"

    def likely(self, prompts: list[list[int]], count: int) -> Likely:
        """See `External.likely`."""
        given = {"max_tokens": 1, "temperature": 1.0, "logprobs": count, "return_tokens_as_token_ids": True}
        made = [row[0]["logprobs"]["top_logprobs"][0] for row in self._completed(prompts, [given] * len(prompts))]
        return [{int(name.removeprefix("token_id:")): value for name, value in at.items()} for at in made]

    def _completed(self, prompts: list[list[int]], given: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        """The choices for each prompt, in order; all prompts under way at once."""
        common = {"model": self._version if self.adapters else self.model, "return_token_ids": True}
        bodies = [common | {"prompt": ids} | one for ids, one in zip(prompts, given)]
        with ThreadPoolExecutor(min(_AT_ONCE, len(bodies))) as pool:
            answers = list(pool.map(lambda body: self._ask("/v1/completions", body), bodies))
        return [sorted(answer["choices"], key=lambda row: row["index"]) for answer in answers]

    def _same_weights(self) -> None:
        """A server that was restarted, or that another run has sent weights to, no longer knows our version. (Adapters
        that it does not know it refuses by itself.)"""
        if self.adapters:
            return
        held = self._ask("/weight_info")["weight_version"]
        if held != self._version:
            raise TrainingError(
                Text(
                    f"{self.url} holds weights {held!r}, this run sent {self._version!r}: it was "
                    "restarted, or another run "
                    "uses it",
                    f"{self.url} 装有权重 {held!r}，本次运行发送的是 {self._version!r}：它重启过，或另一次运行在用它",
                ),
                Text("give each run a server of its own, then --resume", "请给每次运行单独的服务，再用 --resume"),
            )

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """The answer's JSON (None where it is empty)."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        try:
            with self._open(request, timeout=self.seconds) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")[:300]
            raise TrainingError(
                f"{self.url}{path}: {error.code} {error.reason}: {said}", _CURES.get(error.code, "")
            ) from None
        except TimeoutError:
            raise _late(self.url + path, self.seconds) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise _late(self.url + path, self.seconds) from None
            raise TrainingError(
                Text(f"{self.url} does not answer: {error.reason}", f"{self.url} 没有回答：{error.reason}"),
                Text("start the server, see its log", "请启动服务，并查看它的日志"),
            ) from None
        except OSError as error:
            raise TrainingError(
                Text(f"{self.url} broke off: {error}", f"{self.url} 中断：{error}"),
                Text("see the server's log, then --resume", "请查看服务的日志，再用 --resume"),
            ) from None
        try:
            return json.loads(text) if text.strip().startswith(("{", "[")) else None
        except ValueError:
            raise TrainingError(
                Text(
                    f"{self.url}{path} answered what is not JSON: {text[:100]!r}",
                    f"{self.url}{path} 的回答不是 JSON：{text[:100]!r}",
                ),
                Text("is it vLLM?", "它是 vLLM 吗？"),
            ) from None


_CURES = {
    404: Text(
        "was it restarted? It needs VLLM_SERVER_DEV_MODE=1, for adapters VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and "
        "--enable-lora",
        "它重启过吗？它需要 VLLM_SERVER_DEV_MODE=1，适配器还需要 VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 和 --enable-lora",
    )
}


def _late(what: str, seconds: float) -> TrainingError:
    return TrainingError(
        Text(
            f"no answer from {what} in engine_timeout = {seconds:g} s",
            f"{what} 在 engine_timeout = {seconds:g} 秒内没有回答",
        ),
        Text("raise policy.engine_timeout, or see the server's log", "请增大 policy.engine_timeout，或查看服务的日志"),
    )
