#!/bin/bash
# slurm.sh - launch/slurm/train.sbatch under a real Slurm of four hosts: one job, preempted by a job that may, at its time
# limit, requeued by hand, a rank of it killed, a host of it set down, and one unplugged. It is touched by nobody, goes on each time, and its
# digests are those of a run that nobody disturbed.
#
#   slurm.sh TERN [srun|mpirun]
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../runtime/train/lib.sh"
. "$here/../runtime/supervise/lib.sh"
. "$here/../runtime/supervise/hosts_lib.sh"
launcher=${2:-srun}
PATH=$PATH:/usr/sbin
need_hosts mpirun munged slurmctld slurmd sbatch scontrol
stop_slurm() {
    local file
    for file in "$WORK"/run.d/*.pid; do
        [ ! -s "$file" ] || kill -KILL "$(cat "$file")" 2>/dev/null || true
    done
    free_hosts
    cleanup
}
trap stop_slurm EXIT
export TERN_THREADS=1 SLURM_CONF=$WORK/slurm.conf
export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_btl_tcp_if_include=10.77.0.0/24 OMPI_MCA_oob_tcp_if_include=10.77.0.0/24 OMPI_MCA_pml=ob1
unset TERN_MEM_FREEZE
make_data
config llama fp32 >config.yaml
make_hosts 4

# ---- Slurm ----
mkdir -p run.d log.d ctld spool.h{1,2,3,4} tmp.h{1,2,3,4}
chmod 755 "$WORK" run.d
dd if=/dev/urandom of=munge.key bs=128 count=1 2>/dev/null
chmod 600 munge.key
touch cgroup.conf
cat >slurm.conf <<CONF
ClusterName=tern
SlurmctldHost=h1(10.77.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort=16817
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$WORK/run.d/munge.sock,cred_expire=5
StateSaveLocation=$WORK/ctld
SlurmdSpoolDir=$WORK/spool.%n
TmpFS=$WORK/tmp.%n
SlurmctldPidFile=$WORK/run.d/slurmctld.pid
SlurmdPidFile=$WORK/run.d/slurmd.%n.pid
SlurmctldLogFile=$WORK/log.d/slurmctld.log
SlurmdLogFile=$WORK/log.d/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
JobRequeue=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2,sched_min_interval=100000,batch_sched_delay=0
PriorityType=priority/basic
KillWait=5
OverTimeLimit=0
MessageTimeout=10
SlurmdTimeout=10
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
NodeName=h[1-4] Port=16818 CPUs=4 RealMemory=1000 State=UNKNOWN
PartitionName=low Nodes=h[1-4] Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=20 MaxTime=INFINITE State=UP OverSubscribe=NO
PartitionName=high Nodes=h[1-4] PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP OverSubscribe=NO
CONF
munged --force --key-file="$WORK/munge.key" --socket="$WORK/run.d/munge.sock" --pid-file="$WORK/run.d/munged.pid" \
    --log-file="$WORK/log.d/munged.log" --seed-file="$WORK/run.d/munged.seed"
in_host h1 slurmctld -f "$SLURM_CONF"
for h in h1 h2 h3 h4; do
    in_host "$h" slurmd -N "$h" -f "$SLURM_CONF"
done
slurm() { # a client's command, in h1
    in_host h1 "$@"
}

explain() {
    slurm squeue >&2 || true
    slurm scontrol show job "${job:-}" >&2 || true
    tail -n 40 train.log log.d/slurmctld.log >&2 || true
}
trap 'code=$?; [ $code = 0 ] || explain; stop_slurm' EXIT
all_idle() {
    [ "$(slurm sinfo -h -p low -t idle -o %D 2>/dev/null)" = 4 ]
}
starts() { # of the job, as the batch script counts them
    [ ! -e train.log ] || grep -c "^train.sbatch: job " train.log || true
}
has_starts() { # N
    [ "$(starts)" = "$1" ]
}
records() {
    ls run/launches/*.json 2>/dev/null | wc -l
}
# trains STARTS WHAT: until so many starts there were, and a new launch has done some steps
trains() {
    await "start $1 of the job" has_starts "$1"
    await "another launch" more_launches
    known=$(records)
    some_steps
    echo "ok: $2: start $1 of the job, $known launches, the last before ended as '$(before_last)'"
}
more_launches() {
    [ "$(records)" -gt "$known" ]
}
before_last() {
    sed -n 's/.*"state":"\([a-z_]*\)".*/\1/p' "$(ls run/launches/*.json | tail -n 2 | head -n 1)"
}
known=0

# ---- the job ----
await "four idle nodes" all_idle
job=$(slurm sbatch --parsable -N 2-4 --exclusive --time=60 --output="$WORK/train.log" --signal=B:USR2@30 \
    --export="ALL,TERN=$TERN,TERN_LAUNCHER=$launcher" "$here/../../launch/slurm/train.sbatch" \
    config.yaml --run-dir run "${steady[@]}")
trains 1 "submitted"

slurm sbatch -p high -N 4 --exclusive --output=/dev/null --wrap "sleep 1" >/dev/null
trains 2 "preempted"
[ "$(before_last)" = reclaimed ] || fail "preempted, but the launch ended as $(before_last)"

slurm scontrol update "JobId=$job" TimeLimit=1
await "the time limit's signal" has_starts 3
slurm scontrol update "JobId=$job" TimeLimit=60
trains 3 "time limit"
[ "$(before_last)" = reclaimed ] || fail "at its time limit, but the launch ended as $(before_last)"

slurm scontrol requeue "$job"
trains 4 "requeued by hand"

for pid in $(left_behind); do
    ! grep -qzxE "(PMIX_RANK|OMPI_COMM_WORLD_RANK)=2" "/proc/$pid/environ" || kill -KILL "$pid"
done
trains 4 "a rank killed" # it starts again where it is

slurm scontrol update NodeName=h4 State=DOWN Reason=test
trains 5 "a node down"

unplug h4 # Slurm notices after half a minute, and starts on what is left
trains 6 "a node unplugged"
plug h4

# ---- the end ----
slurm scancel "$job"
gone() {
    [ -z "$(slurm squeue -h -j "$job" 2>/dev/null)" ] && [ -z "$(left_behind)" ]
}
await "the end" gone
same_as_undisturbed
grep "^train.sbatch" train.log
echo "slurm: $launcher, $(starts) starts, $(records) launches"
