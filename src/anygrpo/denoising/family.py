"""What the denoising family brings."""

from anygrpo.families import Family, Kind

_MOTION = "anygrpo.denoising.motion.settings:"
_PIPELINES = ("stable_diffusion", "sd", "sdxl", "sd3", "flux", "wan", "diffusers", "pipeline", "unet", "flow", "ddpo")
_HUMANML = ("humanml", "hml3d", "t2m")

FAMILY = Family(
    "denoising",
    policies={
        "diffusion": Kind(
            "anygrpo.denoising.settings:DiffusionPolicyConfig",
            "anygrpo.denoising.build:build",
            "images",
            also=_PIPELINES,
        ),
        "motion": Kind(_MOTION + "MotionPolicyConfig", "anygrpo.denoising.motion.policy:build", "motions"),
        "mdm": Kind(_MOTION + "MDMPolicyConfig", "anygrpo.denoising.motion.mdm_policy:build", "motions"),
    },
    tasks={
        "motion": Kind(_MOTION + "MotionTaskConfig", "anygrpo.denoising.motion.task:build", "motions"),
        "humanml3d": Kind(
            _MOTION + "HumanML3DTaskConfig", "anygrpo.denoising.motion.published_task:build", "motions", also=_HUMANML
        ),
        "images": Kind(
            "anygrpo.denoising.image.settings:ImageTaskConfig", "anygrpo.denoising.image.task:build", "images"
        ),
    },
    cards=("anygrpo.denoising.cards:CARDS",),
    metrics=("anygrpo.denoising.metrics:METRICS",),
    probes={"cheats": "anygrpo.denoising.motion.cheats:cheats"},
    memory="anygrpo.denoising.memory:report",
    export="anygrpo.denoising.export:export",
    apply="anygrpo.denoising.apply:apply",
    load="anygrpo.denoising.opening:opened",
)
