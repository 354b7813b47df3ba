#!/usr/bin/env bash
# Denoising on GPUs, in SECONDS (555): three starts of motion at full size, each supervised until validation stops rising,
# then GRPO and, for the same seconds, supervision (motion_goal.py); speed beside the network's own passes, DDPO's and
# Flow-GRPO's loops (compare.py); the digits of recipes/diffusion in three seeds on CPU cores.
#   bash bench/gpu_denoise.sh [OUT] [SECONDS]
# Uses all GPUs it sees (or those of CUDA_VISIBLE_DEVICES); with one, speed is measured first. SEEDS="60 61 62";
# START_SECONDS, SPEED_SECONDS; FLAGS: further settings of the GRPO arm. Leaves OUT/denoise.tar.gz and prints the tables.
. "$(dirname "$0")/motion_env.sh"
began=$(date +%s)
until=$((began + seconds - 85))
export XDG_CACHE_HOME="$work/cache" PYTHONPATH="src:bench${PYTHONPATH:+:$PYTHONPATH}"
goal="$work/denoise"
mkdir -p "$goal"
IFS=, read -ra gpus <<< "${CUDA_VISIBLE_DEVICES:-$(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null | paste -sd, || true)}"
[ "${#gpus[@]}" -gt 0 ] || gpus=("")
if [ "${#gpus[@]}" = 1 ]; then start_seconds=120 speed_seconds=40; else start_seconds=170 speed_seconds=80; fi
last="${gpus[-1]}" place=0
speed() { # each pair of processes alone on the last GPU
  export CUDA_VISIBLE_DEVICES="$last"
  for what in "full-motion bare" "flow flow_grpo" "flow bare" "full-motion ddpo"; do
    read -r case peer <<< "$what"
    timeout -k 5 "${SPEED_SECONDS:-$speed_seconds}" python bench/compare.py diffusion --case "$case" --vs "$peer" --rounds 1 --steps 3 --no-gradient \
      --json >> "$goal/speed.json" 2>> "$goal/speed.log" || echo "$what did not end" >> "$goal/speed.log"
  done
}
learn() { # WHAT SEED UNTIL FLAGS...: one process on the next GPU
  CUDA_VISIBLE_DEVICES="${gpus[$((place % ${#gpus[@]}))]}" OMP_NUM_THREADS=2 python bench/motion_goal.py "$1" --seed "$2" --until "$3" \
    --device "${DEVICE:-cuda}" --out "$goal" --task.path "$data" "${@:4}" > "$goal/$1_$2.log" 2>&1 &
  place=$((place + 1))
}
digits() {
  for seed in 0 1 2; do
    CUDA_VISIBLE_DEVICES="" timeout -k 5 $((seconds - 60)) python -m anygrpo train recipes/diffusion/digits.toml --seed "$seed" \
      --folder "$goal/digits_$seed" > "$goal/digits_$seed.log" 2>&1 &
  done
}
digits
if [ "${#gpus[@]}" = 1 ]; then (speed); else speed & fi
for seed in ${SEEDS:-60 61 62}; do learn start "$seed" $(($(date +%s) + ${START_SECONDS:-$start_seconds})); done
[ "${#gpus[@]}" = 1 ] || place=0
for seed in ${SEEDS:-60 61 62}; do
  learn grpo "$seed" "$until" ${FLAGS:-}
  learn supervised "$seed" "$until"
done
while [ -n "$(jobs -rp)" ] && [ "$(date +%s)" -lt $((began + seconds - 12)) ]; do sleep 1; done
kill $(jobs -rp) 2>/dev/null || true # what still runs is ended in time for the results to leave
python bench/motion_goal.py table --out "$goal" 2>&1 | tee "$goal/table.md"
cat "$goal/speed.json" 2>/dev/null || true
for seed in 0 1 2; do
  cp "$goal/digits_$seed/metrics.jsonl" "$goal/digits_$seed.jsonl" 2>/dev/null || true
  cp "$goal/digits_$seed/pictures/before_above_after.png" "$goal/digits_$seed.png" 2>/dev/null || true
done
rm -rf "$goal"/digits_?/ "$goal"/seed_*/{start,training,grpo,supervised} "$goal"/seed_*/pictures/motion_0[3-9]*
for log in "$goal"/*.log; do tail -c 4000 "$log" > "$log.end" && mv "$log.end" "$log"; done
tar -czf "$out/denoise.tar.gz" -C "$work" denoise
tail -qn 3 "$goal"/*.log | cut -c 1-300
rm -rf "$work"
