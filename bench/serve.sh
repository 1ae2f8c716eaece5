#!/bin/bash
# serve.sh - load on `tern serve`, open loop: requests arrive by a Poisson process at given rates whatever the server does.
#
#   bench/serve.sh MODEL|URL [--rates 0.5x,0.8x,1x,2x] [--seconds 30] [--prompt-tokens 128] [--max-tokens 64]
#                  [--ttft-ms 1000] [--itl-ms 200] [--seed 1] [--json FILE] [--build FOLDER] [--serve "OPTIONS"]
#                  [--concurrency 16] [--check] [--trickle N] [--leave N]
#
# A rate is requests a second, or a multiple (2x) of what a closed loop of --concurrency requests reaches at first. Prints
# for each rate: requests done, refused (429) and failed, time to the first token and between tokens (percentiles, from when
# a request was due), tokens a second, and goodput: requests a second within --ttft-ms and, in the mean, --itl-ms.
# --check judges what README promises of overload: at the largest rate nothing fails but by 429 with Retry-After, memory
#   does not grow, TTFT's p99 is at most 3 times that of the rate nearest 0.8x, tokens a second at least 95 % of the best.
# --trickle N: at 0.8x again beside N connections that send one byte a second; --check: time a token within 10 %.
# --leave N: N requests whose clients leave at a random moment; --check: no block of the cache stays behind.
# MODEL starts a server of its own (from the release build unless --build names a folder with bin/tern); URL uses one.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ $# -eq 0 ] || [[ " $* " == *" --help "* ]]; then
    sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' "$0"
    [ $# -ne 0 ] && exit 0
    exit 2
fi
if [[ " $* " != *" --build"* && "$1" != http* ]]; then
    (cd "$root" && cmake --preset release && cmake --build --preset release --target tern) >/dev/null
    set -- "$@" --build "$root/build/release"
fi
exec python3 -B "$root/bench/serve.py" "$@"
