#!/usr/bin/env bash
# Does a choice of experts by GRPO beat its rivals for the same time on photographs that nobody tuned on?
#   python scripts/photographs.py fetch --to data/photographs           # once; needs apt
#   bash bench/gpu_photographs.sh OUT 230            # trains all arms (seconds of CPU time an arm), measures on validation
#   OPEN=1 COMMIT=... bash bench/gpu_photographs.sh OUT 230    # then, if ours leads there, opens the sealed test set, once
# 16 cores: three starts of all arms and three more of those that share a warm-up; GPU=1: width 24, three starts, GPU_SECONDS
# an arm, beside them. MEASURE: the device that measures (its arithmetic in float32). Arms: bench/photographs_arms.py.
set -uo pipefail
cd "$(dirname "$0")/.."
out="$1" seconds="${2:-230}" began=$(date +%s)
python="${PYTHON:-python}" data="${PICTURES:-data/photographs}" measure="${MEASURE:-cpu}"
read -r -a first <<< "${SEEDS:-10 11 12}"
read -r -a more <<< "${MORE_SEEDS-13 14 15}"
export PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 PYTORCH_NVML_BASED_CUDA_CHECK=1
# the allocator keeps its pages: new ones are dear on virtual machines
export MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=67108864
shared=(warm mean nogrpo ours)
large=(--width 24 --patch 64 --prompts 32 --rows 256 --grpo-prompts 16)
now() { echo "$(($(date +%s) - began)) s: $*"; }
mkdir -p "$out"
words=(--pictures "$data" --warm "$seconds")
nice "$python" bench/photographs_arms.py "${words[@]}" --out "$out/cpu" --only "${first[@]}" > "$out/cpu.txt" 2>&1 &
[ ${#more[@]} = 0 ] || nice "$python" bench/photographs_arms.py "${words[@]}" --out "$out/cpu" --only "${more[@]}" \
  --arms "${shared[@]}" > "$out/cpu_more.txt" 2>&1 &
[ "${GPU:-0}" != 1 ] || timeout "${GPU_LIMIT:-370}" "$python" bench/photographs_arms.py --pictures "$data" "${large[@]}" \
  --warm "${GPU_SECONDS:-85}" --device cuda --out "$out/gpu" --only "${first[@]}" --arms "${shared[@]}" fixed > "$out/gpu.txt" 2>&1 &
wait
now trained
table() { # which set: starts beside each other, then the table of all
  local seed size jobs=()
  for seed in "${first[@]}" "${more[@]}"; do
    "$python" bench/photographs_table.py "${words[@]}" --device "$measure" --out "$out/cpu" --test-on "$1" --only "$seed" \
      > "$out/one_$seed.txt" 2>&1 &
    jobs+=($!)
  done
  [ "${GPU:-0}" != 1 ] || for seed in "${first[@]}"; do
    "$python" bench/photographs_table.py "${words[@]}" "${large[@]}" --device "$measure" --out "$out/gpu" --test-on "$1" \
      --only "$seed" > "$out/one_gpu_$seed.txt" 2>&1 &
    jobs+=($!)
  done
  wait "${jobs[@]}"
  "$python" bench/photographs_table.py "${words[@]}" --out "$out/cpu" --test-on "$1" --pieces 0 --only "${first[@]}" "${more[@]}" \
    > "$out/cpu_$1.txt" 2>&1
  [ "${GPU:-0}" != 1 ] || "$python" bench/photographs_table.py "${words[@]}" "${large[@]}" --out "$out/gpu" --test-on "$1" \
    --pieces 0 --only "${first[@]}" > "$out/gpu_$1.txt" 2>&1
  for size in cpu gpu; do [ ! -e "$out/${size}_$1.txt" ] || { echo "== $size $1"; cat "$out/${size}_$1.txt"; }; done
}
table validation
now validated
[ "${OPEN:-0}" = 1 ] || exit 0
for seed in "${first[@]}"; do
  for arm in mean nogrpo ours fixed drawn; do
    [ -e "$out/cpu/seed$seed/$arm/time.json" ] || { echo "not trained: $seed $arm; the test set stays sealed"; exit 1; }
  done
done
"$python" - "$out/cpu/summary_validation.json" << 'P' || { echo "ours does not lead; the test set stays sealed"; exit 1; }
import json, sys
rows = {k: v["all"] for k, v in json.load(open(sys.argv[1])).items() if "soft" not in k and "oracle" not in k}
sys.exit(not all(r["psnr"][1] > 0 and r["ssim"][1] > 0 for r in rows.values()))
P
"$python" scripts/photographs.py open --to "$data" --weights "$out"/*/seed*/*/network.pt ${COMMIT:+--commit "$COMMIT"} || exit 1
cp "$data/opened.json" "$out"
table test
now tested
