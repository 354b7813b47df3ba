#!/usr/bin/env bash
# Does a choice of experts by GRPO beat its rivals for the same time on photographs that nobody tuned on?
#   python scripts/photographs.py fetch --to data/photographs           # once; needs apt
#   bash bench/gpu_photographs.sh explore OUT 240      # settings: variants of one seed beside each other, on the validation set
#   bash bench/gpu_photographs.sh train OUT 240        # arms x seeds, a core each; seconds an arm; validation set
#   bash bench/gpu_photographs.sh test OUT 240         # opens the sealed photographs (once), measures what was trained
#   OPEN=1 bash bench/gpu_photographs.sh all OUT 240   # train, then test; without OPEN=1 the test set stays sealed
# Arms, each from nothing for the same time (CPU time of a process on a core of its own; GPU: wall time beside two others):
#   fixed   one expert, supervised: what a network without gates is
#   mean    a mixture of all experts, supervised, with its gradient; used with one expert
#   drawn   experts drawn, supervised
#   ours    drawn, then the best of the draws supervised (experts part), GRPO on the router, then supervision of what it draws
# MORE, GPU_MORE: further words for every arm alike of either size ("--patch 32 --prompts 32 --loss l1=1,ssim=0.2").
# oracle: the best expert for each picture, by its reward. CPU: width 12. GPU=1 adds width 32 on a GPU, three processes more.
set -uo pipefail
cd "$(dirname "$0")/.."
what="$1" out="$2" seconds="${3:-240}"
seeds="${SEEDS:-0 1 2}" python="${PYTHON:-python}" data="${PICTURES:-data/photographs}"
export PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
set -f
ours="supervised/sampled:.25+supervised/best:.3+grpo:.15+supervised/sampled@sharpness=4:.3"
arms=(scratch_fixed=supervised/mean@experts=1 scratch_mean=supervised/mean scratch_drawn=supervised/sampled
  "scratch_ours=${OURS:-$ours}")
all="--network experts --pictures $data --patch ${PATCH:-64} --crops 3 --w-psnr .5 --rate 3e-3 --further-rate 1e-3 --taught-of 6
  --grpo-patch 96 --grpo-rate 2e-2 --entropy .3 --train router.* --measure greedy --seconds 0"
cpu="$all --width ${WIDTH:-12} --prompts 8 --grpo-prompts 8 --probe 8 --warm $seconds ${MORE:-}"
gpu="$all --width ${GPU_WIDTH:-32} --prompts 32 --grpo-prompts 16 --probe 30 --rows 256 --device ${DEVICE:-cuda}
  --warm ${GPU_SECONDS:-55} ${GPU_MORE:-}"
core=0 jobs=()
start() { # words of a comparison, folder, log, arms ... : a process on the next core
  local words="$1" folder="$2" log="$3"
  shift 3
  mkdir -p "$folder"
  taskset -c "$((core++ % $(nproc)))" "$python" bench/restoration.py $words --out "$folder" --arms "$@" > "$folder/$log.txt" 2>&1 &
  jobs+=($!)
}
tables() { # size words more : of what was measured
  "$python" bench/restoration.py $2 $3 --device cpu --out "$out/$1" --only $seeds --pieces 0 --arms "${arms[@]}" \
    > "$out/$1/table${3##* }.txt" 2>&1
  echo "== $1"; cat "$out/$1/table${3##* }.txt"
}
measure() { # more words : every arm of every seed, side by side
  core=0 jobs=()
  for seed in $seeds; do
    for arm in "${arms[@]}"; do start "$cpu $1 --only $seed" "$out/cpu" "${1##* }$seed-${arm%%=*}" "$arm"; done
  done
  if [ "${GPU:-0}" = 1 ]; then
    for seed in $seeds; do start "$gpu $1 --only $seed" "$out/gpu" "${1##* }$seed" "${arms[@]}"; done
  fi
  wait "${jobs[@]}"
  tables cpu "$cpu" "$1"
  [ "${GPU:-0}" != 1 ] || tables gpu "$gpu" "$1"
}
if [ "$what" = explore ]; then
  while IFS='|' read -r name words arm; do
    [ -z "$name" ] || start "$cpu $words --only ${seeds%% *}" "$out/$name" log "scratch_${arm}"
  done < "${VARIANTS:?a file of lines NAME|further words|ARM=PLAN}"
  wait "${jobs[@]}"
fi
case "$what" in train | all) measure "" ;; esac
[ "$what" != all ] || [ "${OPEN:-0}" = 1 ] || { echo "trained; the test set stays sealed (OPEN=1 opens it)"; what=train; }
case "$what" in test | all)
  for seed in $seeds; do
    for arm in "${arms[@]}"; do
      for size in cpu $([ "${GPU:-0}" != 1 ] || echo gpu); do
        [ -e "$out/$size/seed$seed/${arm%%=*}/network.pt" ] || { echo "not trained: $size $seed $arm; not opened"; exit 1; }
      done
    done
  done
  set +f
  "$python" scripts/photographs.py open --to "$data" --weights "$out"/*/seed*/scratch_*/network.pt ${COMMIT:+--commit $COMMIT} || exit 1
  set -f
  cp "$data/opened.json" "$out"
  measure "--test-on test"
esac
grep -rhs --include "*.txt" " steps in " "$out"
find "$out" \( -name probe -o -name run -o -name "part[0-9]" \) -type d -prune -exec rm -rf {} +
