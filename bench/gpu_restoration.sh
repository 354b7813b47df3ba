#!/usr/bin/env bash
# The restoration comparison at a larger size on one GPU, in about four minutes.
#   bash bench/gpu_restoration.sh [OUT]
# Needs torch, torchmetrics, scikit-image, scikit-learn, pydantic, pillow. Writes OUT/summary.json, OUT/results.json and
# OUT/pictures/*.png (supervised | grpo strips of the last seed).
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:-${OUT:-runs}/restoration}"
mkdir -p "$out"
PYTHONPATH=src python bench/restoration.py --device cuda --seeds 3 --width 32 --patch 64 --picture-size 256 --crops 24 \
  --prompts 32 --grpo-prompts 16 --group 8 --rows 256 --probe 20 --oracles 3 --warm 25 --seconds 15 --out "$out" | tee "$out/log.txt"
