"""The README.md of an exported folder."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anygrpo.core import hub
from anygrpo.files import one_line, yaml_word
from anygrpo.models.loading import named
from anygrpo.models.origin import origin

if TYPE_CHECKING:
    from anygrpo.language.policy import CausalLM

_SERVE = {
    "peft": """vllm serve {base} --enable-lora --max-lora-rank {rank} --lora-modules {name}=./{name}

from peft import AutoPeftModelForCausalLM
model = AutoPeftModelForCausalLM.from_pretrained({python})

{fetched}python convert_hf_to_gguf.py {lying} --outfile base.gguf    # llama.cpp
python convert_lora_to_gguf.py --base {lying} ./{name} --outfile {name}.gguf
llama-server -m base.gguf --lora {name}.gguf""",
    "merged": """vllm serve ./{name}

from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained({python})

python convert_hf_to_gguf.py ./{name} --outfile {name}.gguf  # llama.cpp
llama-server -m {name}.gguf""",
    "peft, sees": """from peft import PeftModel
from transformers import AutoModelForImageTextToText, AutoProcessor
base = AutoModelForImageTextToText.from_pretrained({start})
model = PeftModel.from_pretrained(base, {python})
processor = AutoProcessor.from_pretrained({start})""",
    "merged, sees": """from transformers import AutoModelForImageTextToText, AutoProcessor
model = AutoModelForImageTextToText.from_pretrained({python})
processor = AutoProcessor.from_pretrained({python})""",
}
"""One that sees has no lines for llama.cpp, whose converter drops what looks, and none for vLLM: untried."""

_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM takes for --max-lora-rank."""


def model_card(policy: CausalLM, name: str, format: str, certificate: dict[str, Any]) -> str:
    """What it is made from, how it is served, and how it was checked."""
    rank = next((r for r in _RANKS if r >= policy.config.lora.rank), policy.config.lora.rank)
    model = policy.config.model
    base = one_line(model)  # anybody's words
    words = _base(model) | {"name": shlex.quote(name), "python": json.dumps(f"./{name}"), "rank": rank}
    sees = ", sees" if policy.config.vision is not None else ""
    serve = _SERVE[("peft" if format == "peft" else "merged") + sees].format(**words)
    if certificate["certified"]:
        checked = (
            f"Loaded by transformers {certificate['transformers']} and peft {certificate['peft']} in a process of "
            f"their own: log-probs differ from the training pass by {certificate['max_log_prob_gap']:.1e} nats at most "
            f"(allowed {certificate['limit']:.1e}) over {certificate['prompts']} prompts, "
            f"{certificate['greedy_differ']} greedy answers differ."
        )
    else:
        checked = f"Not certified: {certificate['why']}."
    return (
        f"---\nbase_model: {yaml_word(base)}\n"
        f"library_name: {'peft' if format == 'peft' else 'transformers'}\n"
        f"tags: [anygrpo, grpo]\n---\n# {one_line(name)}\n\nTrained with anygrpo from `{base}` "
        f"(train = {policy.config.train}), format {format}.\nThe licence is that of the base model.\n\n"
        f"## Use\n\n```\n{serve}\n```\n\nEnd tokens: {list(policy.prompts.ends)} (generation_config.json).\n\n"
        f"## Certificate\n\n{checked}\n"
    )


def _base(model: str) -> dict[str, str]:
    """How the base is named to vLLM (`base`), Python (`start`) and llama.cpp (`lying`: a folder, `fetched` first)."""
    if model == "memory" or not hub.is_name(model):
        begun = model != "memory" and origin(model).kind != "plain"  # from an adapter or a run, which no other can load
        place = one_line(str(Path(model).expanduser().absolute()) if begun else named(model))
        return {"base": shlex.quote(place), "start": json.dumps(place), "lying": shlex.quote(place), "fetched": ""}
    repository, revision = hub.split(model)
    at = f" --revision {shlex.quote(revision)}" if revision else ""
    start = json.dumps(repository) + (f", revision={json.dumps(revision)}" if revision else "")
    fetched = f"hf download {repository}{at} --local-dir ./base\n"
    return {"base": repository + at, "start": start, "lying": "./base", "fetched": fetched}
