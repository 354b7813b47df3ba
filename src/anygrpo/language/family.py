"""What the language family brings."""

from anygrpo.families import Family, Kind

_TASKS = "anygrpo.language.task_settings:"
_MODELS = ("llm", "lm", "language_model", "language", "causal", "transformers", "hf", "huggingface", "gpt", "text")
_FILES = ("csv", "json", "tsv", "parquet", "dataset", "hf_dataset", "datasets", "file", "hub", "math", "gsm8k", "qa")

FAMILY = Family(
    "language",
    policies={
        "causal_lm": Kind(
            "anygrpo.language.settings:CausalLMConfig", "anygrpo.language.build:build", "text", also=_MODELS
        )
    },
    tasks={
        "arithmetic": Kind(_TASKS + "ArithmeticTaskConfig", "anygrpo.language.tasks.arithmetic:build", "text"),
        "data": Kind(_TASKS + "JsonlTaskConfig", "anygrpo.language.tasks.jsonl:build", "text", also=_FILES),
        "jsonl": Kind(_TASKS + "JsonlTaskConfig", "anygrpo.language.tasks.jsonl:build", "text"),
        "mixture": Kind(_TASKS + "MixtureTaskConfig", "anygrpo.language.tasks.mixture:build", "text"),
        "verifiers": Kind(_TASKS + "VerifiersTaskConfig", "anygrpo.language.tasks.verifiers:build", "text"),
        "reasoning_gym": Kind(_TASKS + "ReasoningGymTaskConfig", "anygrpo.language.tasks.reasoning_gym:build", "text"),
    },
    probes={
        "duplicates": "anygrpo.language.probes:duplicates",
        "paid_for_environment": "anygrpo.language.turns.probes:paid_for_environment",
        "trivial_players": "anygrpo.language.turns.probes:trivial_players",
    },
    metrics=("anygrpo.language.metrics:METRICS",),
    memory="anygrpo.language.memory:report",
    export="anygrpo.language.export:export",
    apply="anygrpo.language.apply:apply",
    load="anygrpo.language.opening:opened",
)
