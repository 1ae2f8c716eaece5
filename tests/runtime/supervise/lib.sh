# lib.sh - what the tests of supervised runs share: the supervisor's account, and waiting for steps. Sourced after
# train/lib.sh; the run is run/, the supervisor's process in $supervisor.

# Steps of any run whose number of steps nobody knows beforehand: none depends on how many there will be.
steady=(--set train.steps=1000000 --set optimizer.schedule=constant --set train.eval_every=0 --set checkpoint.every_steps=20)
wait_limit=${WAIT_LIMIT:-180} # seconds: against a hang, no measure of speed

# account KEY: of all launches, in order; "-" for one that has none yet
account() {
    python3 -c 'import json, sys
print(*[launch.get(sys.argv[1], "-") for launch in json.load(open("run/supervise.json"))["history"]])' "$1" 2>/dev/null || true
}
launches() {
    account id | wc -w
}
steps_done() { # lines of steps in the log, those done twice counted twice
    if [ -e run/log.jsonl ]; then
        grep -c '"kind":"step"' run/log.jsonl || true
    else
        echo 0
    fi
}
# await WHAT COMMAND...: until it succeeds
await() {
    local what=$1 began=$SECONDS
    shift
    until "$@"; do
        [ $((SECONDS - began)) -lt "$wait_limit" ] || fail "$what never came: launches on $(account ranks) ranks ended with $(account status)"
        [ -z "${supervisor:-}" ] || kill -0 "$supervisor" 2>/dev/null || fail "$what: the supervisor is gone"
        sleep 0.05
    done
}
has_launch() { # K, counted from 1
    [ "$(launches)" -ge "$1" ]
}
runs_on() { # RANKS: the newest launch
    [[ " $(account ranks)" == *" $1" ]]
}
has_steps() { # N
    [ "$(steps_done)" -gt "$1" ]
}
some_steps() {
    await "steps" has_steps $(($(steps_done) + 10))
}
# same_as_undisturbed: the newest checkpoint, against a run of one process up to there
same_as_undisturbed() {
    local stopped
    stopped=$(cat run/ckpt/LATEST)
    ranks 0 config.yaml --run-dir reference "${steady[@]}" --set train.steps=$((10#${stopped#step-})) || fail "the reference run"
    [ "$(digest run)" = "$(digest reference)" ] || fail "$stopped: digests differ"
    echo "equal at $stopped"
}
