#!/bin/sh
# Runs a fuzzer briefly: first every seed, then changes of them. Nothing is written to the seeds' folder; an input that fails
# stays in the current folder.
#   run.sh FUZZER SEEDS
set -eu

fuzzer=$1
seeds=$2
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT

if [ ! -d "$seeds" ]; then
    seeds=$found
fi
"$fuzzer" -runs=0 "$seeds"
"$fuzzer" -runs=20000 -max_total_time=10 -seed=1 -max_len=4096 "$found" "$seeds"
