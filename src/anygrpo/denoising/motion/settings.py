"""Recipe sections of those who bring their own motion model and data. Torch-free."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from anygrpo.denoising.settings import DenoisingConfig
from anygrpo.recipe.section import Section, by_functions, one_source
from anygrpo.spoken import Text


class MDMPolicyConfig(DenoisingConfig):
    """An MDM checkpoint as it is (model*.pt, args.json beside it), or a network of yours in its place."""

    kind: Literal["mdm"] = "mdm"
    model: str | None = None
    "The checkpoint file; args.json lies beside it."
    function: str | None = None
    "In place of `model`: path.py:function, called as function(seed=seed, **arguments); returns a module called as"
    "module(x [n, L, F], timestep [n], text [n, E], frames [n, L], dropped [n]) -> clean motion [n, L, F]."
    arguments: dict[str, Any] = Field(default_factory=dict)
    "What the function is given besides the seed."
    features: int | None = Field(None, ge=1)
    "Numbers a frame (`function`; a checkpoint's args.json says it)."
    diffusion_steps: int | None = Field(None, ge=2)
    "Levels the network was trained with (`function`; args.json says it). `steps` must be the same."
    text: str
    "Captions as vectors: a file (.safetensors, .pt) of caption -> [E]; `path.py:function` (captions -> [n, E]); or the"
    "folder of a CLIP text model for transformers (MDM: clip-vit-base-patch32)."
    frames: int = Field(196, ge=8)
    "Longest motion; shorter ones are padded."
    guidance: float = Field(2.5, ge=0)
    steps: int = Field(50, ge=2)
    average_checkpoint: bool = True
    "Take the averaged weights of a checkpoint that has both."

    @model_validator(mode="after")
    def _one_source(self) -> MDMPolicyConfig:
        one_source(self.model, self.function, self.arguments)
        if self.function is not None and (self.features is None or self.diffusion_steps is None):
            raise ValueError(
                Text("function needs features and diffusion_steps", "function 需要 features 与 diffusion_steps")
            )
        if self.sampler not in ("ddpm", "ddim"):
            raise ValueError(
                Text(
                    f"sampler = {self.sampler!r} is for flow models; MDM predicts the clean motion: ddpm or ddim",
                    f"sampler = {self.sampler!r} 用于流模型；MDM 预测干净的动作：应为 ddpm 或 ddim",
                )
            )
        return self


class MotionRewardConfig(Section):
    """A part of the reward, by name from the built-in ones or a function of yours.

    function: `path.py:function`, called by name with what it takes of: motions (joints [L, J, 3] in metres), prompts
    (captions), features ([L, F], de-normalised), fps, tokens; returns one number a motion (None: no score).
    """

    kind: Literal["function", "skating", "floating", "contact", "floor", "jerk"]
    function: str | None = None
    "path.py:name of one of your own."
    arguments: dict[str, Any] = Field(default_factory=dict)
    "Further keyword arguments of the function."
    weight: float = 1.0
    "Of this part in the sum."
    name: str | None = Field(None, pattern=r"^[A-Za-z0-9_.-]+$")
    "The component's name; the kind (or the function's name) where not given."

    @model_validator(mode="after")
    def _function_where_needed(self) -> MotionRewardConfig:
        if (self.kind == "function") != (self.function is not None):
            raise ValueError(
                Text('kind = "function" and `function` go together', 'kind = "function" 与 `function` 要一起给出')
            )
        return self


class HumanML3DTaskConfig(Section):
    """HumanML3D or KIT-ML as published, with rewards of your own."""

    kind: Literal["humanml3d"] = "humanml3d"
    path: str
    "The folder: new_joint_vecs, texts, Mean.npy, Std.npy and the split files."
    split: str = "train"
    "Split file of the training items."
    held_out_split: str = "val"
    "Split file of the measured items."
    frames: int = Field(196, ge=8)
    "Longest motion asked for."
    held_out: int = Field(64, ge=1)
    "Measured items, at most."
    rewards: Annotated[tuple[MotionRewardConfig, ...], BeforeValidator(by_functions)] = Field(min_length=1)
    "`[[task.rewards]]`: their weighted sum is the reward."
    evaluator: str | None = None
    "`path.py:function`, called once without arguments; returns an object with embed_motions(list of de-normalised"
    "[L, F]) -> [n, D] and embed_texts(prompts) -> [n, D]. With it R-precision, matching distance, FID and diversity"
    "are measured at each evaluation."
