#!/usr/bin/env bash
# Two picks on three tasks: the tables on one GPU, then every method, seed and budget of calls on the CPUs.
#   bench/gpu_composition.sh OUT SECONDS [PROCESSES] [easy_vqa-1.0-py3-none-any.whl]
# Test queries 600 to 999, which no earlier measurement has opened; they are asked after all training (report --test).
set -u
out=$1; seconds=$2; jobs=${3:-8}; wheel=${4:-}; began=$(date +%s); mkdir -p "$out"; export OMP_NUM_THREADS=1
spans="train-0:1500 validation-0:100 test-600:1000"
for rule in codes hops; do
  python3 bench/selection_composition.py table $rule "$out/$rule.npz" $spans &
done
if [ -n "$wheel" ]; then
  python3 bench/selection_pictures.py pack "$wheel" "$out/shapes.npz" &&
    python3 bench/selection_pictures.py table "$out/shapes.npz" "$out/pictures.npz" $spans
fi
wait
left=$((began + seconds - $(date +%s)))
CUDA_VISIBLE_DEVICES= python3 bench/selection_composition.py every "$out" "$left" "$jobs" 500
for table in codes pictures hops; do
  [ ! -f "$out/$table.npz" ] || python3 bench/selection_composition.py report "$out/$table.npz" "$out/$table" --test
done
