#!/usr/bin/env bash
# The restoration comparisons in three seeds each, one process and one thread a seed, side by side.
#   PARTS="cpu toolbox" CORES=4-15 bash bench/gpu_restoration.sh OUT 430     # seconds for all; twelve cores
#   PARTS="gpu scratch" CPU_SECONDS=430 CORES=4-9 CUDA_VISIBLE_DEVICES=0 bash bench/gpu_restoration.sh OUT 290
# cpu     small frequency restorers: "l1" and "l1_ssim" (loss of supervision), "bands" (network without skipped features)
# scratch bands again by supervision at mean gates alone, for the time of warm-up and arm
# gpu     a larger one without skipped features, on larger crops of larger pictures; seeds are dealt over the visible GPUs
# toolbox one of nine filters a patch
# Needs torch, torchmetrics, scikit-image, scikit-learn, pillow, pydantic, safetensors. What is not done in time is left out.
# Writes OUT/restoration_PARTS.tar.gz: for each comparison summary.json, results.json, table.txt, a log a seed, every arm's
# quality on every held-out picture and pictures/*.png (degraded | supervised | grpo | clean), and l1's weights of seed 0.
set -uo pipefail
cd "$(dirname "$0")/.."
out="$1" total="$2" parts="${PARTS:-cpu toolbox gpu}"
cores="${CORES:-0-$(($(nproc) - 1))}" python="${PYTHON:-python}"
export PYTHONPATH=src HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
set -f # patterns below are for names of gates and parameters, not of files
work="$(mktemp -d)"
t() { awk -v s="${2:-${CPU_SECONDS:-$total}}" -v x="$1" 'BEGIN { printf "%.2f", s * x }'; }

rates="--concentration 4 --sites */rate --train *.rate.*"
size="--picture-size ${SIZE:-128} --crops ${CROPS:-32} --best-of 4 --oracles 0"
mixed="mixed=grpo:.5+supervised/mean:.5"
l1="$size $rates --warm $(t .34) --seconds $(t .075)"
l1_ssim="$l1 --loss l1=1,ssim=0.2"
bands="$l1 --skip bands"
toolbox="$size --network toolbox --width 16 --group 8 --warm $(t .05) --seconds $(t .12) --warm-gates mean
  --loss l1=1,ssim=0.2 --rate 5e-3 --grpo-rate 1e-3"
gpu="--device ${DEVICE:-cuda} --width 24 --patch 48 --picture-size 256 --crops 24 --prompts 48 --grpo-prompts 32 --group 8
  --rows 512 --best-of 4 --oracles 0 $rates --skip bands
  --warm $(t .4 "$total") --seconds $(t .09 "$total")"
arms() { # of a comparison
  case "$1" in
    l1) echo "supervised/mean grpo $mixed last=grpo@sites=level0/rate@train=modulators.0.rate.*" ;;
    l1_ssim) echo "supervised/mean grpo $mixed whole=grpo@grpo_patch=64@grpo_prompts=8" ;;
    bands | gpu) echo "supervised/mean grpo $mixed" ;;
    toolbox) echo "supervised/mean grpo" ;;
  esac
}
IFS=, read -ra gpus <<< "${CUDA_VISIBLE_DEVICES:-0}"
measure() { # name seed arms... : one process, stopped in time for the tables
  local name="$1" seed="$2" left=$((${LIMIT:-$total} - 25 - SECONDS))
  shift 2
  [ "$left" -gt 0 ] || return 0
  mkdir -p "$work/$name"
  [ "$name" = gpu ] && export CUDA_VISIBLE_DEVICES="${gpus[$((seed % ${#gpus[@]}))]}"
  timeout "$left" taskset -c "$cores" "$python" bench/restoration.py ${!name} --out "$work/$name" --only "$seed" --arms "$@" \
    >> "$work/$name/seed$seed.txt" 2>&1
}
table() { # name arms... : of what was measured
  local name="$1"
  shift
  [ -d "$work/$name" ] || return 0
  taskset -c "$cores" "$python" bench/restoration.py ${!name} --out "$work/$name" --pieces 0 --arms "$@" > "$work/$name/table.txt" 2>&1
}
for seed in ${SEEDS:-0 1 2}; do
  if [[ " $parts " = *" cpu "* ]]; then
    measure l1 "$seed" $(arms l1) &
    measure l1_ssim "$seed" $(arms l1_ssim) &
    measure bands "$seed" $(arms bands) &
  fi
  ( # supervision at mean gates for the whole time, then the toolbox
    [[ " $parts " = *" cpu "* ]] && measure l1 "$seed" scratch
    [[ " $parts " = *" toolbox "* ]] && measure toolbox "$seed" $(arms toolbox)
  ) &
  [[ " $parts " = *" scratch "* ]] && measure bands "$seed" scratch &
  [[ " $parts " = *" gpu "* ]] && measure gpu "$seed" $(arms gpu) &
done
wait
for name in l1 l1_ssim bands toolbox gpu; do
  [[ "$parts" != *scratch* || "$name" = gpu ]] && table "$name" $(arms "$name") $([ "$name" = l1 ] && echo scratch) &
done
wait
for name in l1 l1_ssim bands toolbox gpu; do cat "$work/$name/table.txt" 2> /dev/null; done
find "$work" -name "*.pt" -not -path "*/l1/seed0/*/network.pt" -delete
find "$work" \( -name checkpoints -o -name probe -o -name cold -o -name run \) -prune -exec rm -rf {} +
file="$out/restoration_${parts// /_}.tar.gz"
mkdir -p "$out" && tar -C "$work" -czf "$file" . && rm -rf "$work"
ls -l "$file"
