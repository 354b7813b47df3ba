#!/usr/bin/env bash
# Text to motion on one GPU in about five minutes: at full size (263 x 196 x 50) supervised training, then GRPO with LoRA in
# three seeds, measured on held-out captions; beside it, on spare CPU cores (one each), the reduced size of
# recipes/motion/grpo.toml in three seeds.
#   bash bench/gpu_motion.sh [OUT]
# Needs torch, peft, diffusers, pydantic, numpy, pillow, safetensors, and the project's other imports that a run makes
# (accelerate comes with peft). The clips (1.2 MiB, python scripts/fetch_motion.py FOLDER) are looked for in $MOTION_DATA,
# runs/motion-data, then the user's cache. Writes OUT/{full,small}/summary_*.json (printed at the end, one line each) and
# OUT/*/seed_*/pictures.
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:-${OUT:-runs}/motion}"
data="${MOTION_DATA:-runs/motion-data}"
[ -d "$data" ] || data="${XDG_CACHE_HOME:-$HOME/.cache}/anygrpo/motion"
mkdir -p "$out/full" "$out/small"
export PYTHONPATH=src XDG_CACHE_HOME="$out/cache"

small() {
  export OMP_NUM_THREADS=1
  common=(--supervised recipes/motion/supervised.toml --grpo recipes/motion/grpo.toml --out "$out/small"
          --task.data "$data")
  python bench/motion.py "${common[@]}" --seeds 0 --supervised-seconds 110 > "$out/small/supervised.log" 2>&1
  for seed in 0 1 2; do
    python bench/motion.py "${common[@]}" --weights "$out/small/supervised" --first-seed "$seed" --seeds 1 \
      --seed-seconds 130 > "$out/small/seed_$seed.log" 2>&1 &
  done
  wait
}
small &
python bench/motion.py --supervised recipes/motion/full_supervised.toml --grpo recipes/motion/full_grpo.toml \
  --device cuda --seeds 3 --supervised-seconds 75 --seed-seconds 40 --out "$out/full" --task.data "$data" \
  > "$out/full/log.txt" 2>&1 || tail -n 20 "$out/full/log.txt"
wait
tail -qn 4 "$out"/small/*.log | cut -c 1-400
rm -rf "$out"/*/*/checkpoints "$out/cache"
python - "$out" <<'PYTHON'
import json, pathlib, sys

for file in sorted(pathlib.Path(sys.argv[1]).glob("*/summary_*.json")):
    print(json.dumps({"file": str(file), **json.loads(file.read_text())}))
PYTHON
