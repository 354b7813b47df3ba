"""Image restoration: degraded pictures in, PSNR and SSIM out."""

from __future__ import annotations

from anygrpo.core import user_code
from anygrpo.gates.restoration.photographs import of_folder, shipped, split
from anygrpo.gates.restoration.quality import Quality, paired_interval
from anygrpo.gates.restoration.task import RestorationTask
from anygrpo.gates.settings import RestorationSection

__all__ = ["RestorationTask", "build", "paired_interval"]

SPLIT_SEED = 0
"""The split does not move with the run's seed, so runs of several seeds are compared on the same pictures."""


def build(config: RestorationSection, seed: int) -> RestorationTask:
    """The task of the recipe."""
    if config.folder is None:
        pictures = shipped(config.picture_size)
    else:
        pictures = of_folder(config.folder.clean, config.folder.degraded, config.picture_size)
    train, held_out = split(pictures, config.held_out_share, SPLIT_SEED)
    plugins = {p.name: (p.weight, user_code.load(p.function)) for p in config.perceptual}
    quality = Quality(config.w_psnr, config.w_ssim, config.psnr_low, config.psnr_high, plugins)
    return RestorationTask(train, held_out, config, quality, seed)
