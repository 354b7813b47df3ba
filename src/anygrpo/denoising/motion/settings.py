"""Recipe sections of motion: our own denoiser and task, and those who bring their own model and data. Torch-free."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from anygrpo.denoising.settings import DenoisingConfig
from anygrpo.recipe.section import Section, by_functions, one_source
from anygrpo.spoken import Text


class MotionPolicyConfig(DenoisingConfig):
    """An MDM-style transformer over motion features, conditioned on captions."""

    kind: Literal["motion"] = "motion"
    features: int = Field(263, ge=1)
    "Numbers a frame, as the task's layout has them."
    frames: int = Field(196, ge=1)
    "Longest motion; shorter ones are padded and masked."
    width: int = Field(512, ge=8)
    "Of the transformer."
    layers: int = Field(8, ge=1, le=1024)
    "Of the transformer."
    heads: int = Field(4, ge=1)
    "Of its attention."
    dropout: float = Field(0.1, ge=0, lt=1)
    "Of the layers. Off in sampling and in scoring; on only in supervised training steps."
    condition_dropout: float = Field(0.1, ge=0, lt=1)
    "Share of demonstrations trained without their caption, which guidance needs; drawn in replay and stored."
    text: Literal["words", "minilm"] = "words"
    "Caption encoder: word vectors learned here, or frozen MiniLM sentence vectors."
    captions: int = Field(1, ge=1)
    "Most captions in a row that one motion may follow, each over its own frames."
    model: str | None = None
    "Trained weights to start from: a file, the folder of a checkpoint or a run (whole or sharded), or a Hub name."


class MotionTaskConfig(Section):
    """Text to motion: clips with captions, and a composite reward of parts in [0, 1]."""

    kind: Literal["motion"] = "motion"
    layout: Literal["humanml", "compact"] = "humanml"
    "humanml: 263 numbers a frame (22 joints); compact: 47 (14 joints: root, positions, contacts)."
    frames: int = Field(196, ge=8)
    "Longest motion asked for."
    fps: float = Field(20.0, gt=0)
    "Frames a second; captured clips are brought to it."
    path: str | None = None
    "Folder with the fetched clips; the user's cache by default (scripts/fetch_motion.py)."
    cmu: bool = False
    "Add the CMU walks in BVH where Debian's assimp-testmodels is installed."
    captions: int = Field(1, ge=1)
    "Captions in a row in one prompt (segment-wise reward)."
    judge: Literal["speeds", "clips"] = "speeds"
    "What the judge of held-out motions learns from: the reward's clips at other tempos; or clips and phrases that"
    "neither reward nor policy ever sees. Actions with one clip are then trained, and not measured."
    held_out_split: Literal["test", "validation"] = "test"
    "What is measured: held-out captions, or, to choose settings on, training captions with seeds of their own (clips:"
    "the withheld phrase with other subjects)."
    held_out: int = Field(2, ge=1)
    "Measured captions, of each action."
    held_out_repeats: int = Field(4, ge=2)
    "Seeds for each measured caption: diversity is measured among them."
    matching: float = Field(1.0, ge=0)
    "Weight of how well caption and motion fit; the reward is the weighted mean of its parts."
    skating: float = Field(0.1, ge=0)
    "Weight of feet that do not slide."
    floor: float = Field(0.1, ge=0)
    "Weight of staying above the floor."
    floating: float = Field(0.1, ge=0)
    "Weight of not hanging in the air."
    contact: float = Field(0.0, ge=0)
    "Weight of frames with support or free flight."
    jerk: float = Field(0.1, ge=0)
    "Weight of jerk within captured motion's."
    limits: float = Field(0.1, ge=0)
    "Weight of limbs that keep length and bend as limbs do."
    duration: float = Field(0.0, ge=0)
    "Weight of the length asked for."
    diversity: float = Field(0.0, ge=0)
    "Weight of motions that differ from their action's mean as captured ones do."
    matcher_steps: int = Field(150, ge=1)
    "Training steps of the matching encoder (kept in the cache once trained)."

    @model_validator(mode="after")
    def _some_weight(self) -> MotionTaskConfig:
        parts = (self.matching, self.skating, self.floor, self.floating, self.contact, self.jerk, self.limits)
        if not any((*parts, self.duration, self.diversity)):
            raise ValueError(Text("every reward weight is 0", "所有奖励的权重都为 0"))
        return self


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
