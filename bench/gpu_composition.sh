#!/usr/bin/env bash
# Two picks on two rules: the tables on one GPU, then every method at every budget of calls, five seeds, on the CPUs.
#   bench/gpu_composition.sh OUT [PROCESSES]
# The test split is test-200 to test-599, which no earlier measurement has opened; it is asked once, after all training.
set -u
out=$1; jobs=${2:-8}; work=/tmp/composition; mkdir -p "$work"; export OMP_NUM_THREADS=1
for rule in codes hops; do
  python3 bench/selection_composition.py table $rule $work/$rule.npz train-0:1500 validation-0:100 test-200:600 &
done
wait
date -u +%T
for calls in 10000 2500 30000 150000; do
  for seed in 0 1 2 3 4; do
    for rule in codes hops; do
      for method in grpo reticl pairs singles hybrid; do
        [ $calls = 150000 ] && [ $method = hybrid -o $method = singles ] && continue # 15,000 singles are all there are
        echo $work/$rule.npz $method $calls $seed $work/$rule 600
      done
    done
  done
done | timeout 330 xargs -P "$jobs" -L1 python3 bench/selection_composition.py train >"$work/train.log" 2>&1
date -u +%T
for rule in codes hops; do
  python3 bench/selection_composition.py report $work/$rule.npz $work/$rule --test >"$out/$rule.txt" 2>&1 &
done
wait
tail -n 100 "$out"/*.txt
cp $work/codes/test.npz "$out/codes_test.npz"; cp $work/hops/test.npz "$out/hops_test.npz"
grep -h asked $work/train.log >"$out/asked.txt"
