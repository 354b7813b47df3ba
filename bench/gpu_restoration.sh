#!/usr/bin/env bash
# The restoration comparison at a larger size on one GPU: under five minutes for "frequency", two for "toolbox".
#   bash bench/gpu_restoration.sh [frequency|toolbox] [FOLDER]
# Needs torch, torchmetrics, scikit-image, scikit-learn, pillow, pydantic, safetensors. Writes summary.json, results.json, log.txt and
# pictures/*.png (degraded | supervised | grpo | clean, of the last seed) to FOLDER.
set -euo pipefail
cd "$(dirname "$0")/.."
network="${1:-frequency}"
out="${2:-${OUT:-runs}/restoration-$network}"
mkdir -p "$out"
size="--device cuda --seeds 3 --patch 64 --picture-size 256 --crops 24 --prompts 32 --grpo-prompts 32 --group 8 --rows 256"
case "$network" in
  frequency) own="--width 32 --warm 20 --seconds 16 --probe 20 --warm-gates mean --rate 2e-3 --share 0.5 --grpo-rate 1e-2 --sites */rate --train *.rate.*" ;;
  toolbox) own="--network toolbox --width 16 --warm 5 --seconds 8 --probe 20 --warm-gates mean --share 1 --grpo-rate 2e-3" ;;
  *) echo "frequency or toolbox, not $network" >&2; exit 2 ;;
esac
set -f # the patterns are for parameters, not for files
PYTHONPATH=src python bench/restoration.py $size $own --out "$out" | tee "$out/log.txt"
