#!/bin/bash
# memory.sh - snapshots in memory: runs that are killed go on from them on any number of ranks with the bits of a run that
# was not; from a peer's copy when a host's memory is gone, from disk when both are; never from another run's memory, a
# damaged one or an older launch's; and nothing stays when a run has ended.
. "${BASH_SOURCE[0]%/*}/lib.sh"
export TERN_THREADS=1 TERN_COMM_TIMEOUT=10
make_data
config llama bf16 >config.yaml
steps=48
often=(--set train.steps=$steps --set checkpoint.snapshot_every_steps=3 --set checkpoint.every_steps=0)
ranks 0 config.yaml --run-dir reference "${often[@]}" || fail "the reference run"
expected=$(digest reference)

blocks() { find "${1:-$TERN_SHM_DIR}" -name 'tern-*' | wc -l; }
# The step that the newest launch of a run went on from, and what from.
resumed() { grep '"kind":"resume"' "$1/log.jsonl" | tail -n 1 | sed 's/.*"step":\([0-9]*\),.*"source":"\([^"]*\)".*/\1 \2/' || true; }
nothing_stays() { [ "$(blocks)" = 0 ] || fail "$1: blocks stay: $(ls "$TERN_SHM_DIR")"; }
nothing_stays "after the reference"

# killed N FAULT: a run on N ranks that dies of a fault
killed() {
    local n=$1
    rm -rf run
    TERN_FAULT=$2 ranks "$n" config.yaml --run-dir run "${often[@]}" "${@:3}" && fail "no death of $2"
    [ "$(blocks)" -gt 0 ] || fail "$2 leaves no memory"
}
# The newest snapshot that the launches so far are known to have had on all ranks.
announced() { grep '"kind":"snapshot"' run/log.jsonl | tail -n 1 | sed 's/.*"step":\([0-9]*\),.*/\1/' || true; }
# from STEP SOURCE LEAST WHAT: the run went on from there, at this step, or, where the last snapshot was not sealed in time, at
# an older one that had been announced, or, where it had to wait for the one before, at one that was a little late
from() {
    local found most=$1
    found=$(resumed run)
    [ "$2" = disk ] || [ "$1" = "$3" ] || most=$(($1 + 2))
    [ "${found#* }" = "$2" ] && [ "${found%% *}" -le "$most" ] && [ "${found%% *}" -ge "$3" ] ||
        fail "$4: went on from '$found', expected '$1 $2' or an earlier snapshot down to step $3"
}
# goes_on N STEP SOURCE WHAT: resumed on N ranks, from there, with the right end
goes_on() {
    local least
    [ "$3" = disk ] && least=$2 || least=$(announced)
    ranks "$1" config.yaml --run-dir run "${often[@]}" || fail "$4: the resume failed"
    from "$2" "$3" "${least:-1}" "$4"
    [ "$(digest run)" = "$expected" ] || fail "$4: digests differ"
    nothing_stays "$4"
    echo "ok: $4"
}

for again in 4 3 1 8 0; do
    killed 4 "step.update@41#2:kill"
    goes_on "$again" 39 "shared memory" "a rank of 4 killed in step 41, gone on with $again"
done
killed 1 "step.backward@650:kill"
goes_on 2 39 "shared memory" "one rank killed, gone on with 2"
# At each moment of a snapshot: the one before is whole.
for point in memory.copy memory.seal; do
    killed 3 "$point@4#1:kill"
    goes_on 2 45 "shared memory" "killed at $point of the fourth snapshot"
done
# Twice: the second launch dies before it has a snapshot of its own, the third goes on from the first one's.
killed 4 "step.end@40#0:kill"
TERN_FAULT=step.end@1#1:kill ranks 2 config.yaml --run-dir run "${often[@]}" && fail "no second death"
goes_on 3 39 "shared memory" "killed again before its first snapshot"
killed 4 "step.end@10#0:kill"
TERN_FAULT=step.end@30#1:kill ranks 2 config.yaml --run-dir run "${often[@]}" && fail "no second death"
goes_on 4 45 "shared memory" "killed again after its own snapshots"
# A snapshot that fails costs itself only.
for fault in memory.copy@3#1:enospc memory.seal@3#1:eio; do
    killed 3 "$fault,step.end@40#0:kill"
    grep -q "a snapshot in memory failed" last.log || fail "$fault is not said"
    goes_on 3 39 "shared memory" "$fault"
done
killed 2 "step.end@40#0:kill"
TERN_FAULT=memory.restore@1#1:eio ranks 2 config.yaml --run-dir run "${often[@]}" || fail "memory.restore:eio"
grep -q "going on without it" last.log || fail "memory.restore:eio is not said"
[ "$(digest run)" = "$expected" ] || fail "memory.restore:eio: digests differ"
nothing_stays "memory.restore:eio"
echo "ok: a snapshot that can't be read"

# Disk or memory, whichever is newer.
on_disk() { # the newest committed step
    local newest
    newest=$(ls run/ckpt/step-*/MANIFEST.json | sort | tail -n 1)
    newest=${newest%/*}
    echo $((10#${newest##*-}))
}
killed 2 "step.end@40#0:kill"
TERN_FAULT=ckpt.latest@1:kill ranks 2 config.yaml --run-dir run "${often[@]}" \
    --set checkpoint.every_steps=5 --set checkpoint.snapshot_every_steps=0 && fail "no second death"
[ "$(blocks)" -gt 0 ] || fail "the memory that a launch without its own began from is gone too early"
[ "$(on_disk)" -gt "$(announced)" ] || fail "the checkpoint is not newer than the snapshot"
goes_on 2 "$(on_disk)" disk "a checkpoint newer than the snapshot"
killed 2 "step.end@40#0:kill" --set checkpoint.every_steps=35
goes_on 2 39 "shared memory" "a snapshot newer than the checkpoint"
rm -rf run

# Damaged: the older one, then disk. Each byte counts.
damage() { # FILE OFFSET
    printf '\xa5' | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
killed 2 "step.end@40#0:kill"
best=0 second=0
for file in "$TERN_SHM_DIR"/tern-*-0000-[01]; do # the newer of two
    step=$(od -A n -t d8 -j 32 -N 8 "$file" | tr -d ' ')
    [ "$step" -le "$best" ] && second=$step || second=$best best=$step newest=$file
done
damage "$newest" $(($(stat -c %s "$newest") - 5000))
ranks 2 config.yaml --run-dir run "${often[@]}" || fail "a damaged snapshot: the resume failed"
from "$second" "shared memory" "$second" "a damaged snapshot"
[ "$(digest run)" = "$expected" ] || fail "a damaged snapshot: digests differ"
grep -q "is left out" last.log || fail "the damage is not said"
killed 2 "step.end@40#0:kill"
for file in "$TERN_SHM_DIR"/tern-*; do
    truncate -s -4096 "$file"
done
ranks 2 config.yaml --run-dir run "${often[@]}" || fail "all memory cut short"
grep -q '"kind":"resume"' run/log.jsonl && fail "resumed from memory that was cut short"
[ "$(digest run)" = "$expected" ] || fail "cut short: digests differ"
nothing_stays "cut short"
echo "ok: memory cut short"

# Another run's memory is never ours: a copy of the directory, one made anew in its place.
killed 2 "step.end@40#0:kill"
cp -r run copy
ranks 2 config.yaml --run-dir copy "${often[@]}" || fail "the copy"
grep -q '"kind":"resume"' copy/log.jsonl && fail "a copy of the run took its memory"
goes_on 2 39 "shared memory" "the run whose directory was copied"
killed 2 "step.end@40#0:kill"
rm -rf run
ranks 2 config.yaml --run-dir run "${often[@]}" || fail "a new run in the old one's place"
grep -q '"kind":"resume"' run/log.jsonl && fail "a new run took the old one's memory"
nothing_stays "a new run in the old one's place"
echo "ok: no other run's memory"
# Memory of a past that the run did not take: hidden while the run went another way.
killed 2 "ckpt.latest@1#0:kill" --set checkpoint.every_steps=5
mkdir hidden
mv "$TERN_SHM_DIR"/tern-* hidden
TERN_FAULT=step.end@1#0:kill ranks 2 config.yaml --run-dir run "${often[@]}" && fail "no second death"
rm -f "$TERN_SHM_DIR"/tern-*
mv hidden/* "$TERN_SHM_DIR"
goes_on 2 "$(on_disk)" disk "memory that another launch left behind"
# Asked to begin anew, or with other sizes.
killed 2 "step.end@40#0:kill"
ranks 2 config.yaml --run-dir run "${often[@]}" --resume never || fail "--resume never"
grep -q '"kind":"resume"' run/log.jsonl && fail "--resume never resumed"
nothing_stays "--resume never"
killed 2 "step.end@40#0:kill"
ranks 2 config.yaml --run-dir run "${often[@]}" --set model.ff_width=96 && fail "another width is taken"
grep -q "has another shape" last.log || fail "another width is not said"
goes_on 2 39 "shared memory" "after a width that was refused"
rm -rf run

# Told to stop: on disk, so nothing stays in memory.
(
    for _ in $(seq 400); do
        grep -q '"kind":"snapshot"' run/log.jsonl 2>/dev/null && break
        sleep 0.05
    done
    touch run/stop
) &
ranks 2 config.yaml --run-dir run --set train.steps=100000 --set checkpoint.snapshot_every_steps=3 || true
wait
[ "$(state run)" = reclaimed ] || fail "stopped: $(state run)"
nothing_stays "reclaimed"
rm -rf run

# Hosts: ranks 0, 1 and 2, 3 each with a memory of their own.
cat >host.sh <<'SH'
#!/bin/bash
export TERN_SHM_DIR=$HOSTS/$((OMPI_COMM_WORLD_RANK / 2))
mkdir -p "$TERN_SHM_DIR"
exec "$@"
SH
chmod +x host.sh
export HOSTS=$WORK/hosts
hosts() { # N ARGUMENTS...
    local n=$1
    shift
    "${run[@]}" -np "$n" ./host.sh "$TERN" train "$@" >last.log 2>&1
}
killed_on_hosts() { # FAULT
    rm -rf run hosts
    TERN_FAULT=$1 hosts 4 config.yaml --run-dir run "${often[@]}" "${@:2}" && fail "no death of $1"
    return 0
}
hosts_go_on() { # N STEP SOURCE WHAT
    local least
    [ "$3" = disk ] && least=$2 || least=$(announced)
    hosts "$1" config.yaml --run-dir run "${often[@]}" || fail "$4: the resume failed"
    from "$2" "$3" "${least:-1}" "$4"
    [ "$(digest run)" = "$expected" ] || fail "$4: digests differ"
    [ "$(blocks hosts)" = 0 ] || fail "$4: blocks stay: $(ls hosts/*)"
    echo "ok: $4"
}
killed_on_hosts "step.end@40#3:kill"
hosts_go_on 4 39 "shared memory" "two hosts, none lost"
killed_on_hosts "step.end@40#3:kill"
rm -rf hosts/1
hosts_go_on 2 39 "a peer" "a host lost, gone on with the other"
killed_on_hosts "step.end@40#0:kill"
rm -rf hosts/0
hosts_go_on 4 39 "a peer" "a host lost, and a new one in its place"
killed_on_hosts "ckpt.latest@1#0:kill" --set checkpoint.every_steps=7
rm -rf hosts
hosts_go_on 4 "$(on_disk)" disk "both hosts lost"
killed_on_hosts "memory.peer@4#2:kill"
rm -rf hosts/0
hosts "3" config.yaml --run-dir run "${often[@]}" || fail "killed in a copy, host lost: the resume failed"
[ "$(digest run)" = "$expected" ] || fail "killed in a copy, host lost: digests differ"
echo "ok: killed in a copy, and a host lost: from '$(resumed run)'"
# A run with a name: the host that is lost had the run's directory too.
often+=(--run-id job-7)
killed_on_hosts "step.end@40#1:kill"
least=$(announced)
rm -rf hosts/0 run
hosts 4 config.yaml --run-dir run "${often[@]}" || fail "a host lost with the run's directory: the resume failed"
from 39 "a peer" "${least:-1}" "a host lost with the run's directory"
[ "$(digest run)" = "$expected" ] || fail "a host lost with the run's directory: digests differ"
[ "$(blocks hosts)" = 0 ] || fail "a host lost with the run's directory: blocks stay: $(ls hosts/*)"
echo "ok: a host lost with the run's directory"
# With a bucket, whose checkpoint is older, unless one was being written: then its snapshot may be all that is left.
also=(--set "checkpoint.remote=file://$WORK/bucket" --set checkpoint.every_steps=15)
killed_on_hosts "step.end@40#1:kill" "${also[@]}"
rm -rf hosts/0 run
hosts 4 config.yaml --run-dir run "${often[@]}" "${also[@]}" || fail "a host lost, and a bucket: the resume failed"
[ "$(digest run)" = "$expected" ] || fail "a host lost, and a bucket: digests differ"
[ "$(blocks hosts)" = 0 ] || fail "a host lost, and a bucket: blocks stay: $(ls hosts/*)"
echo "ok: a host lost with the run's directory, and a bucket: from '$(resumed run)'"
# Another name, none, or another configuration is another run.
for other in "--run-id job-8" "" "--run-id job-7 --set optimizer.lr=2e-3"; do
    killed_on_hosts "step.end@40#1:kill"
    rm -rf run
    # shellcheck disable=SC2086 # words
    hosts 2 config.yaml --run-dir run "${often[@]:0:${#often[@]}-2}" $other || fail "'$other': the run failed"
    grep -q '"kind":"resume"' run/log.jsonl && fail "'$other' took the memory of job-7"
done
expect 2 "began as job-7" -- "$TERN" train config.yaml --run-dir run --run-id job-8
echo "ok: a name is no other run's"

# Too little room: said once with the figures, and training goes on.
mkdir tiny
if mount -t tmpfs -o size=256k none tiny 2>/dev/null; then
    TERN_SHM_DIR=$WORK/tiny ranks 2 config.yaml --run-dir small "${often[@]}" || true
    umount tiny
    grep -q "snapshots in memory are off: they need" last.log || fail "no word of too little room"
    [ "$(digest small)" = "$expected" ] || fail "too little room: digests differ"
    [ "$(grep -c "snapshots in memory" last.log)" = 1 ] || fail "too little room is said more than once"
    echo "ok: too little room"
else
    echo "left out: too little room: no right to mount a small folder"
fi

# Too little memory: with two blocks of its own and two of a peer's the bill is too high, without them it is not. They are
# off, and that is said; the run is not refused.
cat >plan.sh <<'SH'
#!/bin/bash
[ ! -e meminfo ] || mount --bind meminfo /proc/meminfo
exec "$@"
SH
chmod +x plan.sh
plan() {
    TERN_MEMORY_PEER=1 "${run[@]}" -np 2 unshare -m ./plan.sh "$TERN" train config.yaml --run-dir none --dry-run \
        --set model.width=256 --set model.ff_width=1024 --set model.layers=6 "$@" >last.log 2>&1 || fail "a plan is refused"
}
mib() { sed -n "s/^ *$1 *\([0-9.]*\) MiB.*/\1/p" last.log; }
if unshare -m true 2>/dev/null; then
    plan
    blocks=$(mib "snapshots in memory")
    plan --set checkpoint.snapshot_every_steps=0
    total=$(mib total)
    kib=$(awk -v blocks="$blocks" -v total="$total" 'BEGIN { print int(2 * (total + 2.5 * blocks / 4) / 0.95 * 1024) }')
    sed "s/^MemAvailable:.*/MemAvailable: $kib kB/" /proc/meminfo >meminfo
    plan
    grep -q "snapshots in memory are off: there is too little memory" last.log || fail "no word of too little memory"
    echo "ok: too little memory"
else
    echo "left out: too little memory: no right to a /proc/meminfo of its own"
fi
echo "memory: done"
