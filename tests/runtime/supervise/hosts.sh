#!/bin/bash
# hosts.sh - tern supervise and mpirun over ssh on four machines: cables pulled in the middle of a step, one after the other
# put back: 4 hosts, 2, 3, 4; the ranks of a dead host come back to life and do no harm; the digests are those of a run that
# nobody disturbed.
. "$(dirname "$0")/../train/lib.sh"
. "$(dirname "$0")/hosts_lib.sh"
need_hosts mpirun
trap 'free_hosts; cleanup' EXIT
export TERN_THREADS=1
unset TERN_MEM_FREEZE
make_data
config llama fp32 | sed 's/every_steps: 7/every_steps: 25/' >config.yaml
steady=(--set optimizer.schedule=constant --set train.eval_every=0) # no step depends on how many there will be
make_hosts 4 pid
printf 'h%d slots=1\n' 1 2 3 4 >hostfile

# How many seconds may pass from a cut to the first step with the others: two probes and their 10 s each, the ends of the
# launch before and the start of the next. For the log, and against a hang; not a measure of speed.
wait_limit=120

history() { # the ranks of all launches, in order
    python3 -c 'import json
print(*[launch["ranks"] for launch in json.load(open("run/supervise.json"))["history"]])' 2>/dev/null || true
}
steps_done() {
    [ ! -e run/log.jsonl ] || grep -c '"kind":"step"' run/log.jsonl || true
}
# trains_on RANKS HISTORY: until a launch of so many ranks has done ten steps and is the newest
trains_on() {
    local began=$SECONDS start
    until [[ "$(history)" == *"$1" ]]; do
        [ $((SECONDS - began)) -lt "$wait_limit" ] || fail "no launch on $1 ranks, but $(history)"
        kill -0 "$supervisor" 2>/dev/null || fail "the supervisor is gone"
        sleep 0.1
    done
    start=$(steps_done)
    until [ "$(steps_done)" -gt $((${start:-0} + 10)) ] && [[ "$(history)" == *"$1" ]]; do
        [ $((SECONDS - began)) -lt "$wait_limit" ] || fail "no steps on $1 ranks: $(history)"
        kill -0 "$supervisor" 2>/dev/null || fail "the supervisor is gone"
        sleep 0.1
    done
    echo "ok: trains on $1 ranks, $((SECONDS - began)) s later (launches on $(history))"
}

command=(mpirun -np 4 --map-by node --bind-to none --hostfile "$WORK/hostfile"
    --mca plm rsh --mca plm_rsh_args "-F $WORK/hosts.d/ssh_config"
    --mca oob_tcp_if_include 10.77.0.0/24 --mca btl_tcp_if_include 10.77.0.0/24 --mca btl self,vader,tcp --mca pml ob1
    -x TERN_THREADS -x TERN_COMM_TIMEOUT
    "$TERN" train config.yaml --run-dir run --set train.steps=1000000 "${steady[@]}")
in_host h1 "$TERN" supervise --probe-seconds 1 -- "${command[@]}" >last.log 2>&1 &
supervisor=$!
trains_on 4
unplug h3
unplug h4
trains_on 2
plug h3
trains_on 3
plug h4
trains_on 4
# the supervisor itself, by the number that it has in its own account
in_host h1 kill -TERM "$(python3 -c 'import json; print(json.load(open("run/supervise.json"))["pid"])')"
code=0
wait "$supervisor" || code=$?
[ "$code" = 33 ] || fail "exit code $code, expected 33"
[ "$(state run)" = reclaimed ] || fail "the launch record says $(state run)"
for h in h1 h2 h3 h4; do
    ! in_host "$h" pgrep -x tern >/dev/null || fail "processes are left on $h"
done
stopped=$(cat run/ckpt/LATEST)
ranks 0 config.yaml --run-dir reference --set train.steps=$((10#${stopped#step-})) "${steady[@]}" || fail "the reference run"
[ "$(digest run)" = "$(digest reference)" ] || fail "$stopped: digests differ"
grep "tern: launch" last.log
echo "equal at $stopped: launches on $(history) ranks"
