"""What the selection family brings."""

from anygrpo.families import Family, Kind

_SETTINGS = "anygrpo.selection.settings:"
_FILES = "anygrpo.selection.file_settings:"
_BUILD_TASK = "anygrpo.selection.build_task:build"

FAMILY = Family(
    "selection",
    policies={"selector": Kind(_SETTINGS + "SelectorConfig", "anygrpo.selection.build:build", "picks")},
    tasks={
        "digits_vqa": Kind(_SETTINGS + "DigitsVQAConfig", _BUILD_TASK, "picks"),
        "demonstrations": Kind(_SETTINGS + "DemonstrationsConfig", _BUILD_TASK, "picks"),
        "composition": Kind(_SETTINGS + "CompositionConfig", _BUILD_TASK, "picks"),
        "stored_candidates": Kind(_FILES + "StoredCandidatesConfig", _BUILD_TASK, "picks"),
        "judged": Kind(_FILES + "JudgedConfig", _BUILD_TASK, "picks"),
    },
    metrics=("anygrpo.selection.metrics:METRICS",),
    probes={"equivalent_settings": "anygrpo.selection.probes:reward_modes"},
    commands={"select": ("anygrpo.selection.commands", "generate and inspect stored demonstrations")},
)
