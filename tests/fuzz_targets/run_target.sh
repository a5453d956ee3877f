#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs one target on its corpus: run_target.sh PROGRAM CORPUS [LIBFUZZER-OPTION...]
# COWRAID_FUZZ_SECONDS is how long, 60 without it. What it finds goes into a folder of its own, which stays,
# and is named, when the target fails.
set -uo pipefail

# Freed memory that is kept to find late uses counts towards the limit.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}quarantine_size_mb=64

program=$1
corpus=$2
shift 2
folder=$(mktemp -d)
mkdir "$folder/new"
# Inputs of the corpus are all kept: libraries are not instrumented, so that those of one kind look alike.
"$program" -keep_seed=1 -max_total_time="${COWRAID_FUZZ_SECONDS:-60}" -rss_limit_mb=512 -timeout=60 \
    -max_len=16384 -print_final_stats=1 \
    -artifact_prefix="$folder/" "$@" "$folder/new" "$corpus" 2>"$folder/log"
status=$?
if [ "$status" -ne 0 ]; then
    tail -n 200 "$folder/log" >&2
    echo "the input that failed is in $folder; exit code $status" >&2
    exit 1  # libFuzzer's own 77 means "skipped" to Meson
fi
grep -E 'cov: ' "$folder/log" | tail -n 1
grep -E 'stat::(number_of_executed_units|average_exec_per_sec|peak_rss_mb)' "$folder/log"
rm -rf "$folder"
