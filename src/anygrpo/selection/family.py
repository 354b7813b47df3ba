"""What the selection family brings."""

from anygrpo.families import Family, Kind

<<<<<<< 5605946f5cd705c818ebbcaa196e18a9fa859854
_HERE = "anygrpo.selection."
_SETTINGS = _HERE + "settings:"
=======
_SETTINGS = "anygrpo.selection.settings:"
_FILES = "anygrpo.selection.file_settings:"
_BUILD_TASK = "anygrpo.selection.build_task:build"
>>>>>>> a67068ded610aeeb2c259caae442263ac528a6b4

FAMILY = Family(
    "selection",
    policies={"selector": Kind(_SETTINGS + "SelectorConfig", "anygrpo.selection.build:build", "picks")},
    tasks={
<<<<<<< 5605946f5cd705c818ebbcaa196e18a9fa859854
        "digits_vqa": Kind(_SETTINGS + "DigitsVQAConfig", _HERE + "digits:DigitsVQA", "picks"),
        "demonstrations": Kind(_SETTINGS + "DemonstrationsConfig", _HERE + "demonstrations:Demonstrations", "picks"),
        "stored_candidates": Kind(
            _SETTINGS + "StoredCandidatesConfig", _HERE + "stored_task:StoredCandidates", "picks"
        ),
=======
        "digits_vqa": Kind(_SETTINGS + "DigitsVQAConfig", _BUILD_TASK, "picks"),
        "demonstrations": Kind(_SETTINGS + "DemonstrationsConfig", _BUILD_TASK, "picks"),
        "composition": Kind(_SETTINGS + "CompositionConfig", _BUILD_TASK, "picks"),
        "stored_candidates": Kind(_FILES + "StoredCandidatesConfig", _BUILD_TASK, "picks"),
        "judged": Kind(_FILES + "JudgedConfig", _BUILD_TASK, "picks"),
>>>>>>> a67068ded610aeeb2c259caae442263ac528a6b4
    },
    metrics=("anygrpo.selection.metrics:METRICS",),
    probes={"equivalent_settings": "anygrpo.selection.probes:reward_modes"},
    commands={"select": ("anygrpo.selection.commands", "generate and inspect stored demonstrations")},
)
