#!/usr/bin/env bash
# Which settings make GRPO on gates win? Seed 0 of about a dozen comparisons side by side, one process and one core each.
#   bash bench/restoration_grid.sh OUT SECONDS      # SECONDS: wall time of the whole, 460 or so
# CORES (default 4-15) are used, NAMES picks settings; with GRID_GPU=1 a thirteenth comparison runs on the visible GPU.
# Writes OUT/restoration_grid.tar.gz: per setting the quality of every arm on every held-out picture (json) and the log.
set -uo pipefail
cd "$(dirname "$0")/.."
out="$1" total="$2" cores="${CORES:-4-15}"
export PYTHONPATH=src OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
set -f # patterns below are for names of gates and parameters, not of files
python="${PYTHON:-python}"
work="${WORK:-$out/work}"
mkdir -p "$work" "$out/restoration_grid"

part() { awk -v s="$total" -v x="$1" 'BEGIN { printf "%.1f", s * x }'; }
common="--seeds 1 --oracles ${ORACLES:-0} --best-of 4 --picture-size ${SIZE:-128} --crops ${CROPS:-32}"
common+=" --loss l1=1,ssim=0.2 --concentration 4 --warm $(part .38) --seconds $(part .09)"
last="--sites level0/rate --train modulators.0.rate.*"
all="--sites */rate --train *.rate.*"
mixed="mixed=grpo:.5+supervised/mean:.5"

settings=(
  "base        $last --arms supervised/mean grpo $mixed centred=grpo@advantage=centred"
  "whole       $last --arms supervised/mean whole=grpo@grpo_patch=64@grpo_prompts=8 slow=grpo@grpo_rate=3e-3 wide=grpo@group=8"
  "all_rates   $all --arms supervised/mean grpo $mixed"
  "seed1       $last --only 1 --arms supervised/mean grpo $mixed"
  "scratch     $last --arms scratch"
  "scratch1    $last --only 1 --arms scratch"
  "width4      $last --width 4 --arms supervised/mean grpo $mixed"
  "bands       $last --skip bands --arms supervised/mean grpo $mixed"
  "bands_all   $all --skip bands --arms supervised/mean grpo $mixed"
  "patch48     $last --patch 48 --picture-size 96 --arms supervised/mean grpo $mixed"
  "warm_mean   $last --warm-gates mean --arms supervised/mean grpo $mixed"
  "toolbox     --network toolbox --width 16 --group 8 --warm-gates mean --warm $(part .1) --seconds $(part .3) --rate 5e-3
               --grpo-rate 1e-3 --arms supervised/mean grpo"
)
run() { # core setting...
  local core="$1" name="$2"
  shift 2
  timeout "${LIMIT:-$((total + 45))}" taskset -c "$core" "$python" bench/restoration.py $common "$@" --out "$work/$name" > "$work/$name.txt" 2>&1
  cp "$work/$name.txt" "$out/restoration_grid/$name.txt"
  cp "$work/$name/results.json" "$out/restoration_grid/$name.json" 2> /dev/null || cat "$work/$name.txt" | tail -3
}
read -r first last <<< "${cores/-/ }"
core="$first"
for setting in "${settings[@]}"; do
  [[ " ${NAMES:-${setting%% *}} " = *" ${setting%% *} "* ]] || continue
  run "$core" $setting &
  core=$((core < ${last:-$first} ? core + 1 : first))
done
if [ "${GRID_GPU:-0}" = 1 ]; then
  gpu="--device cuda --width 24 --patch 48 --picture-size 256 --prompts 48 --grpo-prompts 32 --group 8 --rows 512"
  run "$cores" gpu $last $gpu --warm "$(part .38)" --seconds "$(part .09)" --arms supervised/mean grpo $mixed &
fi
wait
for setting in "${settings[@]}" gpu; do
  name="${setting%% *}"
  [ -f "$out/restoration_grid/$name.json" ] && continue # else: what was measured of a setting that ran out of time
  set +f; [ -d "$work/$name" ] || continue
  for arm in "$work/$name"/seed*/*; do
    piece="$arm/result.json"
    [ -f "$piece" ] && cp "$piece" "$out/restoration_grid/$name.$(basename "$(dirname "$piece")").json"
  done
  cp "$work/$name.txt" "$out/restoration_grid/" 2> /dev/null
done
tar -C "$out" -czf "$out/restoration_grid.tar.gz" restoration_grid && rm -rf "$out/restoration_grid"
[ -n "${WORK:-}" ] || rm -rf "$work"
ls -l "$out/restoration_grid.tar.gz"
