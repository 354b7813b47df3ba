"""Image restoration: degraded pictures in, PSNR and SSIM out."""

from __future__ import annotations

from anygrpo.gates.restoration import alignment
from anygrpo.gates.restoration.measures import measure_of
from anygrpo.gates.restoration.photographs import Picture, pictures_of, split
from anygrpo.gates.restoration.quality import Quality
from anygrpo.gates.restoration.settings import RestorationConfig
from anygrpo.gates.restoration.task import RestorationTask

__all__ = ["RestorationTask", "build"]

SPLIT_SEED = 0
"""The split does not move with the run's seed, so runs of several seeds are compared on the same pictures."""


def build(config: RestorationConfig, seed: int) -> RestorationTask:
    """The task of the recipe.

    Raises:
        ConfigError, DataError: the pictures, the pairs or a measure are not what they should be.
    """
    pictures: list[Picture] = []
    for group, one in enumerate(config.every_set()):
        mine = pictures_of(one, group, config.picture_size, config.scale)
        if one.aligned == "check":
            alignment.check(mine, config.scale)
        pictures += mine
    train, held_out = split(pictures, config.held_out_share, SPLIT_SEED)
    return RestorationTask(train, held_out, config, quality_of(config), seed)


def quality_of(config: RestorationConfig) -> Quality:
    """The reward of the recipe, its measures tried."""
    plugins, lower = {}, set[str]()
    for term in config.perceptual:
        measure, falls = measure_of(term, config.patch)
        plugins[term.name] = (term.weight, measure)
        lower |= {term.name} if falls else set()
    low, high = config.psnr_low, config.psnr_high
    return Quality(config.w_psnr, config.w_ssim, low, high, plugins, config.channel, config.shave, frozenset(lower))
