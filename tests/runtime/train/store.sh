# store.sh - the tests' object store for whole runs: an S3 server that checks signatures and has faults on demand.
# Sourced after lib.sh with the path of tests/io/store_server.py in $server_script.
export TERN_STORE_STALL_SECONDS=1 TERN_STORE_PART_BYTES=100K
export AWS_ACCESS_KEY_ID=tern AWS_SECRET_ACCESS_KEY=secret AWS_EC2_METADATA_DISABLED=true
unset AWS_PROFILE AWS_SESSION_TOKEN AWS_REGION AWS_DEFAULT_REGION HTTP_PROXY http_proxy

# An empty one; the one before it, if any, ends.
start_store() {
    stop_store
    rm -f hold port
    mkfifo hold
    python3 "$server_script" --port-file port <hold >/dev/null &
    server=$!
    exec 9>hold
    for _ in $(seq 200); do [ -s port ] && break; sleep 0.05; done
    [ -s port ] || fail "the store did not start"
    base=http://127.0.0.1:$(cat port)
    export AWS_ENDPOINT_URL=$base
}
server=
stop_store() {
    [ -n "$server" ] || return 0
    exec 9>&-
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
}
end_store() {
    stop_store
    cleanup
}
trap end_store EXIT

control() { # JSON
    python3 -c 'import sys, urllib.request as u; u.urlopen(u.Request(sys.argv[1] + "/_control", sys.argv[2].encode(), method="POST"))' "$base" "$1"
}
ask() { # PATH
    python3 -c 'import sys, urllib.request as u; sys.stdout.write(u.urlopen(sys.argv[1]).read().decode())' "$base$1"
}
keys() { ask /_state | python3 -c 'import json, sys; [print(k) for k in json.load(sys.stdin)["objects"]]'; }
# What is in the bucket is checkpoints, whose they are, and nothing else: every step has a manifest, no upload is unfinished.
tidy() {
    ask /_state | python3 -c '
import json, sys
state = json.load(sys.stdin)
steps = {}
for key in state["objects"]:
    if key.rpartition("/")[2] == "id": continue
    steps.setdefault(key.rpartition("/")[0], []).append(key.rpartition("/")[2])
bad = [s for s, names in steps.items() if "MANIFEST.json" not in names] + state["uploads"]
sys.exit(f"leftovers: {bad}" if bad else 0)' || fail "$1"
}

