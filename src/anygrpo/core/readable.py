"""What is asked and put out, as a person reads it: the last turn, the turns of a conversation, the size of a tensor."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def question_of(prompt: Any) -> str:
    """What is asked, for a reader: of a conversation its last turn, without the worked examples before it."""
    asked = prompt.get("prompt", prompt) if isinstance(prompt, dict) else prompt
    if isinstance(asked, list) and asked and isinstance(asked[-1], dict) and "content" in asked[-1]:
        asked = asked[-1]["content"]
    if isinstance(asked, list) and all(isinstance(part, dict) for part in asked):
        return " ".join(_part(part) for part in asked)
    return str(asked)


def _part(part: dict[str, Any]) -> str:
    """A part of a message: its text, or what stands for a picture."""
    if "text" in part:
        return str(part["text"])
    shown = str(part.get("image", ""))
    return f"<{part.get('type', 'part')}{'' if shown.startswith('data:') or not shown else ' ' + shown}>"


def turns_said(row: list[Any]) -> dict[str, Any]:
    """The turns of each output that is a conversation, and what each earned."""
    made = [getattr(output, "messages", None) for output in row]
    if not any(made):
        return {}
    earned = [getattr(output, "rewards", None) for output in row]
    return {"conversations": made} | (
        {"turn_rewards": earned} if any(r is not None for e in earned for r in e or ()) else {}
    )


def as_read(output: Any) -> str:
    if not isinstance(output, Tensor) or output.dim() < 2:
        return str(output)
    return f"{' x '.join(map(str, output.shape))} numbers, {float(output.min()):.3g} to {float(output.max()):.3g}"
