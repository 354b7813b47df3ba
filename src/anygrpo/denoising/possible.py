"""What cannot be trained together: guidance and its input, decisions and the noise of their steps."""

from __future__ import annotations

from anygrpo.denoising.settings import DenoisingConfig
from anygrpo.denoising.transitions import Transitions
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text


def refuse_what_cannot_be(
    unconditional: bool, transitions: Transitions, guidance: float, config: DenoisingConfig
) -> None:
    """What is refused before anything is sampled.

    Args:
        unconditional: the model has an input for no condition.

    Raises:
        ConfigError: guidance without that input, or decisions at steps that have no noise.
    """
    if guidance != 1.0 and not unconditional:
        raise ConfigError(
            Text(
                f"guidance = {guidance}, but this model has no unconditional input",
                f"guidance = {guidance}，但这个模型没有无条件输入",
            ),
            "guidance = 1",
        )
    if config.loss != "steps":
        return
    possible = transitions.stochastic()
    if possible == 0 or bool((transitions.noisy.std[:possible] <= 0).any()):
        raise ConfigError(
            Text(
                f"only {possible} of {len(transitions)} steps have noise, and not the first ones",
                f"{len(transitions)} 步中只有 {possible} 步有噪声，且不是最前面的几步",
            ),
            Text(
                "a stochastic sampler (ddpm, ddim with eta > 0, a flow SDE)",
                "请用随机采样器（ddpm、eta > 0 的 ddim、流匹配 SDE）",
            ),
        )
    end = config.window_starts[1] + (config.window or 0)
    if end > possible:
        raise ConfigError(
            Text(
                f"the window reaches step {end}, but only the first {possible} steps have noise",
                f"窗口到第 {end} 步，但只有前 {possible} 步有噪声",
            ),
            Text("an earlier window", "请把窗口提前"),
        )
