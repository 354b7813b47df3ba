"""What the family of networks with random gates brings."""

from anygrpo.families import Family, Kind

_SETTINGS = "anygrpo.gates.settings:"
_MODULES = ("gates", "gated", "module", "nn_module", "torch", "network")

FAMILY = Family(
    "gates",
    policies={
        "stochastic": Kind(_SETTINGS + "StochasticConfig", "anygrpo.gates.build:build", "tensors", also=_MODULES),
        "restorer": Kind(
            _SETTINGS + "RestorerConfig", "anygrpo.gates.restorer.build:build", "tensors", also=("adair", "restoration")
        ),
    },
    tasks={
        "restoration": Kind(_SETTINGS + "RestorationConfig", "anygrpo.gates.restoration.build:build", "tensors"),
    },
    cards=("anygrpo.gates.cards:CARDS",),
    metrics=("anygrpo.gates.metrics:METRICS",),
    probes={"sites": "anygrpo.gates.effects:probe", "body": "anygrpo.gates.body:probe"},
    pages=("anygrpo.gates.restoration.page:gains",),
    tables=("anygrpo.gates.page:sites",),
    export="anygrpo.gates.export:export",
    apply="anygrpo.gates.apply:apply",
    load="anygrpo.gates.opening:opened",
)
