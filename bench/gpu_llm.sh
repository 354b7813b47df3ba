#!/usr/bin/env bash
# Language-model speed on one GPU, in under eight minutes; prints JSON a case.
#   bash bench/gpu_llm.sh [OUT]
# Needs torch, transformers, pydantic; trl, datasets and their dependencies for the comparison (left out where missing).
set -u
cd "$(dirname "$0")/.."
out="${1:-${OUT:-runs}/gpu_llm}"
mkdir -p "$out"
export PYTHONPATH=src PYTHONUNBUFFERED=1
python3 - <<'PY'
import torch, transformers
print("device", torch.cuda.get_device_name(), "torch", torch.__version__, "transformers", transformers.__version__)
PY
timeout 100 python3 bench/gpu_check.py 2>&1 | tee "$out/check.json" | tail -n 12
peer=none
python3 -c "import trl, datasets" 2>/dev/null && peer=trl
for case in gpu-short gpu-long; do
  timeout 175 python3 -m anygrpo.cli.main --debug bench llm --case "$case" --vs "$peer" --rounds 1 --steps 3 --json \
    >"$out/$case.json" 2>"$out/$case.err"
  cat "$out/$case.json"
  tail -n 5 "$out/$case.err"
done
timeout 40 python3 -m anygrpo.cli.main bench floor --case gpu-short --case gpu-long --json | tee "$out/floor.json"
