"""The recipe table [policy.turns]: how conversations with tools and environments are held, and their limits."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from anygrpo.recipe.section import Section

FormatName = Literal["hermes", "llama3", "mistral", "gpt_oss"]


class TurnsConfig(Section):
    """Tools and environments run in processes of their own, one for each sample, and never in the trainer."""

    format: Literal["auto"] | FormatName = "auto"
    "How the model writes a call. auto: as its chat template writes one; hermes, where the template knows no tools."
    arguments: dict[str, Any] = Field(default_factory=dict)
    "Arguments of the environment's class."
    timeout: float = Field(default=10.0, gt=0)
    "Seconds that a tool, or a step of an environment, may take before its process is ended."
    seconds: float = Field(default=120.0, gt=0)
    "Seconds that one sample may spend with its tools and environment, all turns together."
    memory_mb: int | None = Field(default=None, ge=0)
    "Bound of each process's private memory; half of the machine's where not given, 0 for none."
    output: int = Field(default=2000, ge=1)
    "Characters of one tool's text that the model is given; what is beyond is cut, and said to be."
    servers: int = Field(default=2, ge=1)
    "Processes that load the user's code once; a sample's own process is forked from one of them."
    patience: float = Field(default=0.25, ge=0)
    "Seconds that the others wait for a sample's tool before they go on without it (built-in engine)."
