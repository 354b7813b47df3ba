"""Policies and tasks of the user's own: from a Python file, or handed over as objects."""

from anygrpo.families import Family, Kind

_SETTINGS, _OBJECT = "anygrpo.core.settings:", "anygrpo.core.settings:ObjectConfig"

FAMILY = Family(
    "python",
    policies={
        "python": Kind(_SETTINGS + "OwnPolicyConfig", "anygrpo.models.own_policy:build", "any"),
        "object": Kind(_OBJECT, "anygrpo.core.build:absent", "any"),
    },
    tasks={
        "python": Kind(_SETTINGS + "OwnTaskConfig", "anygrpo.core.python_kind:build_task", "any"),
        "object": Kind(_OBJECT, "anygrpo.core.build:absent", "any"),
    },
    apply="anygrpo.core.use:apply",
)
