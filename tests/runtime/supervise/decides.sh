#!/bin/bash
# decides.sh - tern supervise over a launcher and an ssh that do as they are told: every ending, every limit, signals,
# hangs, orphans, hosts that go and come back.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../train/lib.sh"
ln -s "$here/mpirun.sh" mpirun
ln -s "$here/ssh.sh" ssh
export PATH=$WORK:$PATH
supervisor=
stand_ins() {
    local process
    for process in /proc/[0-9]*; do
        if [ "$(readlink "$process/cwd")" = "$WORK" ] && [ "${process#/proc/}" != $$ ] && [ "${process#/proc/}" != "$BASHPID" ]; then
            echo "${process#/proc/}"
        fi
    done 2>/dev/null
}
cleanup_all() {
    local pid
    for pid in $(stand_ins); do
        kill -KILL "$pid" 2>/dev/null || true
    done
    cleanup
}
trap cleanup_all EXIT

plan() { # LINE...
    rm -rf run calls waiting hanging asked orphan down.* errands
    printf '%s\n' "$@" >plan
}
command=(mpirun -np 4 tern train config.yaml --run-dir run)
# expect_end CODE LAUNCHES SENTENCE OPTIONS...
expect_end() {
    local code=$1 launches=$2 sentence=$3 found=0
    shift 3
    timeout 60 "$TERN" supervise "$@" -- "${command[@]}" >last.log 2>&1 || found=$?
    [ "$found" = "$code" ] || fail "exit code $found, expected $code: $sentence"
    grep -q -- "$sentence" last.log || fail "no '$sentence'"
    [ "$(wc -l <calls)" = "$launches" ] || fail "$(wc -l <calls) launches, expected $launches: $sentence"
    [ "$(field '.launches')" = "$launches" ] && [ "$(field '.exit_code')" = "$code" ] || fail "supervise.json: $(cat run/supervise.json)"
    echo "ok: $sentence ($launches launches, exit code $code)"
}
field() { # PATH, as .history[0].verdict
    python3 -c 'import json, re, sys
value = json.load(open("run/supervise.json"))
for key, index in re.findall(r"\.(\w+)|\[(-?\d+)\]", sys.argv[1]):
    value = value[key] if key else value[int(index)]
print(str(value).lower() if isinstance(value, bool) else value)' "$1"
}
lives() { # PID: it is there, and no zombie that nobody waits for
    [[ "$(cat "/proc/$1/stat" 2>/dev/null)" == *") "[!Z]* ]]
}
start() { # OPTIONS...: in the background
    "$TERN" supervise "$@" -- "${command[@]}" >last.log 2>&1 &
    supervisor=$!
}
await() { # FILE: until it is there
    for _ in $(seq 600); do
        [ ! -e "$1" ] || return 0
        sleep 0.05
    done
    fail "$1 never came"
}
ended() { # CODE
    local found=0
    wait "$supervisor" || found=$?
    [ "$found" = "$1" ] || fail "exit code $found, expected $1"
}

# ---- endings ----
plan "reclaimed 5 205" "running 8 kill" "peer_lost 9 137" "reclaimed 12 1" "running 13 139" "finished 20 0"
expect_end 0 6 "all steps are done"
[ "$(field '.history[0].verdict') $(field '.history[1].verdict') $(field '.history[2].verdict') $(field '.history[3].verdict')" = \
    "reclaimed peer lost peer lost reclaimed" ] || fail "verdicts: $(cat run/supervise.json)"
[ "$(field '.history[1].status')" = 137 ] || fail "status of a killed launcher: $(field '.history[1].status')"
grep -q -- "-x TERN_LAUNCH_ID -np 4 tern train config.yaml" calls || fail "calls: $(cat calls)"
[ "$(grep -c "oob_tcp_keepalive_time 2" calls)" = 6 ] || fail "no keepalive: $(cat calls)"
[ "$(ls run/launches | wc -l)" = 6 ] || fail "launch records: $(ls run/launches)"
for status in 137 205 1; do
    plan "finished 20 $status"
    expect_end 0 1 "status $status, record 'finished'"
done
plan "failed 7 1"
expect_end 1 1 "the run failed"
grep -q "the last launch said: as planned" last.log || fail "no reason"
plan "failed 7 34"
expect_end 1 1 "the run failed"
plan "none 0 2"
expect_end 2 1 "is refused"
plan "none 0 0"
expect_end 1 1 "the run failed" # no success without a record
plan "none 0 255" "none 0 132" "finished 3 0"
expect_end 0 3 "all steps are done"

# ---- limits ----
plan "running 5 kill"
expect_end 1 3 "comes no further" --max-stalls 2 # the first came to step 5
[ "$(field '.stalls')" = 2 ] || fail "stalls: $(field '.stalls')"
plan "reclaimed 5 33" "reclaimed 6 33" "reclaimed 7 33"
expect_end 33 2 "as --max-restarts allows" --max-restarts 1
plan "peer_lost 5 34"
expect_end 34 1 "as --max-restarts allows" --max-restarts 0

plan "peer_lost 5 34" "reclaimed 9 33" "finished 20 0"
expect_end 33 2 "to be started again from outside" --end-on-reclaim
plan "finished 20 0"
code=0
TERN_FAULT=file.write@2:enospc timeout 20 "$TERN" supervise -- "${command[@]}" >last.log 2>&1 || code=$?
[ "$code" = 0 ] || fail "an account that cannot be written ended the run: $code"
grep -q "warning: cannot write .*supervise.json" last.log || fail "no word of the account"
echo "ok: no room for the account"

# ---- hangs ----
plan "finished 20 0 hang"
expect_end 0 1 "its launcher stays"
plan "running 5 0 hang" "finished 20 0"
expect_end 0 2 "nothing was logged for 1 s" --hang-seconds 1
! lives "$(cat hanging)" || fail "what hung is still there"

# ---- signals ----
for signal in TERM INT USR2; do
    plan "reclaimed 7 33 ask"
    set -m # so that a background process has SIGINT
    start
    set +m
    await waiting
    kill -$signal "$supervisor"
    ended 33
    [ "$(field '.state') $(wc -l <calls)" = "ended 1" ] || fail "after SIG$signal: $(cat run/supervise.json)"
    echo "ok: SIG$signal is passed on"
done
plan "reclaimed 7 1 deaf"
start
await waiting
kill -TERM "$supervisor"
ended 33
[ "$(cat asked)" -ge 3 ] || fail "asked $(cat asked) times"
echo "ok: asked again until it is heard"
plan "running 7 0 hang"
start --stop-seconds 0.5
await hanging
kill -TERM "$supervisor"
ended 34
grep -q "asked to stop, it did not within 0.5 s" last.log || fail "no word of the deadline"
echo "ok: its own deadline"
plan "running 5 kill" # between two launches
start
for _ in $(seq 600); do
    ! grep -q "starting again in 2 s" last.log 2>/dev/null || break
    sleep 0.05
done
kill -TERM "$supervisor"
ended 34
grep -q "asked to stop" last.log || fail "no word of why"
echo "ok: asked between two launches"

# ---- what a supervisor leaves when it is killed ----
plan "reclaimed 7 33 ask"
start
await waiting
kill -KILL "$supervisor"
wait "$supervisor" 2>/dev/null || true
for _ in $(seq 600); do
    ! grep -q reclaimed run/launches/*.json || break
    sleep 0.05
done
grep -q reclaimed run/launches/*.json || fail "a launch whose supervisor was killed goes on"
echo "ok: a launch whose supervisor was killed commits and ends"
plan "peer_lost 7 34 orphan" "finished 20 0"
expect_end 34 1 "as --max-restarts allows" --max-restarts 0
! lives "$(cat orphan)" || fail "an orphan is left at the end"
plan "running 7 kill orphan"
start --max-stalls 1000
await orphan
kill -KILL "$supervisor"
wait "$supervisor" 2>/dev/null || true
orphan=$(cat orphan)
echo "finished 20 0" >plan
rm -f calls
before=$(field '.launches')
timeout 60 "$TERN" supervise -- "${command[@]}" >last.log 2>&1 || fail "the second supervisor"
! lives "$orphan" || fail "an earlier supervisor's rank lives beside a new launch"
[ "$(field '.launches')" = $((before + 1)) ] || fail "launches: $before, then $(field '.launches')"
echo "ok: what an earlier supervisor left is ended first"

# ---- one supervisor a run; refusals ----
plan "reclaimed 7 33 ask"
start
await waiting
expect 1 "the run has a supervisor: .* is locked by pid" -- "$TERN" supervise -- "${command[@]}"
kill -TERM "$supervisor"
ended 33
expect 2 "found no command after '--'" -- "$TERN" supervise
expect 2 "nearest is" -- "$TERN" supervise --hostfil x -- "${command[@]}"
expect 2 "unknown option '-np'" -- "$TERN" supervise mpirun -np 2 tern train
expect 2 "give --run-dir DIR" -- "$TERN" supervise -- ./script
expect 2 "found a command without mpirun" -- "$TERN" supervise --hostfile hosts -- tern train c.yaml
expect 2 "cannot start 'nonesuch'" -- "$TERN" supervise -- nonesuch tern train c.yaml
expect 2 "expected a whole number" -- "$TERN" supervise --max-restarts x -- "${command[@]}"

# ---- hosts ----
printf 'h%d slots=1\n' 1 2 3 4 >hosts
on_hosts=(--hostfile hosts --shell "$WORK/ssh" --probe-seconds 0.2)
plan "reclaimed 5 33" "finished 20 0"
touch down.h3
expect_end 0 2 "1 of 4 hosts left out: h3 (does not answer)" "${on_hosts[@]}"
grep -q -- "--hostfile $WORK/run/supervise.hosts -np 3 tern" calls || grep -q -- "--hostfile $WORK/run/supervise.hosts .*-np 3" calls || fail "calls: $(cat calls)"
[ "$(cat run/supervise.hosts)" = "h1 slots=1
h2 slots=1
h4 slots=1" ] || fail "hosts: $(cat run/supervise.hosts)"
[ "$(field '.hosts[2].up') $(field '.hosts[3].up')" = "false true" ] || fail "$(cat run/supervise.json)"

plan "running 5 0 hang" "reclaimed 9 33 ask" "finished 20 0" # 4, then 3, then 4
start "${on_hosts[@]}"
await hanging
touch down.h2
await waiting
rm down.h2
ended 0
grep -q "host h2 does not answer and nothing goes on" last.log || fail "no word of h2"
grep -q "more hosts can take part" last.log || fail "no word of growing"
[ "$(field '.history[0].ranks') $(field '.history[1].ranks') $(field '.history[2].ranks')" = "4 3 4" ] || fail "$(cat run/supervise.json)"
echo "ok: 4 hosts, 3, 4"

plan "finished 20 0"
touch down.h1 down.h2
expect 34 "2 of 4 hosts answered within 0.5 s, expected at least 3" -- "$TERN" supervise "${on_hosts[@]}" --min-hosts 3 --wait-seconds 0.5 -- "${command[@]}"
[ ! -e calls ] || fail "started on too few hosts"
start "${on_hosts[@]}" --min-hosts 3
await run/supervise.json
rm down.h1
ended 0
echo "ok: waits for hosts"

# announced: a host that a cloud takes away is left out while it still answers, and used again once it was away
plan "reclaimed 5 33 leave:h2" "reclaimed 9 33 ask" "finished 20 0"
start "${on_hosts[@]}"
await waiting
grep -q "1 of 4 hosts left out: h2 (is being taken away)" last.log || fail "no word of h2"
[ "$(field '.history[1].ranks') $(field '.hosts[1].up')" = "3 false" ] || fail "$(cat run/supervise.json)"
touch down.h2
for _ in $(seq 600); do
    ! grep -q "host h2 is gone, as was announced" last.log || break
    sleep 0.05
done
rm down.h2
ended 0
[ "$(field '.history[2].ranks')" = 4 ] || fail "$(cat run/supervise.json)"
echo "ok: a host that was announced to go"
plan "reclaimed 5 33 leave:$(hostname)"
expect_end 33 1 "this machine is being taken away"
plan "reclaimed 5 33 leave:*"
expect_end 33 1 "this machine is being taken away" "${on_hosts[@]}"
plan "reclaimed 5 33 leave:nobody" "finished 20 0"
expect_end 0 2 "the list of hosts has no such name" "${on_hosts[@]}"

# names of hosts come from --host too; the list is read anew before each launch
plan "reclaimed 5 33" "finished 20 0"
command=(mpirun -np 2 --host h1,h2:2 tern train config.yaml --run-dir run)
touch down.h1
expect_end 0 2 "hosts left out" --shell "$WORK/ssh" --probe-seconds 0.2
grep -q -- "--host h2:2 tern" calls || fail "calls: $(cat calls)"
command=(mpirun -np 4 --hostfile hosts tern train config.yaml --run-dir run)
plan "reclaimed 5 33 ask" "finished 20 0"
echo "h1 slots=4" >hosts
start --shell "$WORK/ssh" --probe-seconds 0.2
await waiting
printf 'h1 slots=1\nh9 slots=2\n' >hosts
kill -USR2 "$(cat waiting)"
ended 0
[ "$(field '.history[0].ranks') $(field '.history[1].ranks')" = "4 3" ] || fail "$(cat run/supervise.json)"
expect 2 "hosts:2: found 'slots=no'" -- sh -c "printf 'a\nb slots=no\n' >hosts; exec '$TERN' supervise -- ${command[*]}"
[ -z "$(left_behind)" ] || fail "processes are left"
echo "decides: done"
