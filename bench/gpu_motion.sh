#!/usr/bin/env bash
# Text to motion at both sizes in 8 minutes: 263 x 196 x 50 on one GPU (supervised, then GRPO with LoRA in three seeds, one
# after the other) and, beside it on four CPU cores, 47 x 40 x 20 in three seeds; measured on held-out captions.
#   bash bench/gpu_motion.sh [OUT] [SECONDS]
# CUDA_VISIBLE_DEVICES chooses the GPU, CORES=16-19 four cores for the reduced size and FULL_CORES=20-23 those of the GPU's
# process; PARTS="full small" which of the two are run. The clips (1.2 MiB, python scripts/fetch_motion.py FOLDER) are
# looked for in $MOTION_DATA, .carry/motion-data, then the user's cache. Needs torch, peft, diffusers and the package's
# other imports. Leaves OUT/motion.tar.gz: {full,small}/summary_*.json, logs' ends, metrics and pictures of each seed.
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:-${OUT:-runs}}"
seconds="${2:-480}"
data="${MOTION_DATA:-.carry/motion-data}"
[ -d "$data" ] || data="${XDG_CACHE_HOME:-$HOME/.cache}/anygrpo/motion"
cores="${CORES:-16-19}"
core() { echo $((${cores%-*} + $1 % (${cores#*-} - ${cores%-*} + 1))); }
parts="${PARTS:-full small}"
work="$(mktemp -d)"
mkdir -p "$out" "$work/motion/full" "$work/motion/small"
export PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1

# Imports, windows and matchers take about a minute at full size; 15 s a seed go into measuring.
full() {
  export XDG_CACHE_HOME="$work/cache-full" OMP_NUM_THREADS=4
  supervised=$(((seconds - 70) / 4))
  each=$(((seconds - 70 - supervised) / 3 - 15))
  taskset -c "${FULL_CORES:-20-23}" python bench/motion.py --supervised recipes/motion/full_supervised.toml \
    --grpo recipes/motion/full_grpo.toml --device cuda --seeds 3 --supervised-seconds "$supervised" \
    --seed-seconds "$each" --out "$work/motion/full" --task.data "$data" > "$work/motion/full/log.txt" 2>&1
}

small() {
  export XDG_CACHE_HOME="$work/cache-small" OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES=""
  common=(--supervised recipes/motion/supervised.toml --grpo recipes/motion/grpo.toml --out "$work/motion/small"
          --task.data "$data")
  supervised=$(((seconds - 60) / 4))
  taskset -c "$(core 0)" python bench/motion.py "${common[@]}" --seeds 0 --supervised-seconds "$supervised" \
    > "$work/motion/small/supervised.log" 2>&1
  for seed in 0 1 2; do
    taskset -c "$(core $((seed + 1)))" python bench/motion.py "${common[@]}" --weights "$work/motion/small/supervised" \
      --first-seed "$seed" --seeds 1 --seed-seconds "$((seconds - 60 - supervised - 30))" \
      > "$work/motion/small/seed_$seed.log" 2>&1 &
  done
  wait
}

for part in $parts; do
  "$part" &
done
wait
cd "$work/motion"
rm -rf ./*/*/checkpoints ./*/*/samples ./*/*/evaluations
find . -name '*.log' -o -name 'log.txt' | while read -r log; do tail -c 4000 "$log" > "$log.end" && mv "$log.end" "$log"; done
find . -path '*/seed_[12]/*' -name '*.gif' -delete
find ./full -name 'motion_0[2-9].gif' -delete
tail -n 3 ./*/*.log ./*/log.txt 2> /dev/null | cut -c 1-300 || true
cd - > /dev/null
tar -czf "$out/motion.tar.gz" -C "$work" motion
rm -rf "$work"
