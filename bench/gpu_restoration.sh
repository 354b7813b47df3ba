#!/usr/bin/env bash
# The restoration comparisons in three seeds each, one process and one thread a seed, side by side.
#   PARTS="cpu toolbox" CORES=4-15 bash bench/gpu_restoration.sh OUT 430     # seconds for all; twelve cores
#   PARTS="gpu low_light toolbox" CORES=32-43 CUDA_VISIBLE_DEVICES=2,3 bash bench/gpu_restoration.sh OUT 440
# cpu       small frequency restorers: "l1" and "l1_ssim" (loss of supervision), "bands" (network without skipped features)
# low_light l1 with other shares of supervision beside GRPO
# bands_scratch  supervision at mean gates alone, for the time of warm-up and arm (l1's is in cpu)
# gpu       a larger one without skipped features, on larger crops of larger pictures; seeds are dealt over the visible GPUs
# toolbox   one of nine filters a patch: GRPO from a supervised start; toolbox_scratch: from none
# Needs torch, torchmetrics, scikit-image, scikit-learn, pillow, pydantic, safetensors. What is not done in time is left out.
# Writes OUT/restoration_PARTS.tar.gz: for each comparison summary.json, results.json, table.txt, a log a seed, every arm's
# quality on every held-out picture and pictures/*.jpg (degraded | supervised | grpo | clean); packed anew every minute, so a
# cut loses little. Weights of seed 0 of the small networks are in it.
set -uo pipefail
cd "$(dirname "$0")/.."
out="$1" total="$2" parts="${PARTS:-cpu toolbox gpu}"
cores="${CORES:-0-$(($(nproc) - 1))}" python="${PYTHON:-python}"
export PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
set -f # patterns below are for names of gates and parameters, not of files
work="$(mktemp -d)"
t() { awk -v s="${2:-${CPU_SECONDS:-$total}}" -v x="$1" 'BEGIN { printf "%.2f", s * x }'; }

rates="--concentration 4 --sites */rate --train *.rate.*"
size="--picture-size ${SIZE:-128} --crops ${CROPS:-32} --best-of 4 --oracles 0"
quarter="quarter=grpo:.25+supervised/mean:.75" half="half=grpo:.5+supervised/mean:.5"
l1="$size $rates --warm $(t .32) --seconds $(t .075)"
l1_ssim="$l1 --loss l1=1,ssim=0.2"
bands="$l1 --skip bands --oracles 3"
low_light="$l1"
toolbox="$size --network toolbox --width 16 --group 8 --warm $(t .09) --seconds $(t .16) --warm-gates mean
  --loss l1=1,ssim=0.2 --rate 5e-3 --grpo-rate 1e-3 --oracles 3"
gpu="--device ${DEVICE:-cuda} --width 24 --patch 48 --picture-size ${GPU_SIZE:-256} --crops ${GPU_CROPS:-96} --prompts 48
  --grpo-prompts 32 --group 8 --rows 512 --best-of 4 --oracles 3 $rates --skip bands
  --warm $(t .45 "$((total - ${GPU_AFTER:-0}))") --seconds $(t .11 "$((total - ${GPU_AFTER:-0}))")"
arms() { # of a comparison, in the order in which they are measured; the first with GRPO is in the pictures
  case "$1" in
    l1 | bands) echo "supervised/mean $quarter $half grpo" ;;
    l1_ssim) echo "supervised/mean $quarter" ;;
    low_light) echo "supervised/mean $quarter after=supervised/mean:.5+grpo:.25+supervised/mean:.25 $half
      fusion=grpo@train=*.rate.*,*.fusion.*@lambda_supervised=1@grpo_rate=5e-3:.5+supervised/mean:.5" ;;
    gpu) echo "supervised/mean $quarter $half" ;;
    toolbox) echo "supervised/mean grpo=grpo@sharpness=4" ;;
    l1_scratch | bands_scratch) echo scratch ;;
    toolbox_scratch) echo "scratch_grpo=grpo@grpo_rate=5e-3@entropy=0.003" ;;
  esac
}
IFS=, read -ra gpus <<< "${CUDA_VISIBLE_DEVICES:-0}"
measure() { # name seed arms... : one process, stopped in time for the tables
  local name="$1" seed="$2" left
  shift 2
  mkdir -p "$work/$name"
  if [ "$name" = gpu ]; then
    export CUDA_VISIBLE_DEVICES="${gpus[$((seed % ${#gpus[@]}))]}"
    sleep "${GPU_AFTER:-0}"
  fi
  left=$((${LIMIT:-$total} - 25 - SECONDS))
  [ "$left" -gt 0 ] || return 0
  timeout "$left" taskset -c "$cores" "$python" bench/restoration.py ${!name} --out "$work/$name" --only "$seed" --arms "$@" \
    >> "$work/$name/seed$seed.txt" 2>&1
}
table() { # name arms... : of what was measured
  local name="$1"
  shift
  [ -d "$work/$name" ] || return 0
  taskset -c "$cores" "$python" bench/restoration.py ${!name} --only ${SEEDS:-0 1 2} --out "$work/$name" --pieces 0 --arms "$@" \
    > "$work/$name/table.txt" 2>&1
}
file="$out/restoration_${parts// /_}.tar.gz"
mkdir -p "$out"
pack() {
  tar -C "$work" -czf "$file.part" --exclude='seed[1-9]/*.pt' --exclude='gpu/*.pt' --exclude='low_light/*.pt' --exclude=checkpoints --exclude=probe \
    --exclude=cold --exclude=run . 2> /dev/null
  mv "$file.part" "$file"
}
while sleep 60; do pack; done &
packer=$!
jobs=()
for seed in ${SEEDS:-0 1 2}; do
  for part in $parts; do
    case "$part" in
      cpu) for name in l1 l1_ssim bands; do measure "$name" "$seed" $(arms "$name") & jobs+=($!); done
        measure l1 "$seed" scratch & jobs+=($!) ;;
      *) measure "${part%_scratch}" "$seed" $(arms "$part") & jobs+=($!) ;;
    esac
  done
done
wait "${jobs[@]}"
kill "$packer"
jobs=()
for name in l1 l1_ssim bands low_light toolbox gpu; do table "$name" $(arms "$name") $(arms "${name}_scratch") & jobs+=($!); done
wait "${jobs[@]}"
for name in l1 l1_ssim bands low_light toolbox gpu; do cat "$work/$name/table.txt" 2> /dev/null; done
pack
rm -rf "$work"
ls -l "$file"
