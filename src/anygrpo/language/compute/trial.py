"""A few real tokens on which a model is tried when it is loaded, and what the library's own forward says of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.core.tree import Tree
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text

WORDS = "The quick brown fox: 12 + 30 = 42, said she. Then what? 你好，世界。 def f(x): return x * 2  # never 7"
PROMPTS, COMPLETIONS = (11, 7), (6, 4, 6, 1)

RELATIVE = {torch.float64: 1e-9, torch.float32: 3e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""Largest difference of log-probs, in parts of the largest logit (1 at least), that rounding alone may make. What is
computed otherwise (another mask, factor or order of tokens) is off by whole nats."""


@dataclass(frozen=True)
class Trial:
    """Two prompts of two rows each.

    Attributes:
        samples: as `CausalLM.sample` gives them, [4, ...].
        rows: token ids of each row, prompt and completion.
        never: tokens that no answer has.
        apart: why prompts with pictures are more than sequences of tokens; "" where they are none.
    """

    samples: Tree
    rows: tuple[Tensor, ...]
    never: tuple[int, ...] = ()
    apart: str = ""

    @staticmethod
    def of(tokenizer: Any, size: int, device: torch.device, sight: Sequence[int] = ()) -> Trial:
        """Tokens of an ordinary text; of a tokenizer that does not know its words, some of its own.

        Args:
            size: of the vocabulary.
            sight: ids of a prompt with a picture, put before the first prompt.
        """
        special = set(getattr(tokenizer, "all_special_ids", ()))
        ids = [i for i in tokenizer(WORDS, add_special_tokens=False)["input_ids"] if i not in special and i < size]
        if len(set(ids)) < 8:
            known = sorted(i for i in tokenizer.get_vocab().values() if i not in special and i < size) or [0]
            ids = known[:: max(1, len(known) // 31)]
        take = lambda start, count: [ids[(start + i) % len(ids)] for i in range(count)]  # noqa: E731
        prompts = [[*sight, *take(0, PROMPTS[0])], take(5, PROMPTS[1])]
        longest = len(prompts[0])
        completions = [take(11 + 3 * i, n) for i, n in enumerate(COMPLETIONS)]
        pad = lambda row, width: row + [0] * (width - len(row))  # noqa: E731
        samples = {
            "prompt_ids": torch.tensor([pad(prompts[i // 2], longest) for i in range(4)], device=device),
            "prompt_lengths": torch.tensor([len(prompts[i // 2]) for i in range(4)], device=device),
            "completion_ids": torch.tensor([pad(c, max(COMPLETIONS)) for c in completions], device=device),
            "completion_lengths": torch.tensor(COMPLETIONS, device=device),
            "group": torch.tensor([0, 0, 1, 1], device=device),
        }
        rows = tuple(torch.tensor(prompts[i // 2] + completions[i], device=device) for i in range(4))
        return Trial(samples, rows)

    @property
    def prompts(self) -> list[list[int]]:
        return [self.rows[i][: len(self.rows[i]) - COMPLETIONS[i]].tolist() for i in (0, 2)]

    @property
    def text(self) -> Tensor:
        """The ids of a row without pictures."""
        return self.rows[2]

    def own(self, model: nn.Module) -> list[Tensor]:
        """The library's logits [n, V] of each row, by itself, nothing but ids given."""
        return [own_logits(model, ids) for ids in self.rows]

    def log_probs(self, logits: Sequence[Tensor]) -> Tensor:
        """[m] of the completions' tokens, row after row."""
        parts = []
        for i, (row, z) in enumerate(zip(self.rows, logits)):
            start = len(row) - COMPLETIONS[i]
            l = z[start - 1 : len(row) - 1].float().log_softmax(-1)  # noqa: E741
            parts.append(l.gather(1, row[start:, None])[:, 0])
        return torch.cat(parts)


def own_logits(model: nn.Module, ids: Tensor) -> Tensor:
    """[n, V] of one row by the library's own forward.

    Raises:
        ConfigError: it does not run, or gives what is no number.
    """
    try:
        logits = model(input_ids=ids[None], use_cache=False).logits[0]
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0][:300]
        raise ConfigError(
            Text(
                f"{named(model)}: the library's own forward pass fails on plain text: {type(error).__name__}: {first}",
                f"{named(model)}：原库的前向计算在普通文本上失败：{type(error).__name__}: {first}",
            ),
            Text(
                "this model needs more than token ids, or another version of transformers; train another model",
                "这个模型需要的不只是 token 编号，或需要另一个版本的 transformers；请训练另一个模型",
            ),
        ) from error
    if not bool(logits.isfinite().any(-1).all()) or bool(logits.isnan().any()):
        raise ConfigError(
            Text(
                f"{named(model)}: the library's own forward pass gives logits that are no numbers in {logits.dtype}",
                f"{named(model)}：原库的前向计算在 {logits.dtype} 下给出的 logits 不是数",
            ),
            Text('set policy.dtype = "float32", or another model', '请设 policy.dtype = "float32"，或换一个模型'),
        )
    return logits


def check_causal(model: nn.Module, trial: Trial) -> None:
    """Raises: ConfigError where what comes after a token changes its probabilities."""
    with torch.no_grad():
        row = trial.rows[0]
        whole, part = own_logits(model, row), own_logits(model, row[:-3])
    if (problem := difference(part.log_softmax(-1), whole[:-3].log_softmax(-1), whole)) is not None:
        raise ConfigError(
            Text(
                f"{named(model)} is not causal: tokens that come later change earlier log-probs by {problem:.2g} nats",
                f"{named(model)} 不是因果模型：后面的 token 使前面的对数概率改变 {problem:.2g} nat",
            ),
            Text(
                "if its config has is_decoder, save it with is_decoder = true; else it cannot generate",
                "若它的配置有 is_decoder，请以 is_decoder = true 保存；否则它不能生成",
            ),
        )


def difference(a: Tensor, b: Tensor, logits: Tensor) -> float | None:
    """Largest difference of log-probs where it is more than rounding makes of such logits, else None."""
    size = logits.detach().float()
    size = size.masked_fill(~size.isfinite(), 0.0).abs().clamp(max=1e3).amax().clamp(min=1.0).item()
    a, b = a.detach().double(), b.detach().double()
    likely = b > -30.0  # of the impossible nothing is asked
    gap = (a - b).abs()[likely]
    worst = gap.max().item() if gap.numel() else 0.0
    return None if worst <= RELATIVE.get(logits.dtype, 3e-5) * size else worst


def attempt(function: Callable[[], str | None]) -> str | None:
    """What is wrong with a trial: what it says itself, or the exception that ended it; None where it is right."""
    try:
        return function()
    except Exception as error:
        return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:160]}"


def named(model: nn.Module) -> str:
    """A model by class and type."""
    return f"{type(model).__name__} ({getattr(model.config, 'model_type', '?')})"


def beyond_text(model: nn.Module, text: nn.Module, run: Callable[[], Any]) -> str:
    """Why a prompt with pictures is more than a sequence of tokens to this model's text part; "" where it is none.

    Args:
        text: the text part. run: the library's own forward on a prompt with pictures.
    """
    given: dict[str, Any] = {}
    watch = text.register_forward_pre_hook(lambda _, args, named: given.update(named), with_kwargs=True)
    try:
        with torch.no_grad():
            run()
    finally:
        watch.remove()
    places, masks = given.get("position_ids"), given.get("attention_mask")
    if isinstance(places, Tensor) and places.dim() == 3 and bool((places != places[:1]).any()):
        return "places of a picture have several axes"
    for mask in masks.values() if isinstance(masks, dict) else [masks]:
        if isinstance(mask, Tensor) and mask.dim() == 4 and mask.shape[-1] == mask.shape[-2]:
            open_ = mask if mask.dtype == torch.bool else mask == 0
            if bool(open_.triu(1).any()):
                return "tokens of a picture see each other both ways"
    return ""
