"""What the selection family brings."""

from anygrpo.families import Family, Kind
from anygrpo.spoken import Text

_HERE = "anygrpo.selection."
_SETTINGS = _HERE + "settings:"
_FILES = _HERE + "file_settings:"
_POINTERS = ("pointer", "pointer_network", "pointer_selector", "demonstration_selector", "selection")
_STORED = ("candidates", "stored", "beams", "beam", "score_list")

FAMILY = Family(
    "selection",
    policies={"selector": Kind(_SETTINGS + "SelectorConfig", "anygrpo.selection.build:build", "picks", also=_POINTERS)},
    tasks={
        "digits_vqa": Kind(_SETTINGS + "DigitsVQAConfig", _HERE + "digits:DigitsVQA", "picks"),
        "demonstrations": Kind(_SETTINGS + "DemonstrationsConfig", _HERE + "demonstrations:Demonstrations", "picks"),
        "composition": Kind(_SETTINGS + "CompositionConfig", _HERE + "composition:Composition", "picks"),
        "stored_candidates": Kind(
            _FILES + "StoredCandidatesConfig", _HERE + "stored_task:StoredCandidates", "picks", also=_STORED
        ),
        "judged": Kind(_FILES + "JudgedConfig", _HERE + "judged:Judged", "picks"),
    },
    cards=("anygrpo.selection.cards:CARDS",),
    metrics=("anygrpo.selection.metrics:METRICS",),
    probes={"equivalent_settings": "anygrpo.selection.probes:reward_modes"},
    commands={
        "select": (
            "anygrpo.selection.commands",
            Text("generate and inspect stored demonstrations", "生成并查看存储的示例选择"),
        )
    },
    export="anygrpo.selection.export:export",
    apply="anygrpo.selection.apply:apply",
    load="anygrpo.selection.opening:opened",
)
