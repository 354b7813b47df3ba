#!/usr/bin/env bash
# Two GPUs against one on the same total work (adapters, full weights, FSDP2), in under 200 s; see gpu_parallel.py.
#   bash bench/gpu_parallel.sh OUT
# BENCH_PACKAGES may name a .tar.xz of packages that Python lacks.
set -eu
here="$(cd "$(dirname "$0")/.." && pwd)"
export PYTHONPATH="$here/src${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=4
if [ -n "${BENCH_PACKAGES:-}" ]; then
  packages=$(mktemp -d)
  tar -C "$packages" -xf "$BENCH_PACKAGES"
  PYTHONPATH="$PYTHONPATH:$packages"
fi
mkdir -p "$1"
python3 "$here/bench/gpu_parallel.py" "$(mktemp -d)" | tee "$1/gpu_parallel.jsonl"
