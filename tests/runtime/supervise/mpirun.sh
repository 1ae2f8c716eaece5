#!/bin/bash
# mpirun.sh - stands in for mpirun: launch k does what line k of the file plan says (the last line from then on), and leaves
# a launch record and a log as ranks would. What it was called with is appended to the file calls.
#
#   STATE STEP STATUS [HOW]   STATE none: no record; STATUS kill: ended by SIGKILL
#   HOW   hang   stays, deaf to everything but SIGKILL
#         ask    stays until SIGUSR2, then STATE, STEP and STATUS
#         deaf   as ask, from the third SIGUSR2 on
#         leave:H ends at once, and the record says that host H is taken away
#         orphan leaves a process behind that is deaf to everything but SIGKILL
echo "$*" >>calls
n=$(wc -l <calls)
[ "$n" -le "$(wc -l <plan)" ] || n=$(wc -l <plan)
read -r state step status how <<<"$(sed -n "${n}p" plan)"
mkdir -p run/launches

record() { # STATE
    echo "{\"id\":\"$TERN_LAUNCH_ID\",\"state\":\"$1\",\"step\":$step,\"ranks\":1,\"reason\":\"as planned\"$leaving}" >run/record.new
    mv run/record.new "run/launches/$TERN_LAUNCH_ID.json"
}
log() {
    echo "{\"kind\":\"step\",\"step\":$step}" >>run/log.jsonl
}
stay() {
    while :; do
        sleep 0.05
    done
}

leaving=
case $how in
leave:*)
    leaving=",\"leaving\":\"${how#leave:}\""
    ;;
hang)
    trap '' TERM USR2 INT HUP
    [ "$state" = none ] || record "$state"
    log
    echo $$ >hanging
    stay
    ;;
ask | deaf)
    record running
    asked=0
    needed=1
    [ "$how" = ask ] || needed=3
    trap 'asked=$((asked + 1)); echo "$asked" >asked' USR2
    log
    echo $$ >waiting
    while [ "$asked" -lt "$needed" ]; do
        sleep 0.05
    done
    rm -f waiting
    ;;
orphan)
    (
        trap '' TERM USR2 INT HUP
        exec >/dev/null 2>&1
        stay
    ) &
    echo $! >orphan
    ;;
esac
[ "$step" = 0 ] || log
[ "$state" = none ] || record "$state"
[ "$status" != kill ] || kill -KILL $$
exit "$status"
