#!/usr/bin/env bash
# Text to motion at both sizes in about 7 minutes, measured on held-out captions: 263 x 196 x 50 on one GPU (supervised,
# then GRPO with LoRA in three seeds beside each other) and, on CPU cores of one process and one thread each, 47 x 40 x 20 in
# three seeds, with two other settings in three seeds each for comparison.
#   bash bench/gpu_motion.sh [OUT] [SECONDS]
# CUDA_VISIBLE_DEVICES chooses the GPU, CORES=16-24 the nine cores of the reduced size, FULL_CORES=29-31 those of the full
# one; PARTS="full small" which of the two are run; START=FOLDER a trained run of recipes/motion/supervised.toml (else it is
# trained first). Needs torch, peft, diffusers and the package's other imports. Leaves
# OUT/motion.tar.gz: {full,small,matching_alone,half_rate}/summary_*.json, logs' ends, metrics and pictures of each seed.
. "$(dirname "$0")/motion_env.sh"
cores="${CORES:-16-24}"
parts="${PARTS:-full small}"
until=$(($(date +%s) + seconds - 35)) # measuring afterwards takes half a minute
mkdir -p "$work/motion"

core() { echo $((${cores%-*} + $1 % (${cores#*-} - ${cores%-*} + 1))); }

full() {
  export XDG_CACHE_HOME="$work/cache-full"
  mkdir -p "$work/motion/full"
  common=(taskset -c "${FULL_CORES:-29-31}" python bench/motion.py --supervised recipes/motion/full_supervised.toml
          --grpo recipes/motion/full_grpo.toml --device cuda --out "$work/motion/full" --task.data "$data")
  "${common[@]}" --seeds 0 --supervised-seconds 80 > "$work/motion/full/supervised.log" 2>&1 &
  for seed in 0 1 2; do
    "${common[@]}" --weights "$work/motion/full/supervised" --wait --first-seed "$seed" --seeds 1 --until "$until" \
      > "$work/motion/full/seed_$seed.log" 2>&1 &
  done
  wait
}

seeds() { # NAME FIRST_CORE FLAGS...: three seeds of the reduced size
  name="$1" place="$2"
  shift 2
  mkdir -p "$work/motion/$name"
  for seed in 0 1 2; do
    taskset -c "$(core $((place + seed)))" python bench/motion.py --supervised recipes/motion/supervised.toml \
      --grpo recipes/motion/grpo.toml --weights "$start" --first-seed "$seed" --seeds 1 --until "$until" \
      --out "$work/motion/$name" --task.data "$data" "$@" > "$work/motion/$name/seed_$seed.log" 2>&1 &
  done
}

small() {
  export XDG_CACHE_HOME="$work/cache-small" CUDA_VISIBLE_DEVICES=""
  start="${START:-}"
  if [ -z "$start" ]; then
    mkdir -p "$work/motion/small"
    taskset -c "$(core 0)" python bench/motion.py --supervised recipes/motion/supervised.toml \
      --grpo recipes/motion/grpo.toml --out "$work/motion/small" --task.data "$data" --seeds 0 \
      --supervised-seconds $((seconds / 4)) > "$work/motion/small/supervised.log" 2>&1
    start="$work/motion/small/supervised"
  fi
  seeds small 0
  seeds matching_alone 3 --task.skating 0 --task.floor 0 --task.jerk 0 --task.limits 0
  seeds half_rate 6 --optimizer.learning-rate '{ kind = "cosine", start = 3e-4, end = 0.0, warmup = 5 }'
  wait
}

for part in $parts; do
  "$part" &
done
wait
cd "$work/motion"
rm -rf ./*/*/checkpoints ./*/*/samples ./*/*/evaluations ./matching_alone/*/pictures ./half_rate/*/pictures
find . -name '*.log' | while read -r log; do tail -c 4000 "$log" > "$log.end" && mv "$log.end" "$log"; done
find . -path '*/seed_[12]/*' -name '*.gif' -delete
find . -path './full/*' -name 'motion_0[2-9].gif' -delete
cd - > /dev/null
tar -czf "$out/motion.tar.gz" -C "$work" motion
tail -qn 2 "$work"/motion/*/*.log | cut -c 1-200
rm -rf "$work"
