"""Image restoration: degraded pictures in, PSNR and SSIM out."""

from __future__ import annotations

import logging
from dataclasses import replace

from anygrpo.gates.restoration import alignment
from anygrpo.gates.restoration.measures import measure_of
from anygrpo.gates.restoration.photographs import Picture, pictures_of, split
from anygrpo.gates.restoration.quality import Quality
from anygrpo.gates.restoration.scenes import one_scene_each
from anygrpo.gates.restoration.settings import RestorationConfig
from anygrpo.gates.restoration.task import RestorationTask
from anygrpo.spoken import Text

log = logging.getLogger("anygrpo")
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
    train, held_out = split(_free(one_scene_each(pictures), config), config.held_out_share, SPLIT_SEED)
    return RestorationTask(train, held_out, config, quality_of(config), seed)


def _free(pictures: list[Picture], config: RestorationConfig) -> list[Picture]:
    """Where layouts say of every picture that it is to train on, some scenes are held out of them."""
    told = any(one.part != "split" for one in config.every_set())
    if told or {p.part for p in pictures} != {"train"}:
        return pictures
    why = Text(
        "no test pictures are there: some of those to train on are held out", "没有测试图像：从训练图像中留出一部分"
    )
    log.info("%s", why.said())
    return [replace(p, part="split") for p in pictures]


def quality_of(config: RestorationConfig) -> Quality:
    """The reward of the recipe, its measures tried."""
    plugins, lower = {}, set[str]()
    for term in config.perceptual:
        measure, falls = measure_of(term, config.patch)
        plugins[term.name] = (term.weight, measure)
        lower |= {term.name} if falls else set()
    low, high = config.psnr_low, config.psnr_high
    return Quality(config.w_psnr, config.w_ssim, low, high, plugins, config.channel, config.shave, frozenset(lower))
