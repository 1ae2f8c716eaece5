#!/bin/bash
# hosts.sh - tern supervise and mpirun over ssh on four machines: cables pulled in the middle of a step and put back, 4 hosts,
# then 2, 3, 4; an mpirun that hangs; a machine that its cloud takes away; the digests are those of a run that nobody disturbed.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../train/lib.sh"
. "$here/lib.sh"
. "$here/hosts_lib.sh"
need_hosts mpirun
trap 'free_hosts; cleanup' EXIT
export TERN_THREADS=1
unset TERN_MEM_FREEZE
make_data
config llama fp32 >config.yaml
cat >>config.yaml <<YAML
reclaim:
  notices: [signal, file, aws]
  poll_seconds: 1
YAML
make_hosts 4 pid
printf 'h%d slots=1\n' 1 2 3 4 >hostfile
# h3 is an interruptible machine, which is announced to be taken away as long as the file interrupt is there
export TERN_METADATA_URL=http://127.0.0.1:8771
in_host h3 python3 -B -c 'import os, sys, threading, time
sys.path.insert(0, sys.argv[1])
import mock_clouds
mock = mock_clouds.Aws()
mock.server = mock_clouds.Server(("127.0.0.1", 8771), mock_clouds.Handler)
mock.server.mock = mock
threading.Thread(target=mock.server.serve_forever, daemon=True).start()
while True:
    if os.path.exists("interrupt"):
        mock.interrupt(120)
    else:
        mock.paths.pop("spot/instance-action", None)
    time.sleep(0.1)' "$here/../reclaim" >cloud.log 2>&1 &
disown $!

trains_on() { # RANKS
    local began=$SECONDS
    await "a launch on $1 ranks" runs_on "$1"
    some_steps
    await "a launch on $1 ranks" runs_on "$1"
    echo "ok: trains on $1 ranks, $((SECONDS - began)) s later (launches on $(account ranks))"
}
words=(-np 4 --map-by node --bind-to none --hostfile "$WORK/hostfile"
    --mca plm rsh --mca plm_rsh_args "-F $WORK/hosts.d/ssh_config"
    --mca oob_tcp_if_include 10.77.0.0/24 --mca btl_tcp_if_include 10.77.0.0/24 --mca btl self,vader,tcp --mca pml ob1
    -x TERN_THREADS -x TERN_COMM_TIMEOUT -x TERN_METADATA_URL "$TERN" train config.yaml --run-dir run "${steady[@]}")
supervise() { # MORE OPTIONS OF MPIRUN...
    in_host h1 "$TERN" supervise --probe-seconds 1 -- mpirun "$@" "${words[@]}" >>last.log 2>&1 &
    supervisor=$!
}
end_supervisor() {
    # by the number that it has on its own host
    in_host h1 kill -TERM "$(python3 -c 'import json; print(json.load(open("run/supervise.json"))["pid"])')"
    local code=0
    wait "$supervisor" || code=$?
    [ "$code" = 33 ] || fail "exit code $code, expected 33"
    [ "$(state run)" = reclaimed ] || fail "the launch record says $(state run)"
}
supervise
trains_on 4
unplug h3
unplug h4
trains_on 2
plug h3
trains_on 3
plug h4
trains_on 4
end_supervisor
# An mpirun that does not notice for eight minutes is ended by what the supervisor asks of the hosts.
supervise --mca oob_tcp_keepalive_time 300
await "a fifth launch" has_launch 5
trains_on 4
unplug h2
trains_on 3
grep -q "host h2 does not answer and nothing goes on" last.log || fail "mpirun did notice"
plug h2
trains_on 4
# Announced: the run goes on without a host that still answers; what comes back in its place is used.
touch interrupt
trains_on 3
grep -q "host h3 is being taken away" last.log || fail "h3 went without a word"
! in_host h3 pgrep -x tern >/dev/null || fail "a host that is being taken away is in use"
unplug h3
await "the end of h3" grep -q "host h3 is gone, as was announced" last.log
rm interrupt
plug h3
trains_on 4
end_supervisor
for h in h1 h2 h3 h4; do
    ! in_host "$h" pgrep -x tern >/dev/null || fail "processes are left on $h"
done
grep "^tern: launch" last.log
same_as_undisturbed
echo "hosts: launches on $(account ranks) ranks"
