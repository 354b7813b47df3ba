#!/usr/bin/env bash
# Two GPUs against one on the same total work (adapters, full weights, FSDP2); see gpu_parallel.py.
#   bench/gpu_parallel.sh OUT
set -eu
export PYTHONPATH="$(cd "$(dirname "$0")/.." && pwd)/src${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
python3 "$(dirname "$0")/gpu_parallel.py" /tmp/gpu_parallel | tee "$1/gpu_parallel.jsonl"
