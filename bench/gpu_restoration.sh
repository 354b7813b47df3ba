#!/usr/bin/env bash
# The restoration comparisons in three seeds each, one process and one thread a seed, side by side.
#   PARTS="cpu toolbox" CORES=34-63 CPU_SECONDS=560 bash bench/gpu_restoration.sh OUT 500     # wall seconds; 21 processes
#   PARTS=none16 SEEDS="40 41 42" CUDA_VISIBLE_DEVICES=0,1 bash bench/gpu_restoration.sh OUT 640      # larger, on two GPUs
# cpu       small frequency restorers: "l1" and "l1_ssim" (loss of supervision), "bands" (network without skipped features);
#           l1 and bands also beside supervision at mean gates alone for the time of warm-up and arm ("scratch")
# none      as "bands", and half resolution has no skipped features either; width 16, w_psnr .75. none_ssim: that loss
# low_light l1 with other shares of supervision beside GRPO
# none8, none16, none24  of width 8, 16, 24, with no skipped features at all, on larger crops of larger pictures, each held-out one
#           degraded three times; gpu8, gpu24: of which half resolution has skipped features. Seeds are dealt over the visible
#           GPUs, two processes a card at most (GRAPHS="": without CUDA graphs; GPU_ARMS, GPU_EXTRA: other arms, settings)
# toolbox   one of twelve filters a patch: GRPO from a supervised start; gpu_toolbox: larger patches, pictures and groups
#           (MORE=0: without its further arms, another reward and a sharper supervision, which need a core each)
# whole_*   l1 or bands without a common warm-up: supervision from the first step against "early", both for the whole time
# Needs torch, torchmetrics, scikit-image, scikit-learn, pillow, pydantic, safetensors. What is not done in time is left out.
# Writes OUT/restoration_PARTS.tar.gz: for each comparison summary.json, results.json, table.txt, a log a seed, every arm's
# quality on every held-out picture and pictures/*.jpg (degraded | supervised | grpo | clean); packed anew every minute, so a
# cut loses little. Weights are in it of warm-ups: FROM=that file goes on from there, and measures what it lacks.
set -uo pipefail
cd "$(dirname "$0")/.."
out="$1" total="$2" parts="${PARTS:-cpu toolbox}"
cores="${CORES:-0-$(($(nproc) - 1))}" python="${PYTHON:-python}"
export PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
set -f # patterns below are for names of gates and parameters, not of files
work="$(mktemp -d)"
[ -z "${FROM:-}" ] || tar -C "$work" -xzf "$FROM"
t() { awk -v s="${2:-${CPU_SECONDS:-$total}}" -v x="$1" 'BEGIN { printf "%.2f", s * x }'; }

rates="--concentration 4 --sites */rate --train *.rate.*"
size="--picture-size ${SIZE:-128} --crops ${CROPS:-32} --best-of 4"
l1="$size --oracles 3 $rates --warm $(t .32) --seconds $(t .075)"
l1_ssim="$l1 --loss l1=1,ssim=0.2"
bands="$l1 --skip bands"
low_light="$l1"
whole_l1="$size --oracles 0 $rates --warm $(t .32) --seconds $(t .07)"
whole_bands="$whole_l1 --skip bands"
none="$l1 --skip none --width 16 --w-psnr .75 --held-out-draws 3"
none_ssim="$none --loss l1=1,ssim=0.2"
toolbox="$size --network toolbox --width 16 --group 8 --warm $(t .18) --seconds $(t .22) --warm-gates mean
  --loss l1=1,ssim=0.2 --rate 5e-3 --grpo-rate 1e-3 --oracles 3"
on_gpu="--device ${DEVICE:-cuda} ${GRAPHS---graphs} --patch ${GPU_PATCH:-64} --picture-size ${GPU_SIZE:-256} --crops ${GPU_CROPS:-96} --prompts 48
  --grpo-prompts 32 --group 8 --rows 256 --best-of 4 --held-out-draws 3 $rates --further-rate 3e-4 --probe 100 --oracles ${ORACLES:-0}
  --w-psnr .75 --warm $(t .36 "$total") --seconds $(t .13 "$total")"
gpu8="$on_gpu --skip bands --width 8 ${GPU_EXTRA:-}"
gpu24="$on_gpu --skip bands --width 24 ${GPU_EXTRA:-}"
none8="$on_gpu --skip none --width 8 ${GPU_EXTRA:-}"
none16="$on_gpu --skip none --width 16 ${GPU_EXTRA:-}"
none24="$on_gpu --skip none --width 24 ${GPU_EXTRA:-}"
gpu_toolbox="--device ${DEVICE:-cuda} ${GRAPHS---graphs} --network toolbox --width 32 --patch 64 --tool-patch 32 --picture-size ${GPU_SIZE:-256}
  --crops ${TOOL_CROPS:-64} --prompts 64 --grpo-prompts 32 --group 16 --rows 256 --best-of 4 --oracles 1 --warm-gates mean --probe 12
  --loss l1=1,ssim=0.2 --rate 5e-3 --grpo-rate 1e-3 --w-psnr 0.35 --warm $(t .36 "$total") --seconds $(t .16 "$total") ${GPU_EXTRA:-}"
quarter="grpo:.25+supervised/mean:.75"
early="scratch_early=supervised/sampled:.4+grpo:.07+supervised/mean@further_rate=3e-3:.53"
arms() { # of a comparison, in the order in which they are measured; the first with GRPO is in the pictures
  case "$1" in
    l1 | bands) echo "supervised/mean quarter=$quarter half=grpo:.5+supervised/mean:.5" ;;
    l1_ssim) echo "supervised/mean quarter=$quarter" ;;
    l1_scratch | bands_scratch) echo scratch ;;
    low_light) echo "supervised/mean quarter=$quarter after=supervised/mean:.5+grpo:.25+supervised/mean:.25
      fusion=grpo@train=*.rate.*,*.fusion.*@lambda_supervised=1@grpo_rate=5e-3:.5+supervised/mean:.5" ;;
    gpu8 | gpu24) echo "supervised/mean half=grpo:.5+supervised/mean:.5" ;;
    none | none_ssim) echo "supervised/mean half=grpo:.5+supervised/mean:.5 sampled=supervised/sampled" ;;
    none_scratch) echo scratch ;;
    none8 | none16 | none24) echo "supervised/mean half=grpo:.5+supervised/mean:.5 ${GPU_ARMS:-sampled=supervised/sampled}" ;;
    toolbox) echo "supervised/mean grpo=supervised/mean:.4+grpo@sharpness=4:.6" ;;
    toolbox_more) echo "ssim=supervised/mean:.4+grpo@sharpness=4@w_psnr=0.25:.6 sharp=supervised/mean@sharpness=4" ;;
    gpu_toolbox) echo "supervised/mean grpo=supervised/mean:.3+grpo@sharpness=4:.7
      near=supervised/mean:.3+grpo@sharpness=12@grpo_rate=5e-4:.7" ;;
    whole_l1 | whole_bands) echo "scratch $early" ;;
  esac
}
IFS=, read -ra gpus <<< "${CUDA_VISIBLE_DEVICES:-0}"
measure() { # name seed arms... : one process, stopped in time for the tables
  local name="$1" seed="$2" left
  shift 2
  mkdir -p "$work/$name"
  [[ "$name" != gpu* && "$name" != none[0-9]* ]] || export CUDA_VISIBLE_DEVICES="${gpus[$((seed % ${#gpus[@]}))]}"
  left=$((${LIMIT:-$total} - 25 - SECONDS))
  [ "$left" -gt 0 ] || return 0
  timeout "$left" taskset -c "$cores" "$python" bench/restoration.py ${!name} --out "$work/$name" --only "$seed" --arms "$@" \
    >> "$work/$name/seed$seed.txt" 2>&1
}
after_warm_up() { # name seed arms... : beside the process that measures the warm-up of the same name and seed
  until [ -f "$work/$1/seed$2/warm/result.json" ] || [ "$SECONDS" -gt "$total" ]; do sleep 1; done
  measure "$@"
}
table() { # name arms... : of what was measured
  local name="$1"
  shift
  [ -d "$work/$name" ] || return 0
  taskset -c "$cores" "$python" bench/restoration.py ${!name} --only ${SEEDS:-0 1 2} --out "$work/$name" --pieces 0 --arms "$@" \
    > "$work/$name/table.txt" 2>&1
  grep -rhs --include "seed*.txt" " steps in " "$work/$name" >> "$work/$name/table.txt"
}
file="$out/restoration_${parts// /_}.tar.gz"
mkdir -p "$out"
pack() {
  tar -C "$work" -czf "$file.part" --exclude='seed*/[!w]*/*.pt' --exclude=checkpoints --exclude=probe \
    --exclude=cold --exclude=run . 2> /dev/null
  mv "$file.part" "$file"
}
while sleep 60; do pack; done &
packer=$!
jobs=()
for part in $parts; do
  for seed in ${SEEDS:-0 1 2}; do
    case "$part" in
      none) measure none "$seed" $(arms none) & jobs+=($!)
        measure none "$seed" scratch & jobs+=($!) ;;
      cpu) for name in l1 l1_ssim bands; do
          measure "$name" "$seed" $(arms "$name") & jobs+=($!)
          [ "$name" = l1_ssim ] || { measure "$name" "$seed" scratch & jobs+=($!); }
        done ;;
      toolbox) measure "$part" "$seed" $(arms "$part") & jobs+=($!)
        [ "${MORE:-1}" = 0 ] || { after_warm_up "$part" "$seed" $(arms "${part}_more") & jobs+=($!); } ;;
      *) measure "$part" "$seed" $(arms "$part") & jobs+=($!) ;;
    esac
  done
done
wait "${jobs[@]}"
kill "$packer"
names="none none_ssim l1 l1_ssim bands whole_l1 whole_bands low_light toolbox gpu8 gpu24 none8 none16 none24 gpu_toolbox"
jobs=()
for name in $names; do table "$name" $(arms "$name") $(arms "${name}_scratch") $(arms "${name}_more") & jobs+=($!); done
wait "${jobs[@]}"
for name in $names; do [ ! -f "$work/$name/table.txt" ] || { echo "== $name"; cat "$work/$name/table.txt"; }; done
pack
rm -rf "$work"
ls -l "$file"
