#!/usr/bin/env bash
# Does a choice of experts by GRPO beat its rivals for the same time on photographs that nobody tuned on?
#   python scripts/photographs.py fetch --to data/photographs           # once; needs apt
#   bash bench/gpu_photographs.sh train OUT 300                         # seconds an arm: 12 processes, a core each; validation
#   python scripts/photographs.py open --to data/photographs --weights OUT/*/seed*/scratch_*/network.pt     # once
#   bash bench/gpu_photographs.sh test OUT                              # the sealed photographs, tables
# Arms, each from nothing for the same time (CPU time of a process on a core of its own; GPU: wall time beside two others):
#   fixed   one expert, supervised: what a network without gates is
#   mean    a mixture of all experts, supervised, with its gradient; used with one expert
#   drawn   experts drawn, supervised
#   ours    drawn, then the best of the draws supervised (experts part), GRPO on the router, then supervision of what it draws
# oracle: the best expert for each picture, by its reward. CPU: width 12. GPU=1 adds width 32 on a GPU, three processes more.
set -uo pipefail
cd "$(dirname "$0")/.."
what="$1" out="$2" seconds="${3:-300}"
seeds="${SEEDS:-0 1 2}" python="${PYTHON:-python}" data="${PICTURES:-data/photographs}"
export PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
set -f
arms=(scratch_fixed=supervised/mean@experts=1 scratch_mean=supervised/mean scratch_drawn=supervised/sampled
  "scratch_ours=${OURS:-supervised/sampled:.25+supervised/best:.3+grpo:.2+supervised/sampled@sharpness=4:.25}")
all="--network experts --pictures $data --patch 64 --crops 3 --w-psnr .5 --rate 3e-3 --further-rate 1e-3 --taught-of 6
  --grpo-patch 96 --grpo-rate 2e-2 --entropy .3 --train router.* --measure greedy --seconds 0"
cpu="$all --width ${WIDTH:-12} --prompts 8 --grpo-prompts 8 --probe 8 --warm $seconds"
gpu="$all --width ${GPU_WIDTH:-32} --prompts 32 --grpo-prompts 16 --probe 30 --rows 256 --device ${DEVICE:-cuda}
  --warm ${GPU_SECONDS:-75}"
more="" ; [ "$what" = train ] || more="--test-on test"
mkdir -p "$out/cpu" "$out/gpu"
core=0 jobs=()
for seed in $seeds; do
  for arm in "${arms[@]}"; do
    taskset -c "$((core++ % $(nproc)))" "$python" bench/restoration.py $cpu $more --out "$out/cpu" --only "$seed" \
      --arms "$arm" > "$out/cpu/$what-$seed-${arm%%=*}.txt" 2>&1 & jobs+=($!)
  done
done
if [ "${GPU:-0}" = 1 ]; then
  for seed in $seeds; do
    taskset -c "$((core++ % $(nproc)))" "$python" bench/restoration.py $gpu $more --out "$out/gpu" --only "$seed" \
      --arms "${arms[@]}" > "$out/gpu/$what-$seed.txt" 2>&1 & jobs+=($!)
  done
fi
wait "${jobs[@]}"
for size in cpu gpu; do
  [ "$size" = cpu ] || [ "${GPU:-0}" = 1 ] || continue
  "$python" bench/restoration.py ${!size} $more --device cpu --out "$out/$size" --only $seeds --pieces 0 --arms "${arms[@]}" \
    > "$out/$size/table-$what.txt" 2>&1
  echo "== $size"; cat "$out/$size/table-$what.txt"; grep -hs " steps in " "$out/$size"/*.txt
done
set +f
rm -rf "$out"/*/seed*/*/probe "$out"/*/seed*/*/run "$out"/*/seed*/*/part*/probe "$out"/*/seed*/*/part*/run
