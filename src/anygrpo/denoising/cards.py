"""Cards of what pictures and motions earn."""

from __future__ import annotations

from typing import Any

from anygrpo.choices.card import Card
from anygrpo.spoken import Text

_QUALITY = {"quality": Text("Quality of the JPEG, 1 to 100.", "JPEG 质量，1 到 100。")}
_IMAGES = "anygrpo.denoising.image.rewards:"
_MOTION = "anygrpo.denoising.motion.rewards:"


_SCORERS = "anygrpo.denoising.image.scorers:"


def _image(name: str, function: str, formula: str, sentence: Text, keys: Any, source: str = "") -> Card:
    return Card(
        "reward",
        name,
        function,
        formula,
        sentence,
        source,
        tuple(keys),
        keys=keys,
        metrics=(f"reward/component/{name}",),
        spelt=f'[[task.rewards]] kind = "{name}" ([task] kind = "images")',
    )


def _motion(name: str, formula: str, sentence: Text, weight: float, published: bool = False) -> Card:
    also = f', or [[task.rewards]] kind = "{name}" of kind = "humanml3d"' if published else ""
    measure = (f"eval/motion/{name}",) if name not in ("matching",) else ("eval/motion/judge",)
    return Card(
        "reward",
        name,
        _FUNCTIONS.get(name, _MOTION + name),
        formula,
        sentence,
        "",
        (name,),
        metrics=(f"reward/component/{name}", *measure),
        spelt=f'[task] {name} = {weight} (kind = "motion"){also}',
        keys={name: Text("Weight of this part in the weighted mean.", "该部分在加权平均中的权重。")},
    )


_FUNCTIONS = {"matching": "anygrpo.denoising.motion.matcher:Matcher"}

IMAGES = (
    _image(
        "compressibility",
        _IMAGES + "jpeg_kilobytes",
        "-(bytes of the picture as JPEG) / 1000",
        Text("Pictures that compress well.", "易于压缩的图像。"),
        _QUALITY,
        "DDPO, 2305.13301",
    ),
    _image(
        "incompressibility",
        _IMAGES + "jpeg_kilobytes",
        "(bytes of the picture as JPEG) / 1000",
        Text("Pictures that compress badly.", "难以压缩的图像。"),
        _QUALITY,
        "DDPO, 2305.13301",
    ),
    _image(
        "clip",
        _SCORERS + "clip",
        "logit scale x cosine(picture, prompt) / divide_by",
        Text(
            "How well a CLIP model of yours finds picture and prompt to agree (CLIPScore, PickScore).",
            "由所给 CLIP 模型判断图像与提示的一致程度（CLIPScore、PickScore）。",
        ),
        {
            "model": Text("Folder that transformers' CLIPModel and CLIPProcessor load.", "CLIP 模型文件夹。"),
            "divide_by": Text("100 for CLIPScore, 26 for PickScore.", "CLIPScore 为 100，PickScore 为 26。"),
            "device": Text("Where the model computes.", "模型所在的设备。"),
        },
    ),
    _image(
        "aesthetic",
        _SCORERS + "aesthetic",
        "linear layers on the CLIP embedding of the picture, made of length 1, / divide_by",
        Text(
            "How pleasing people would find the picture, by LAION's improved aesthetic predictor.",
            "LAION 改进版美学预测器给出的观感分数。",
        ),
        {
            "model": Text("Folder of the CLIP model (ViT-L/14).", "CLIP 模型（ViT-L/14）的文件夹。"),
            "head": Text("The published head's file.", "已发布的预测头文件。"),
            "divide_by": Text(
                "1: the predictor's own scale, as in Flow-GRPO; 10: about [0, 1].",
                "1：预测器自身的尺度，同 Flow-GRPO；10：约在 [0, 1]。",
            ),
            "device": Text("Where the model computes.", "模型所在的设备。"),
        },
    ),
    _image(
        "ocr",
        _SCORERS + "likeness",
        "1 - edit distance / length of the wanted text, at least 0; 1 where it is found",
        Text("How much of the wanted text the picture shows.", "图像中写出了多少所要求的文字。"),
        {
            "column": Text(
                "Column with the text; none: the prompt's quoted part.", "文字所在的列；无：提示中引号内的部分。"
            )
        },
        "Flow-GRPO, 2505.05470",
    ),
)

MOTIONS = (
    _motion(
        "matching",
        "(1 + cosine(motion, caption)) / 2, of the task's trained encoder",
        Text("How well the motion fits its caption.", "动作与描述的符合程度。"),
        1.0,
    ),
    _motion(
        "skating",
        "exp(-v / 0.5), v the mean speed (m/s) of the supporting foot",
        Text("Feet on the ground do not slide.", "着地的脚不滑动。"),
        0.1,
        True,
    ),
    _motion(
        "floor",
        "exp(-d / 0.02), d the mean depth (m) of the lowest joint under the floor",
        Text("Nothing goes through the floor.", "身体不穿过地面。"),
        0.1,
        True,
    ),
    _motion(
        "floating",
        "exp(-h / 0.05), h the mean height (m) of an unsupported body",
        Text("An unsupported body does not hang in the air.", "无支撑的身体不悬空。"),
        0.1,
        True,
    ),
    _motion(
        "contact",
        "share of frames with something near the floor, or in free flight",
        Text("Frames in which the body is supported or falls freely.", "身体有支撑或自由下落的帧的比例。"),
        0.1,
        True,
    ),
    _motion(
        "jerk",
        "exp(-(j / 1200 - 1)) for a root mean square jerk j (m/s^3) above 1200, else 1",
        Text("No shaking: jerk stays within what captured motion has.", "不抖动：加加速度不超出真实动作。"),
        0.1,
        True,
    ),
    _motion(
        "limits",
        "share of checks that hold: bone lengths within 10%, knees and elbows bent below 165 degrees",
        Text("Limbs keep their length and bend as limbs do.", "肢体长度不变，弯曲不超限。"),
        0.1,
    ),
    _motion(
        "duration",
        "min(frames, wanted) / max(frames, wanted)",
        Text("The motion is as long as was asked for.", "动作长度符合要求。"),
        0.1,
    ),
    _motion(
        "diversity",
        "min(1, d / spread), d the distance to the action's mean motion, spread that of captured motions",
        Text("Motions of one caption differ as captured ones do.", "同一描述的动作之间的差异接近真实动作。"),
        0.1,
    ),
)

CARDS = (*IMAGES, *MOTIONS)
