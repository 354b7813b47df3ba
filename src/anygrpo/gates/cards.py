"""Cards of the restoration reward's terms: what a restored picture earns beside the clean one."""

from __future__ import annotations

from anygrpo.choices.card import Card
from anygrpo.spoken import Text

_SHARED = {
    "channel": Text(
        "rgb, or y: of luma alone, as papers on rain and super-resolution have it.", "rgb，或 y：仅亮度通道。"
    ),
    "shave": Text("Pixels left out at each border.", "四边略去的像素数。"),
    "relative": Text("The gain over the degraded picture is rewarded.", "奖励相对退化图像的增益。"),
}

CARDS = (
    Card(
        "reward",
        "psnr",
        "anygrpo.gates.restoration.quality:psnr",
        "w_psnr x (clamp(PSNR, psnr_low, psnr_high) - psnr_low) / (psnr_high - psnr_low); PSNR in dB",
        Text(
            "Peak signal-to-noise ratio of each picture, scaled to [0, 1] between two limits.",
            "每张图像的峰值信噪比，在两个界限之间线性缩放到 [0, 1]。",
        ),
        "",
        ("w_psnr", "psnr_low", "psnr_high", *_SHARED),
        metrics=("eval/psnr", "eval/psnr_outside"),
        spelt="[task] w_psnr = 0.5",
        keys=_SHARED
        | {
            "w_psnr": Text("Its weight.", "其权重。"),
            "psnr_low": Text("dB where the term is 0.", "该项为 0 的分贝数。"),
            "psnr_high": Text("dB where it is 1.", "该项为 1 的分贝数。"),
        },
    ),
    Card(
        "reward",
        "ssim",
        "anygrpo.gates.restoration.quality:ssim",
        "w_ssim x SSIM, Gaussian window 11, sigma 1.5",
        Text("Structural similarity of each picture to the clean one.", "每张图像与干净图像的结构相似度。"),
        "Wang et al. 2004",
        ("w_ssim", *_SHARED),
        metrics=("eval/ssim",),
        spelt="[task] w_ssim = 0.5",
        keys=_SHARED | {"w_ssim": Text("Its weight.", "其权重。")},
    ),
    Card(
        "reward",
        "perceptual",
        "anygrpo.gates.restoration.measures:measure_of",
        "weight x f(restored, clean), higher is better (a metric better when lower: its negative)",
        Text(
            "A metric of pyiqa (LPIPS, DISTS, NIQE ...) or a function of yours; with weight 0 it is only reported.",
            "pyiqa 的指标（LPIPS、DISTS、NIQE 等）或自定义函数；权重为 0 时只报告、不参与奖励。",
        ),
        "",
        ("name", "weight", "metric", "function", "arguments"),
        metrics=("eval/measure/",),
        spelt='[[task.perceptual]] name = "lpips", metric = "lpips", weight = 0.2',
        keys={
            "name": Text("What tables call it.", "表格中的名称。"),
            "weight": Text("Its weight; 0: reported only.", "其权重；0 表示只报告。"),
            "metric": Text("Name of a metric of pyiqa.", "pyiqa 指标名。"),
            "function": Text("path.py:name of one of your own.", "自定义函数 path.py:name。"),
            "arguments": Text("Further keyword arguments of the function.", "函数的其他关键字参数。"),
        },
    ),
)
