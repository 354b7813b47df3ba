#!/usr/bin/env bash
# Settings of the reduced-size motion run, three seeds each, one process each on its own CPU core (THREADS=2: on two).
#   bash bench/motion_grid.sh [OUT] [SECONDS]      CORES=16-27 (default) says which cores
#   START=FOLDER: a trained run of recipes/motion/supervised.toml; else it is trained first. SEEDS="10 11 12",
#   SETTINGS="recipe beta=10,jerk=0.1" (changes of the recipe, words in motion_grid.py), JOB_SECONDS=125: a job that has less
#   time left is not begun; FLAGS: of the recipe, for all (--task.held-out-split validation to choose among settings).
# Leaves OUT/motion_grid.tar.gz: one JSON and the log of a setting and seed (written as each ends), table.md, the logs' ends.
. "$(dirname "$0")/motion_env.sh"
mkdir -p "$work/motion_grid"
export XDG_CACHE_HOME="$work/cache" CUDA_VISIBLE_DEVICES=""
status=0
timeout -k 5 "$((seconds - 8))" python bench/motion_grid.py --out "$work/motion_grid" --seconds "$((seconds - 12))" \
  --cores "${CORES:-16-27}" --data "$data" ${START:+--weights "$START"} --seeds ${SEEDS:-10 11 12} \
  --job-seconds "${JOB_SECONDS:-125}" --threads "${THREADS:-1}" --settings ${SETTINGS:-recipe} ${FLAGS:-} || status=$?
[ "$status" = 0 ] || python bench/motion_grid.py --out "$work/motion_grid" --table || true
rm -rf "$work/motion_grid/jobs"
for log in "$work/motion_grid"/*.log; do tail -c 2000 "$log" > "$log.end" && rm "$log"; done
tar -czf "$out/motion_grid.tar.gz" -C "$work" motion_grid
rm -rf "$work"
exit "$status"
