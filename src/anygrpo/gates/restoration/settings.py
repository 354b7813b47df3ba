"""Recipe sections of the restoration task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import Field, model_validator

from anygrpo.recipe.section import Section
from anygrpo.spoken import Text

DegradationName = Literal["noise", "gaussian_blur", "motion_blur", "jpeg", "rain", "haze", "low_light"]
Layout = Literal["shipped", "bsd", "wed", "rain100l", "sots", "gopro", "lol", "div2k"]


@dataclass(frozen=True)
class Strength:
    """What a degradation's strength means: its unit, what it may be, and the range that is drawn from unless told."""

    unit: str
    least: float
    most: float
    low: float
    high: float


STRENGTHS: dict[str, Strength] = {
    "noise": Strength("sigma in /255", 1.0, 255.0, 15.3, 51.0),
    "gaussian_blur": Strength("sigma in pixels", 0.2, 20.0, 0.8, 2.0),
    "motion_blur": Strength("length in pixels", 2.0, 100.0, 5.0, 11.0),
    "jpeg": Strength("quality", 1.0, 95.0, 8.0, 30.0),
    "rain": Strength("opacity of streaks", 0.02, 1.0, 0.3, 0.8),
    "haze": Strength("share of light that comes through", 0.05, 0.98, 0.4, 0.8),
    "low_light": Strength("gain", 0.02, 1.0, 0.25, 0.5),
}


class DegradationConfig(Section):
    """One degradation and the range its strength is drawn from, uniformly; units as in `STRENGTHS`."""

    name: DegradationName
    "Which degradation."
    low: float
    "Least strength, in its unit (docs/restoration.md)."
    high: float
    "Greatest strength."

    @model_validator(mode="after")
    def _possible(self) -> DegradationConfig:
        known = STRENGTHS[self.name]
        if self.low > self.high:
            raise ValueError(
                Text(
                    f"{self.name}: low {self.low} is above high {self.high}",
                    f"{self.name}：low {self.low} 大于 high {self.high}",
                )
            )
        if self.low < known.least or self.high > known.most:
            was = ""
            if self.name == "noise" and self.high <= 1:
                was = (
                    f"; sigma {self.low:g}..{self.high:g} of [0, 1] is {255 * self.low:g}..{255 * self.high:g} in /255"
                )
            raise ValueError(
                Text(
                    f"{self.name}: {self.low:g}..{self.high:g} is not within {known.least:g}..{known.most:g} "
                    f"({known.unit}){was}",
                    f"{self.name}：{self.low:g}..{self.high:g} 不在 "
                    f"{known.least:g}..{known.most:g}（{known.unit}）之内{was}",
                )
            )
        return self


def _all_degradations() -> list[DegradationConfig]:
    names: tuple[DegradationName, ...] = get_args(DegradationName)
    return [DegradationConfig(name=n, low=STRENGTHS[n].low, high=STRENGTHS[n].high) for n in names]


def _twice(degradations: list[DegradationConfig]) -> None:
    if len({d.name for d in degradations}) != len(degradations):
        raise ValueError(
            Text("a degradation is named twice; give it one wider range", "同一种退化写了两次；请写成一个更宽的范围")
        )


class FolderConfig(Section):
    """A set of pictures: a layout that is known, or where they lie."""

    layout: Layout | None = None
    """A public set as it is unpacked below `root`. shipped: photographs that scikit-image and scikit-learn bring."""
    root: str = "."
    "Folder that the layout, or `clean` and `degraded`, lie in."
    clean: str | None = None
    """Folder of clean pictures, or a template of their names: "gt/{id}.png", "{scene}/sharp/{id}.*" (* is anything)."""
    degraded: str | None = None
    """Folder or template of degraded pictures: pairs by the words in braces (of folders: by file stem), and no
    degradation is made. One clean picture may have several: "hazy/{id}_*.jpg"."""
    name: str = "pairs"
    "What to call the degradation of the pairs in tables."
    scene: str | None = None
    'Template for {id}: pictures of one {scene} stay on one side. Frames of a clip: "{scene}-*".'
    part: Literal["split", "train", "test"] = "split"
    """train, test: the whole set is on that side. split: as its layout says, else by held_out_share; where another set
    is there to test on, all of it is trained on."""
    share: float | None = Field(default=None, gt=0)
    "How often it is drawn beside the other sets. none: as often as it has pictures."
    degradations: list[DegradationConfig] | None = Field(default=None, min_length=1)
    "Made of its clean pictures; none: the task's."
    aligned: Literal["check", "trust"] = "check"
    "check: a pair that is shifted, or of two different pictures, is an error. trust: it is not looked for."

    @model_validator(mode="after")
    def _one_way(self) -> FolderConfig:
        if (self.layout is None) == (self.clean is None):
            raise ValueError(
                Text(
                    "name either a layout or where the clean pictures lie (clean)",
                    "请给出 layout，或清晰图片所在之处（clean），二者取一",
                )
            )
        if self.layout is not None and self.degraded is not None:
            raise ValueError(
                Text(
                    f"layout {self.layout!r} says itself where the degraded pictures lie",
                    f"layout {self.layout!r} 已说明退化图片在何处",
                )
            )
        for key in ("clean", "degraded"):
            text = getattr(self, key)
            if text and "{" in text and "{id}" not in text:
                raise ValueError(
                    Text(
                        f"{key} = {text!r} has no {{id}} to find pairs by", f"{key} = {text!r} 中没有 {{id}}，无法配对"
                    )
                )
        if self.scene is not None and "{scene}" not in self.scene:
            raise ValueError(
                Text(f"scene = {self.scene!r} has no {{scene}} in it", f"scene = {self.scene!r} 中没有 {{scene}}")
            )
        _twice(self.degradations or [])
        return self


class PerceptualConfig(Section):
    """A further reward term, or with weight 0 a measure that is only reported."""

    name: str
    "What tables call it."
    weight: float
    "In the reward; 0: only reported."
    function: str | None = None
    "path.py:function(restored [n, 3, H, W], clean [n, 3, H, W]) -> [n], higher is better."
    arguments: dict[str, Any] = Field(default_factory=dict)
    "Further keyword arguments of the function."
    metric: str | None = None
    """Name of a metric of pyiqa ("lpips", "dists", "niqe"; `pip install anygrpo[pyiqa]`). One that is better when lower
    enters the reward with the opposite sign; tables show it as it is."""

    @model_validator(mode="after")
    def _one_source(self) -> PerceptualConfig:
        if (self.function is None) == (self.metric is None):
            raise ValueError(
                Text(
                    f"{self.name}: name either a function or a metric of pyiqa",
                    f"{self.name}：请给出函数，或 pyiqa 的指标，二者取一",
                )
            )
        if self.name in ("psnr", "ssim"):
            raise ValueError(
                Text(
                    f"{self.name!r} is there already (w_{self.name}); choose another name",
                    f"{self.name!r} 已经存在（w_{self.name}）；请换一个名称",
                )
            )
        return self


class WorstConfig(Section):
    """Train on the samples the start model restores worst."""

    share: float = Field(0.3, gt=0, le=1)
    "Share kept of each degradation's samples."
    file: str | None = None
    "JSON written by an earlier ranking; none: rank with the policy at the start."


class RestorationConfig(Section):
    """[task] of image restoration."""

    kind: Literal["restoration"] = "restoration"
    folder: FolderConfig | None = None
    "none, and no `sets`: the photographs that scikit-image and scikit-learn ship."
    sets: list[FolderConfig] = Field(default_factory=list[FolderConfig])
    "Several sets in place of `folder`."
    held_out_share: float = Field(0.4, gt=0, lt=1)
    "Share of scenes (never of patches) kept for evaluation."
    held_out_repeats: int = Field(1, ge=1)
    "Times that each held-out picture is degraded in each way, with a strength and a seed of its own every time."
    picture_size: int | None = Field(default=None, ge=0)
    """Longer side that clean pictures are reduced to before anything else; 0 keeps them. none: 128 for the shipped
    ones, and nobody else's. Pairs are never resized: that would average their degradation away."""
    scale: int = Field(1, ge=1, le=8)
    "Super-resolution: clean pictures are so many times as large. Made ones are reduced (bicubic) after degradation."
    patch: int = Field(48, ge=16)
    "Side of a training crop, of the clean picture."
    crops: int = Field(8, ge=1)
    "Crops of each picture and degradation in the training pool."
    margin: int = Field(16, ge=0)
    "Pixels around a crop that are degraded with it and cut away, so that it shows no border that its picture lacks."
    augment: Literal["none", "flips", "all"] = "none"
    "Of training crops, drawn once for each. flips: both mirrors. all: quarter turns too."
    degradations: list[DegradationConfig] = Field(default_factory=_all_degradations, min_length=1)
    "`[[task.degradations]]`: what clean pictures are spoiled with, in turn."
    w_psnr: float = 0.5
    "Weight of PSNR in the reward."
    w_ssim: float = 0.5
    "Weight of SSIM in the reward."
    psnr_low: float = 10.0
    "dB where the PSNR term is 0."
    psnr_high: float = 40.0
    "dB where it is 1; linear between, constant outside (the share outside is reported)."
    channel: Literal["rgb", "y"] = "rgb"
    "What PSNR and SSIM are of. y: luma (ITU-R BT.601, 16 to 235), as papers on rain and super-resolution have it."
    shave: int = Field(0, ge=0)
    "Pixels left out at each border by PSNR and SSIM."
    reward_patch: int = Field(0, ge=0)
    """Each patch of so many pixels a side also earns its own PSNR, which `algorithm.credit = "parts"` pays the
    decisions of that patch (policy.patch of the toolbox). 1: every pixel. 0: none."""
    relative: bool = False
    "Reward the gain over the degraded picture: takes most of a picture's difficulty out of the reward."
    perceptual: list[PerceptualConfig] = Field(default_factory=list)
    "`[[task.perceptual]]`: further terms of the reward."
    worst: WorstConfig | None = None
    "`[task.worst]`: train on what the start model restores worst."

    @model_validator(mode="after")
    def _sane(self) -> RestorationConfig:
        if self.psnr_low >= self.psnr_high:
            raise ValueError(
                Text(
                    f"psnr_low {self.psnr_low} must be below psnr_high {self.psnr_high}",
                    f"psnr_low {self.psnr_low} 应小于 psnr_high {self.psnr_high}",
                )
            )
        _twice(self.degradations)
        if len({p.name for p in self.perceptual}) != len(self.perceptual):
            raise ValueError(Text("two perceptual terms have one name", "两个感知项用了同一个名称"))
        if self.patch % self.scale or self.patch - 2 * self.shave < 11:
            numbers = f"scale {self.scale}", f"shave {self.shave}"
            raise ValueError(
                Text(
                    f"patch {self.patch} must be a multiple of {numbers[0]} and leave 11 pixels after {numbers[1]}",
                    f"patch {self.patch} 应为 {numbers[0]} 的倍数，且在 {numbers[1]} 之后留下 11 个像素",
                )
            )
        self._check_sets()
        return self

    def _check_sets(self) -> None:
        if self.folder is not None and self.sets:
            raise ValueError(
                Text(
                    "name one set as folder, or several as sets, not both",
                    "一个数据集请写 folder，多个请写 sets，不要都写",
                )
            )
        paired = [s for s in self.every_set() if s.degraded is not None]
        if paired and self.picture_size:
            what = f"picture_size = {self.picture_size} would resize pairs and average their degradation away"
            raise ValueError(
                Text(
                    f"{what}; leave it out",
                    f"picture_size = {self.picture_size} 会缩放成对的图片，把退化平均掉；请去掉",
                )
            )
        shares = [s.share is None for s in self.every_set()]
        if any(shares) and not all(shares):
            raise ValueError(Text("give every set a share, or none", "请给每个数据集一个 share，或都不给"))

    def every_set(self) -> list[FolderConfig]:
        """The sets in order; the shipped photographs where none is named."""
        return self.sets or [self.folder or FolderConfig(layout="shipped", name="shipped")]
