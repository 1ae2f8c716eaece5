# hosts_lib.sh - four machines on one: h1 to h4, each with its own network, host name, /dev/shm and (for mpirun) processes,
# on a bridge that they share with nobody, and a way to pull their cables. Needs root. Sourced after train/lib.sh.
#
# need_hosts PROGRAM...   ends the test with 77, which CTest counts as skipped, where such machines cannot be made; a
#                         program that is not there is a failure with TEST_PACKAGES=all (CI, which installs them)
# make_hosts N [pid]      machines with an sshd each; pid: with process numbers of their own
# in_host H COMMAND...    runs it there, in $WORK
# unplug H, plug H        takes the link down and up
# free_hosts              ends all that runs on them
HOSTS_UP=()
BRIDGE=tb$$
need_hosts() {
    local program why= is_package=no
    if [ "$(id -u)" -ne 0 ]; then
        why="it needs root"
    else
        for program in ip nsenter unshare ssh ssh-keygen /usr/sbin/sshd "$@"; do
            command -v "$program" >/dev/null || { why="there is no $program" && is_package=yes; }
        done
        if [ -z "$why" ] && ! { ip link add "$BRIDGE" type bridge && ip link del "$BRIDGE" && unshare --uts --mount --ipc --net true; } 2>/dev/null; then
            why="this machine lets nobody make networks"
        fi
    fi
    if [ -n "$why" ]; then
        [ "$is_package" = no ] || [ "${TEST_PACKAGES:-}" != all ] || fail "$why, though all packages should be installed"
        echo "skipped: $why"
        exit 77
    fi
}

host_pid() { # H
    cat "$WORK/hosts.d/$1.pid"
}
in_host() {
    local host=$1
    shift
    # shellcheck disable=SC2016
    nsenter -t "$(host_pid "$host")" -n -u -m -i ${HOSTS_PID:+-p} -- bash -c 'cd "$1" && shift && exec "$@"' x "$WORK" "$@"
}

make_keys() {
    ssh-keygen -q -t ed25519 -N '' -f hosts.d/key
    ssh-keygen -q -t ed25519 -N '' -f hosts.d/hostkey
    cp hosts.d/key.pub hosts.d/authorized
    chmod 600 hosts.d/key hosts.d/hostkey hosts.d/authorized
    cat >hosts.d/sshd_config <<CONFIG
Port 22
HostKey $WORK/hosts.d/hostkey
AuthorizedKeysFile $WORK/hosts.d/authorized
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
StrictModes no
PidFile none
MaxStartups 100
CONFIG
    cat >hosts.d/ssh_config <<CONFIG
IdentityFile $WORK/hosts.d/key
IdentitiesOnly yes
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
ConnectTimeout 3
LogLevel ERROR
CONFIG
}

make_host() { # K
    local h=h$1 net=$BRIDGE.$1 fork=() holder
    [ -z "$HOSTS_PID" ] || fork=(--pid --fork --mount-proc)
    ip netns add "$net"
    HOSTS_UP+=("$1")
    ip link add "$net" type veth peer name eth0 netns "$net"
    ip link set "$net" master "$BRIDGE" up
    ip -n "$net" addr add "10.77.0.$1/24" dev eth0
    ip -n "$net" link set eth0 up
    ip -n "$net" link set lo up
    setsid nsenter --net="/run/netns/$net" unshare --uts --mount --ipc "${fork[@]}" --propagation private bash -c "
        hostname $h
        mount -t tmpfs -o size=512m shm_$h /dev/shm
        mount --bind $WORK/hosts.d/hosts /etc/hosts
        exec /usr/sbin/sshd -D -e -f $WORK/hosts.d/sshd_config" </dev/null >"hosts.d/$h.log" 2>&1 &
    holder=$!
    disown "$holder"
    for _ in $(seq 200); do
        if [ -n "$HOSTS_PID" ]; then
            pgrep -P "$holder" >"hosts.d/$h.pid" || true
        else
            echo "$holder" >"hosts.d/$h.pid"
        fi
        if [ -s "hosts.d/$h.pid" ] && in_host "$h" ssh -F hosts.d/ssh_config "$h" true 2>/dev/null; then
            return 0
        fi
        sleep 0.05
    done
    fail "host $h never answered: $(cat "hosts.d/$h.log")"
}

make_hosts() { # N [pid]
    local k
    HOSTS_PID=${2:-}
    mkdir -p hosts.d /run/sshd
    make_keys
    echo "127.0.0.1 localhost" >hosts.d/hosts
    for ((k = 1; k <= $1; k++)); do
        echo "10.77.0.$k h$k" >>hosts.d/hosts
    done
    ip link add "$BRIDGE" type bridge
    ip link set "$BRIDGE" up
    for ((k = 1; k <= $1; k++)); do
        make_host "$k"
    done
}

unplug() { # H
    ip link set "$BRIDGE.${1#h}" down
}
plug() { # H
    ip link set "$BRIDGE.${1#h}" up
}

free_hosts() {
    local k pid
    for k in "${HOSTS_UP[@]}"; do
        for pid in $(ip netns pids "$BRIDGE.$k" 2>/dev/null); do
            kill -KILL "$pid" 2>/dev/null || true
        done
        ip netns del "$BRIDGE.$k" 2>/dev/null || true
        rm -rf "${TMPDIR:-/tmp}/ompi.h$k.$(id -u)"
    done
    HOSTS_UP=()
    ip link del "$BRIDGE" 2>/dev/null || true
}
