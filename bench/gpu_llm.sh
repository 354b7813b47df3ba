#!/usr/bin/env bash
# Language-model speed on one GPU, and on the same machine's CPU cores beside it, in about ten minutes; JSON a case.
#   bash bench/gpu_llm.sh [OUT]
# Needs torch, transformers, pydantic; trl, datasets and their dependencies for the comparison (left out where missing).
# PARTS=gpu or PARTS=cpu does one half. CURVES=1 also measures how cost grows (about three minutes). Random weights in known shapes: no download. BENCH_PACKAGES may name a .tar.xz of packages that Python lacks.
set -u
cd "$(dirname "$0")/.."
out="${1:-${OUT:-runs}/gpu_llm}"
mkdir -p "$out"
export PYTHONPATH="$PWD/src" PYTHONUNBUFFERED=1
if [ -n "${BENCH_PACKAGES:-}" ]; then
  packages=$(mktemp -d)
  tar -C "$packages" -xf "$BENCH_PACKAGES"
  PYTHONPATH="$PYTHONPATH:$packages"
fi
python3 - <<'PY'
import torch, transformers
print("device", torch.cuda.get_device_name(), "torch", torch.__version__, "transformers", transformers.__version__)
PY
grep -m1 "model name" /proc/cpuinfo
peer=none
python3 -c "import trl, datasets" 2>"$out/peer.err" && peer=trl || tail -n 1 "$out/peer.err"
bench="python3 bench/run.py llm --vs $peer --json"
cpu() { # name, first core, arguments: three cores each, two threads
  local name=$1 core=$2
  shift 2
  CUDA_VISIBLE_DEVICES="" taskset -c "$core-$((core + 2))" timeout 470 $bench --model shape:smollm2-135m --threads 2 \
    --rounds 1 --steps 1 "$@" >"$out/$name.json" 2>"$out/$name.err" &
}
gpu() {
  local case
  taskset -c 0-3 timeout 110 python3 bench/gpu_check.py 2>&1 | tee "$out/check.json" | tail -n 12
  for case in gpu-short gpu-long; do
    taskset -c 0-3 timeout 290 $bench --case "$case" --rounds 1 --steps 3 >"$out/$case.json" 2>"$out/$case.err"
    cat "$out/$case.json"
    tail -n 5 "$out/$case.err"
  done
  taskset -c 0-3 timeout 40 python3 bench/run.py floor --case gpu-short --case gpu-long --json | tee "$out/floor.json"
  [ -z "${CURVES:-}" ] || taskset -c 0-3 timeout 200 python3 bench/curves.py --points 3 --out "$out"
}
if [ "${PARTS:-cpu gpu}" != gpu ]; then
  cpu cpu-short-float32 4 --case short
  cpu cpu-short-bfloat16 7 --case short --dtype bfloat16
  cpu cpu-long-float32 10 --case long --no-gradient
  cpu cpu-long-bfloat16 13 --case long --dtype bfloat16 --no-gradient
fi
if [ "${PARTS:-cpu gpu}" != cpu ]; then
  gpu
fi
wait
for file in "$out"/cpu-*.json; do
  echo "$(basename "$file")"
  cat "$file"
  tail -n 3 "${file%.json}.err"
done
