#!/usr/bin/env bash
# Learning of the language-model recipes on one GPU, three seeds at once.
#   bench/gpu_learn.sh OUT RECIPE [--table.key value ...]     (RECIPE without .toml, from recipes/llm)
set -u
out=$1; recipe=$2; shift 2
for seed in 0 1 2; do
  python3 -m anygrpo train "recipes/llm/$recipe.toml" --seed "$seed" --folder "/tmp/runs/$recipe-$seed" --quiet "$@" \
    >"/tmp/$recipe-$seed.log" 2>&1 &
done
wait
for seed in 0 1 2; do
  tail -n 3 "/tmp/$recipe-$seed.log"
  cp "/tmp/runs/$recipe-$seed/metrics.jsonl" "$out/$recipe-$seed.jsonl" 2>/dev/null
  python3 - "/tmp/runs/$recipe-$seed/metrics.jsonl" <<'PY'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
shown = [(r["step"], round(r["eval/accuracy"], 3)) for r in rows if "eval/accuracy" in r]
print(sys.argv[1], "held-out accuracy", shown, "seconds", round(sum(r.get("time/step", 0) for r in rows), 1))
PY
done
