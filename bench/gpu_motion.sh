#!/usr/bin/env bash
# Text to motion at full size (263 x 196 x 50) on one GPU, in about five minutes: supervised training, then GRPO with LoRA
# in three seeds, measured on held-out captions.
#   bash bench/gpu_motion.sh [OUT]
# Needs torch, peft, diffusers, pydantic, numpy, pillow, safetensors. The clips (1.2 MiB, python scripts/fetch_motion.py
# FOLDER) are looked for in $MOTION_DATA, runs/motion-data, then the user's cache. Writes OUT/summary.json (also printed,
# last line) and OUT/seed_*/pictures.
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:-${OUT:-runs}/motion-full}"
data="${MOTION_DATA:-runs/motion-data}"
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$out/cache}"
[ -d "$data" ] || data="$HOME/.cache/anygrpo/motion"
mkdir -p "$out"
PYTHONPATH=src python bench/motion.py --supervised recipes/motion/full_supervised.toml \
  --grpo recipes/motion/full_grpo.toml --device cuda --seeds 3 --supervised-seconds 75 --seed-seconds 40 --out "$out" \
  --task.data "$data" | tee "$out/log.txt"
rm -rf "$out"/*/checkpoints "$out/cache"
