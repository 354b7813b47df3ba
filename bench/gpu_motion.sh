#!/usr/bin/env bash
# Text to motion at full size, 263 x 196 x 50, measured on held-out captions: supervised on one GPU, then GRPO with LoRA in
# three seeds beside each other. (The reduced size: motion_grid.sh.)
#   bash bench/gpu_motion.sh [OUT] [SECONDS]      9 minutes on one GPU
# CUDA_VISIBLE_DEVICES=2,3: the GPUs that seeds are dealt over; CORES=44-51 (default: all); SEEDS="0 1 2"; DEVICE=cuda;
# SUPERVISED_SECONDS=80; KL_EVERY=16 steps; MEASURING=65: seconds kept for what follows training; FLAGS: further settings of
# the GRPO recipe. Needs torch, peft, diffusers and the package's other imports. Leaves OUT/motion.tar.gz:
# full/summary_*.json, logs' ends, metrics and pictures of each seed.
. "$(dirname "$0")/motion_env.sh"
until=$(($(date +%s) + seconds - ${MEASURING:-65})) # measuring takes a minute afterwards
full="$work/motion/full"
export XDG_CACHE_HOME="$work/cache"
mkdir -p "$full"
IFS=, read -ra gpus <<< "${CUDA_VISIBLE_DEVICES:-0}"
place=0
on_gpu() { # LOG ARGUMENTS...
  log="$full/$1"
  shift
  CUDA_VISIBLE_DEVICES="${gpus[$((place % ${#gpus[@]}))]}" taskset -c "${CORES:-0-$(($(nproc) - 1))}" python bench/motion.py \
    --supervised recipes/motion/full_supervised.toml --grpo recipes/motion/full_grpo.toml --device "${DEVICE:-cuda}" --out "$full" \
    --task.path "$data" "$@" > "$log" 2>&1 &
}
on_gpu supervised.log --seeds 0 --supervised-seconds "${SUPERVISED_SECONDS:-80}"
for seed in ${SEEDS:-0 1 2}; do
  on_gpu "seed_$seed.log" --weights "$full/supervised" --wait --first-seed "$seed" --seeds 1 --until "$until" \
    --kl-every "${KL_EVERY:-16}" ${FLAGS:-}
  place=$((place + 1))
done
wait
cd "$full"
rm -rf ./*/checkpoints ./*/samples ./*/evaluations
for log in *.log; do tail -c 4000 "$log" > "$log.end" && mv "$log.end" "$log"; done
find . -path './seed_[!0]*' -name '*.gif' -delete
find . -name 'motion_0[2-9].gif' -delete
cd - > /dev/null
tar -czf "$out/motion.tar.gz" -C "$work" motion
tail -qn 2 "$full"/*.log | cut -c 1-200
rm -rf "$work"
