# Sourced by gpu_motion.sh and motion_grid.sh with their arguments [OUT] [SECONDS]: where results go, a work folder, and the
# clips (1.2 MiB, python scripts/fetch_motion.py FOLDER), looked for in $MOTION_DATA, .carry/motion-data, the user's cache.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out="${1:-${OUT:-runs}}" seconds="${2:-420}"
data="${MOTION_DATA:-.carry/motion-data}"
[ -d "$data" ] || data="${XDG_CACHE_HOME:-$HOME/.cache}/anygrpo/motion"
work="$(mktemp -d)"
mkdir -p "$out"
export PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
