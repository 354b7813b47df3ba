#!/usr/bin/env bash
# Does a choice of experts by GRPO beat its rivals for the same time on photographs that nobody tuned on?
#   python scripts/photographs.py fetch --to data/photographs           # once; needs apt
#   bash bench/gpu_photographs.sh OUT 230            # trains all arms (seconds of CPU time an arm), measures on validation
#   OPEN=1 COMMIT=... bash bench/gpu_photographs.sh OUT 230    # then, if ours leads there, opens the sealed test set, once
# SIZE=cpu: width 16, a core an arm; SIZE=gpu (default): width 24, three starts, 15 processes that share the GPU and 16 cores.
# Arms: bench/photographs_arms.py. MEASURE: the device that measures, in float32.
set -uo pipefail
cd "$(dirname "$0")/.."
out="$1" seconds="${2:-230}" began=$(date +%s)
python="${PYTHON:-python}" data="${PICTURES:-data/photographs}" measure="${MEASURE:-cpu}"
read -r -a first <<< "${SEEDS:-10 11 12}"
export PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 PYTORCH_NVML_BASED_CUDA_CHECK=1
# the allocator keeps its pages: new ones are dear on virtual machines
export MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=67108864
size="${SIZE:-gpu}"
words=(--pictures "$data" --warm "$seconds" --out "$out/$size")
[ "$size" = cpu ] || words+=(--width 24 --patch 64 --prompts 32 --rows 256 --grpo-prompts 16)
now() { echo "$(($(date +%s) - began)) s: $*"; }
mkdir -p "$out"
"$python" bench/photographs_arms.py "${words[@]}" --device "${DEVICE:-$([ "$size" = cpu ] && echo cpu || echo cuda)}" \
  --only "${first[@]}" > "$out/$size.txt" 2>&1
now trained
table() { # which set: starts beside each other, then the table of all
  local seed jobs=()
  for seed in "${first[@]}"; do
    "$python" bench/photographs_table.py "${words[@]}" --device "$measure" --test-on "$1" --only "$seed" > "$out/one_$seed.txt" 2>&1 &
    jobs+=($!)
  done
  wait "${jobs[@]}"
  "$python" bench/photographs_table.py "${words[@]}" --test-on "$1" --pieces 0 --only "${first[@]}" > "$out/${size}_$1.txt" 2>&1
  echo "== $size $1"
  cat "$out/${size}_$1.txt"
}
table validation
now validated
[ "${OPEN:-0}" = 1 ] || exit 0
for seed in "${first[@]}"; do
  for arm in mean nogrpo ours fixed drawn; do
    [ -e "$out/$size/seed$seed/$arm/time.json" ] || { echo "not trained: $seed $arm; the test set stays sealed"; exit 1; }
  done
done
"$python" - "$out/$size/summary_validation.json" << 'P' || { echo "ours does not lead; the test set stays sealed"; exit 1; }
import json, sys
rows = {k: v["all"] for k, v in json.load(open(sys.argv[1])).items() if "soft" not in k and "oracle" not in k}  # equal cost in use
sys.exit(not all(r["psnr"][1] > 0 and r["ssim"][1] > 0 for r in rows.values()))
P
"$python" scripts/photographs.py open --to "$data" --weights "$out"/*/seed*/*/network.pt ${COMMIT:+--commit "$COMMIT"} || exit 1
cp "$data/opened.json" "$out"
table test
now tested
