#!/usr/bin/env bash
# The restoration comparisons in three seeds: a larger one on GPUs and, side by side on CPU cores (one process and one
# thread a seed), the small ones. About eight minutes with nine or more cores.
#   CUDA_VISIBLE_DEVICES=0,1 CORES=4-15 bash bench/gpu_restoration.sh [FOLDER]
# Seeds of the GPU comparison are dealt over the visible GPUs; SCALE=0.1 takes a tenth of every time, NAMES="cpu toolbox"
# some of the comparisons. Needs torch, torchmetrics, scikit-image, scikit-learn, pillow, pydantic, safetensors.
# Writes FOLDER/restoration.tar.gz: of each of gpu, cpu and toolbox summary.json, results.json, table.txt, a log a seed and
# pictures/*.png (degraded | supervised | grpo | clean). Weights don't travel.
set -uo pipefail
cd "$(dirname "$0")/.."
out="${1:-${OUT:-runs}}" cores="${CORES:-0-$(($(nproc) - 1))}" python="${PYTHON:-python}"
export PYTHONPATH=src HF_HUB_OFFLINE=1
set -f # patterns below are for names of gates and parameters, not of files
work="$(mktemp -d)"
t() { awk -v s="${SCALE:-1}" -v x="$1" 'BEGIN { printf "%.2f", s * x }'; }

size="--picture-size ${SIZE:-128} --crops ${CROPS:-32}"
rates="--concentration 4 --sites */rate --train *.rate.* --arms supervised/mean scratch mixed=grpo:.5+supervised/mean:.5"
gpu="--device ${DEVICE:-cuda} --width 32 --patch 64 --picture-size 256 --crops 24 --prompts 32 --grpo-prompts 32 --group 8 --rows 256
  --warm $(t 100) --seconds $(t 50) --rate 2e-3 $rates"
cpu="$size --warm $(t 120) --seconds $(t 60) $rates"
toolbox="$size --network toolbox --width 16 --group 8 --warm $(t 30) --seconds $(t 90) --warm-gates mean --rate 5e-3
  --grpo-rate 5e-3 --arms supervised/mean grpo"

IFS=, read -ra gpus <<< "${CUDA_VISIBLE_DEVICES:-0}"
measure() { # name seed
  local name="$1" seed="$2"
  [ "$name" = gpu ] && export CUDA_VISIBLE_DEVICES="${gpus[$((seed % ${#gpus[@]}))]}"
  OMP_NUM_THREADS=1 taskset -c "$cores" "$python" bench/restoration.py ${!name} --out "$work/$name" --only "$seed" \
    > "$work/$name/seed$seed.txt" 2>&1
}
names="${NAMES:-gpu cpu toolbox}"
for name in $names; do
  mkdir -p "$work/$name"
  for seed in 0 1 2; do measure "$name" "$seed" & done
done
wait
for name in $names; do
  taskset -c "$cores" "$python" bench/restoration.py ${!name} --out "$work/$name" > "$work/$name/table.txt" 2>&1 &
done
wait
for name in $names; do cat "$work/$name/table.txt"; done
find "$work" \( -name checkpoints -o -name "*.pt" -o -name probe -o -name cold -o -name run \) -prune -exec rm -rf {} +
mkdir -p "$out" && tar -C "$work" -czf "$out/restoration.tar.gz" $names && rm -rf "$work"
ls -l "$out/restoration.tar.gz"
