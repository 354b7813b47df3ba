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
common="--seeds 1 --oracles ${ORACLES:-0} --picture-size ${SIZE:-128} --crops ${CROPS:-32}"
rates="--sites */rate --train *.rate.*"
three="--arms supervised/mean grpo mixed=grpo:.5+supervised/mean:.5"
short="--warm $(part .28) --seconds $(part .13)"
tool="--network toolbox --width 16 --group 8 --warm $(part .1) --seconds $(part .22) --warm-gates mean --rate 5e-3"

settings=(
  "base       $rates $short --concentration 4 $three"
  "rivals     $rates $short --concentration 4 --arms scratch supervised/sampled alternated=grpo:.4+supervised/mean:.4+grpo:.2"
  "bands      $rates $short --concentration 4 --skip bands $three"
  "wide       $rates $short --concentration 1.5 $three"
  "warm_mean  $rates $short --concentration 4 --warm-gates mean $three"
  "ssim       $rates $short --concentration 4 --loss l1=1,ssim=0.2 $three"
  "width16    $rates $short --concentration 4 --width 16 $three"
  "converged  $rates --warm $(part .5) --seconds $(part .08) --concentration 4 $three"
  "groups     $rates $short --concentration 4 --grpo-prompts 8 --group 16 --grpo-rate 2e-2 $three"
  "soft       --window soft $short --warm-gates mean --arms supervised/mean joint"
  "toolbox    $tool --grpo-rate 5e-3 --arms supervised/mean grpo"
  "toolbox_b  $tool --grpo-rate 1e-2 --grpo-prompts 16 --group 16 --rows 256 --entropy 0.003 --arms supervised/mean grpo"
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
  gpu="--device cuda --width 32 --patch 64 --picture-size 256 --prompts 32 --grpo-prompts 32 --group 8 --rows 256 --rate 2e-3"
  run "$cores" gpu $rates $gpu --concentration 4 --warm "$(part .28)" --seconds "$(part .12)" $three &
fi
wait
for setting in "${settings[@]}" gpu; do
  name="${setting%% *}"
  [ -f "$out/restoration_grid/$name.json" ] && continue # else: what was measured of a setting that ran out of time
  set +f; [ -d "$work/$name" ] || continue
  for arm in "$work/$name"/seed0/*; do
    piece="$arm/result.json"
    [ -f "$piece" ] && cp "$piece" "$out/restoration_grid/$name.$(basename "$(dirname "$piece")").json"
  done
  cp "$work/$name.txt" "$out/restoration_grid/" 2> /dev/null
done
tar -C "$out" -czf "$out/restoration_grid.tar.gz" restoration_grid && rm -rf "$out/restoration_grid"
[ -n "${WORK:-}" ] || rm -rf "$work"
ls -l "$out/restoration_grid.tar.gz"
