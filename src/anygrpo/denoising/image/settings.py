"""Recipe section of the image task: prompts from a file, rewards that see pictures. Torch-free."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from anygrpo.recipe.section import Section, by_functions


class ImageRewardConfig(Section):
    """What every reward of pictures has. `name` is its metric: reward/component/NAME."""

    weight: float = 1.0
    "Of this part in the sum."
    name: str | None = Field(None, pattern=r"^[A-Za-z0-9_.-]+$")
    "The component's name; the kind (or the function's name) where not given."


class FunctionImageRewardConfig(ImageRewardConfig):
    """A user's `path.py:function`, called as function(images, prompts, **columns) in the trainer's process.

    images: tensors [3, H, W] in [0, 1] on the CPU (videos [F, 3, H, W]); prompts: their texts; each column of the
    prompt file that the function takes: one value an image. It returns one number an image; None: no score for it.
    """

    kind: Literal["function"]
    function: str
    "path.py:name."
    arguments: dict[str, Any] = Field(default_factory=dict)
    "Further keyword arguments."


class CompressibilityRewardConfig(ImageRewardConfig):
    """Minus the kilobytes (1000) of the picture as JPEG (DDPO, arXiv 2305.13301)."""

    kind: Literal["compressibility"]
    quality: int = Field(95, ge=1, le=100)
    "Of the JPEG."


class IncompressibilityRewardConfig(ImageRewardConfig):
    """The kilobytes (1000) of the picture as JPEG (DDPO)."""

    kind: Literal["incompressibility"]
    quality: int = Field(95, ge=1, le=100)
    "Of the JPEG."


class ClipRewardConfig(ImageRewardConfig):
    """Logit scale x cosine of picture and prompt under a CLIP model of yours, over `divide_by`.

    CLIPScore: ViT-L/14, 100. PickScore: its ViT-H model, 26 (peers' unit).
    """

    kind: Literal["clip"]
    model: str
    "Folder that transformers' CLIPModel and CLIPProcessor load."
    divide_by: float = Field(100.0, gt=0)
    "100 for CLIPScore, 26 for PickScore."
    device: str = "auto"
    "auto: the first GPU where there is one."


class AestheticRewardConfig(ImageRewardConfig):
    """The improved aesthetic predictor of LAION: linear layers on a CLIP model's embedding of the picture, over
    `divide_by`; 1 to 10 before it."""

    kind: Literal["aesthetic"]
    model: str
    "Folder that transformers' CLIPModel and CLIPProcessor load (ViT-L/14)."
    head: str
    "The head's state dict as published (sac+logos+ava1-l14-linearMSE.pth), or the same as safetensors."
    divide_by: float = Field(10.0, gt=0)
    "1: the predictor's own scale, as in Flow-GRPO; 10: about [0, 1]."
    device: str = "auto"
    "auto: the first GPU where there is one."


class OcrRewardConfig(ImageRewardConfig):
    """How much of a wanted text the picture shows: 1 - edit distance / its length, without spaces and case
    (Flow-GRPO, arXiv 2505.05470). Read by rapidocr on the CPU."""

    kind: Literal["ocr"]
    column: str | None = None
    "Column of the prompt file with the text; none: what stands between the prompt's double quotes."


AnyImageReward = (
    FunctionImageRewardConfig
    | CompressibilityRewardConfig
    | IncompressibilityRewardConfig
    | ClipRewardConfig
    | AestheticRewardConfig
    | OcrRewardConfig
)
ImageRewards = Annotated[
    tuple[
        Annotated[
            AnyImageReward,
            Field(discriminator="kind"),
        ],
        ...,
    ],
    BeforeValidator(by_functions),
]


class ImageTaskConfig(Section):
    """Text to picture (or video): prompts from a file, and rewards that look at what was made."""

    kind: Literal["images"] = "images"
    path: str
    "Prompts: JSON Lines (one object a line, other keys are columns), or plain text, one prompt a line."
    prompt_column: str = "prompt"
    "The rows' key with the prompt."
    held_out_path: str | None = None
    "File of evaluation prompts; a share of `path` where not given."
    held_out_share: float = Field(0.1, gt=0, lt=1)
    "Share of prompts held out, chosen by a hash of the prompt, so that no change of order or seed moves one."
    held_out_repeats: int = Field(4, ge=1)
    "Seeds for each evaluation prompt."
    rewards: ImageRewards = Field(min_length=1)
    "`[[task.rewards]]`: their weighted sum is the reward."
