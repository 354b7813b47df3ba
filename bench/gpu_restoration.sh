#!/usr/bin/env bash
# The restoration comparisons: a larger one on a GPU and, side by side on the CPU's cores (one process and one thread a seed),
# the small ones. About five minutes on one H100 with 16 cores.
#   bash bench/gpu_restoration.sh [FOLDER]
# Needs torch, torchmetrics, scikit-image, scikit-learn, pillow, pydantic, safetensors. For each of gpu, cpu and toolbox it writes
# FOLDER/NAME/summary.json, results.json, table.txt and pictures/*.png (degraded | supervised | grpo | clean).
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:-${OUT:-runs}/restoration}"
export PYTHONPATH=src
set -f # patterns below are for names of gates and parameters, not of files

rates="--share 0.5 --sites */rate --train *.rate.* --grpo-rate 1e-2 --warm-gates mean"
gpu="--device cuda --width 32 --patch 64 --picture-size 256 --crops 24 --prompts 32 --grpo-prompts 32 --group 8 --rows 256
  --probe 20 --warm 18 --seconds 14 --rate 2e-3 $rates"
cpu="--width 8 --patch 32 --picture-size 128 --crops 32 --prompts 8 --grpo-prompts 16 --group 4 --warm 50 --seconds 40
  --rate 3e-3 --arms supervised/mean grpo $rates"
toolbox="--network toolbox --width 16 --patch 32 --picture-size 128 --crops 32 --prompts 16 --grpo-prompts 16 --group 8
  --warm 10 --seconds 50 --share 1 --warm-gates mean --rate 5e-3 --grpo-rate 5e-3"

for name in cpu toolbox; do
  for seed in 0 1 2; do
    mkdir -p "$out/$name"
    OMP_NUM_THREADS=1 python bench/restoration.py ${!name} --out "$out/$name" --only $seed > "$out/$name/seed$seed.txt" 2>&1 &
  done
done
mkdir -p "$out/gpu"
python bench/restoration.py $gpu --out "$out/gpu" 2>&1 | tee "$out/gpu/table.txt"
wait
for name in cpu toolbox; do
  python bench/restoration.py ${!name} --out "$out/$name" 2>&1 | tee "$out/$name/table.txt"
done
find "$out" \( -name checkpoints -o -name "*.pt" \) -prune -exec rm -rf {} + # weights need not travel
