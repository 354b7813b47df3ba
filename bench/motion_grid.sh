#!/usr/bin/env bash
# Settings of the reduced-size motion run beside each other, one process and one thread each on its own CPU core.
#   bash bench/motion_grid.sh [OUT] [SECONDS]      CORES=16-27 (default) says which cores
#   SIZE=full: 263 x 196 x 50, the settings share one GPU. START=FOLDER: a trained supervised run, not trained again here;
#   else START_SECONDS says how long it is.
# The clips (1.2 MiB, python scripts/fetch_motion.py FOLDER) are looked for in $MOTION_DATA, .carry/motion-data, then the
# user's cache. Leaves OUT/motion_grid_SIZE.tar.gz: one JSON a setting, table.md, the logs' ends and the supervised weights.
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:-${OUT:-runs}}"
seconds="${2:-500}"
data="${MOTION_DATA:-.carry/motion-data}"
[ -d "$data" ] || data="${XDG_CACHE_HOME:-$HOME/.cache}/anygrpo/motion"
name="motion_grid_${SIZE:-small}"
work="$(mktemp -d)"
mkdir -p "$out" "$work/$name"
export PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}" XDG_CACHE_HOME="$work/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
status=0
timeout -k 20 $((seconds + 40)) python bench/motion_grid.py --out "$work/$name" --seconds "$seconds" \
  --cores "${CORES:-16-27}" --data "$data" --size "${SIZE:-small}" ${START:+--weights "$START"} \
  ${START_SECONDS:+--start-seconds "$START_SECONDS"} || status=$?
sleep 1; rm -rf "$work/$name/jobs" || true
for log in "$work/$name"/*.log; do tail -c 3000 "$log" > "$log.end" && rm "$log"; done
tar -czf "$out/$name.tar.gz" -C "$work" "$name"
rm -rf "$work" || true
exit "$status"
