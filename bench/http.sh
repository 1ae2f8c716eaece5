#!/bin/bash
# http.sh - the HTTP server alone, without a model: requests a second, what 2,000 connections that trickle a byte a second take
# from them (interleaved, a ratio), what idle connections and streams of events cost.
#
#   bench/http.sh [BUILD_FOLDER [ROUNDS [SECONDS]]]     (default: build/default 3 4)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${1:-$root/build/default}
rounds=${2:-3}
seconds=${3:-4}
cmake --build "$build" --target bench_http_serve bench_http_load >/dev/null
coproc SERVER { exec "$build/bin/bench_http_serve" 0 200; }
server=$SERVER_PID
trap 'kill "$server" 2>/dev/null || true' EXIT
read -r port <&"${SERVER[0]}"
load() { "$build/bin/bench_http_load" "$port" "$server" "$@"; }

echo "idle:    $(load idle 2000 4)"
for _ in $(seq "$rounds"); do
    alone=$(load light 0 "$seconds")
    beside=$(load trickle 2000 "$seconds")
    echo "alone:   $alone"
    echo "beside 2,000 that trickle: $beside"
    printf '%s\n' "$beside" "$alone" | awk 'NR == 1 {b = $1} NR == 2 {printf "  %.1f %% of the rate alone\n", 100 * b / $1}'
done
for count in 16 256 1000; do
    echo "$(load streams $count "$seconds") (200 a second each)"
done
