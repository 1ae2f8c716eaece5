#!/bin/sh
# machine.sh - builds a fake root: what /sys and /proc show on a machine that nobody here has.
#
#   machine.sh KIND DIR       DIR must not exist
#
#   dgx-h100        8 GPUs, 8 NDR cards, each pair below a switch of its own, all as it should be
#   dgx-h100-down   the same with four of the eight ports down
#   roce            4 GPUs and 4 RoCE cards; GID 0 and 1 are RoCE v1 and a link-local v2, 3 is RoCE v2 with IPv4
#   vm-acs          a virtual machine with 2 GPUs and 2 cards, ACS on, no way to read GPU memory, little memlock
#   laptop          nothing but Wi-Fi
#   broken          the paths of roce, with files that are empty, garbage, endless, folders, pipes and links to nowhere
set -eu
kind=${1:?usage: machine.sh KIND DIR}
root=${2:?usage: machine.sh KIND DIR}
[ ! -e "$root" ] || { echo "machine.sh: $root is there already" >&2; exit 2; }

put() { # put FILE TEXT
    printf '%s\n' "$2" >"$root/$1"
}

# A device: folder below sys/devices, link below sys/bus/pci/devices.
pci() { # pci PATH VENDOR DEVICE CLASS NODE [SPEED WIDTH]
    mkdir -p "$root/sys/devices/$1" "$root/sys/bus/pci/devices"
    ln -s "../../../devices/$1" "$root/sys/bus/pci/devices/${1##*/}"
    put "sys/devices/$1/vendor" "$2"
    put "sys/devices/$1/device" "$3"
    put "sys/devices/$1/class" "$4"
    put "sys/devices/$1/numa_node" "$5"
    if [ $# -gt 5 ]; then
        for which in current max; do
            put "sys/devices/$1/${which}_link_speed" "$6 GT/s PCIe"
            put "sys/devices/$1/${which}_link_width" "$7"
        done
    fi
}

# Configuration space: an error reporting capability at 256, access control services behind it at 320.
config_space() { # config_space FILE CONTROL-BITS-IN-OCTAL
    {
        head -c 256 /dev/zero
        printf '\001\000\002\024'
        head -c 60 /dev/zero
        printf "\\015\\000\\001\\000\\177\\000\\$2\\000"
        head -c 3768 /dev/zero
    } >"$1"
}

bridge() { # bridge PATH NODE ACS
    pci "$1" 0x1000 0xc030 0x060400 "$2" 32.0 16
    ln "$root/config-$3" "$root/sys/devices/$1/config"
}

gpu() { # gpu PATH NODE MODEL MINOR
    pci "$1" 0x10de 0x2330 0x030200 "$2" 32.0 16
    ln -s ../../../../bus/pci/drivers/nvidia "$root/sys/devices/$1/driver"
    mkdir -p "$root/proc/driver/nvidia/gpus/${1##*/}"
    printf 'Model: \t\t %s\nIRQ:   \t\t 18\nGPU UUID: \t GPU-00000000-0000-0000-0000-00000000000%s\nDevice Minor: \t %s\n' \
        "$3" "$4" "$4" >"$root/proc/driver/nvidia/gpus/${1##*/}/information"
}

# A card with one port. LAYER InfiniBand|Ethernet.
hca() { # hca PATH NODE NAME STATE PHYS RATE LAYER NET
    pci "$1" 0x15b3 0x1021 0x020700 "$2" 32.0 16
    at="sys/devices/$1/infiniband/$3"
    mkdir -p "$root/$at/ports/1/gids" "$root/$at/ports/1/gid_attrs/types" \
        "$root/$at/ports/1/gid_attrs/ndevs" "$root/$at/ports/1/counters" "$root/sys/class/infiniband"
    ln -s "../../devices/$1/infiniband/$3" "$root/sys/class/infiniband/$3"
    ln -s "../../../${1##*/}" "$root/$at/device"
    put "$at/fw_ver" 28.39.1002
    put "$at/ports/1/state" "$4"
    put "$at/ports/1/phys_state" "$5"
    put "$at/ports/1/rate" "$6"
    put "$at/ports/1/link_layer" "$7"
    put "$at/ports/1/counters/link_downed" 0
    put "$at/ports/1/gids/2" 0000:0000:0000:0000:0000:0000:0000:0000 # no type: the kernel answers EINVAL
    if [ "$7" = InfiniBand ]; then
        gid "$at" 0 fe80:0000:0000:0000:a088:c203:00ab:0001 IB/RoCE\ v1 "$8"
    else
        gid "$at" 0 fe80:0000:0000:0000:0ac0:ebff:fe00:0001 IB/RoCE\ v1 "$8"
        gid "$at" 1 fe80:0000:0000:0000:0ac0:ebff:fe00:0001 RoCE\ v2 "$8"
        gid "$at" 3 0000:0000:0000:0000:0000:ffff:0a01:0002 RoCE\ v2 "$8"
    fi
}

gid() { # gid DEVICE INDEX GID TYPE NET
    put "$1/ports/1/gids/$2" "$3"
    put "$1/ports/1/gid_attrs/types/$2" "$4"
    put "$1/ports/1/gid_attrs/ndevs/$2" "$5"
}

net() { # net NAME STATE SPEED; a speed makes it a real one
    mkdir -p "$root/sys/class/net/$1"
    put "sys/class/net/$1/operstate" "$2"
    if [ $# -gt 2 ]; then
        mkdir "$root/sys/class/net/$1/device"
        put "sys/class/net/$1/speed" "$3"
    fi
}

host() { # host KERNEL CPU-FLAGS MEMLOCK MEMORY-KB NODES
    mkdir -p "$root/proc/self" "$root/proc/sys/kernel" "$root/sys/module" "$root/sys/class/iommu" \
        "$root/sys/kernel/mm/transparent_hugepage" "$root/sys/bus/pci/devices"
    put proc/sys/kernel/hostname "$kind"
    put proc/sys/kernel/osrelease "$1"
    printf 'processor\t: 0\nflags\t\t: %s\n' "$2" >"$root/proc/cpuinfo"
    printf 'Limit                     Soft Limit           Hard Limit           Units     \nMax locked memory         %-20s %-20s bytes     \n' \
        "$3" "$3" >"$root/proc/self/limits"
    printf 'MemTotal:       %s kB\nMemAvailable:   %s kB\nHugePages_Total:       0\nHugePages_Free:        0\nHugepagesize:       2048 kB\n' \
        "$4" "$4" >"$root/proc/meminfo"
    put sys/kernel/mm/transparent_hugepage/enabled 'always [madvise] never'
    node=0
    while [ "$node" -lt "$5" ]; do
        mkdir -p "$root/sys/devices/system/node/node$node"
        node=$((node + 1))
    done
    net lo unknown
}

driver() { # driver VERSION FLAVOUR
    mkdir -p "$root/sys/module/nvidia" "$root/proc/driver/nvidia"
    put sys/module/nvidia/version "$1"
    put proc/driver/nvidia/version "NVRM version: NVIDIA UNIX $2 for x86_64  $1  Release Build"
}

# dgx DOWN: that many of the eight ports are down
dgx() {
    host 5.15.0-1042-nvidia 'fpu vme sse2 avx512f amx_tile' unlimited 2113412000 2
    driver 550.54.15 'x86_64 Kernel Module'
    mkdir "$root/sys/module/nvidia_peermem"
    i=0
    for bus in 15 37 48 59 8d ad be cf; do
        node=$((i / 4))
        port="pci0000:$bus/0000:$bus:01.0"
        switch="$port/0000:$bus:02.0"
        bridge "$port" $node off
        bridge "$switch" $node off
        bridge "$switch/0000:$bus:03.0" $node off
        bridge "$switch/0000:$bus:04.0" $node off
        gpu "$switch/0000:$bus:03.0/0000:$bus:10.0" $node 'NVIDIA H100 80GB HBM3' $i
        card="$switch/0000:$bus:04.0/0000:$bus:11.0"
        if [ "$i" -ge $((8 - $1)) ]; then
            hca "$card" $node mlx5_$i '1: DOWN' '3: Disabled' '10 Gb/sec (4X SDR)' InfiniBand ibs$i
        else
            hca "$card" $node mlx5_$i '4: ACTIVE' '5: LinkUp' '400 Gb/sec (4X NDR)' InfiniBand ibs$i
        fi
        net ibs$i up 400000
        i=$((i + 1))
    done
    for function in 0 1 2 3; do
        pci "pci0000:00/0000:00:1$function.0" 0x10de 0x22a3 0x068000 0
    done
    net eno3 up 10000
    net docker0 down
}

roce() {
    host 5.15.0-91-generic 'fpu sse2 avx2' unlimited 1056706000 1
    driver 535.129.03 'Open Kernel Module'
    for i in 0 1 2 3; do
        bus=4$i
        switch="pci0000:$bus/0000:$bus:01.0/0000:$bus:02.0"
        bridge "pci0000:$bus/0000:$bus:01.0" 0 off
        bridge "$switch" 0 off
        bridge "$switch/0000:$bus:03.0" 0 off
        bridge "$switch/0000:$bus:04.0" 0 off
        gpu "$switch/0000:$bus:03.0/0000:$bus:10.0" 0 'NVIDIA L40S' $i
        hca "$switch/0000:$bus:04.0/0000:$bus:11.0" 0 mlx5_$i '4: ACTIVE' '5: LinkUp' \
            '200 Gb/sec (4X HDR)' Ethernet ens$i
        net ens$i up 200000
    done
}

vm() {
    host 5.10.0-28-cloud-amd64 'fpu sse2 avx512f hypervisor' 8388608 923000000 2
    driver 535.129.03 'x86_64 Kernel Module'
    for i in 0 1; do
        switch="pci000$i:00/000$i:00:01.0/000$i:01:00.0"
        bridge "pci000$i:00/000$i:00:01.0" $i on
        bridge "$switch" $i on
        bridge "$switch/000$i:02:00.0" $i on
        bridge "$switch/000$i:02:01.0" $i on
        gpu "$switch/000$i:02:00.0/000$i:03:00.0" $i 'NVIDIA A100-SXM4-80GB' $i
        hca "$switch/000$i:02:01.0/000$i:04:00.0" $i mlx5_ib$i '4: ACTIVE' '5: LinkUp' \
            '200 Gb/sec (4X HDR)' InfiniBand ib$i
    done
    net eth0 up 50000
}

laptop() {
    host 6.1.0-18-amd64 'fpu sse2 avx2' 8388608 16122000 1
    pci pci0000:00/0000:00:02.0 0x8086 0x9a49 0x030000 -1
    pci pci0000:00/0000:00:14.3 0x8086 0xa0f0 0x028000 -1
    net wlp0s20f3 up
}

# Every file of the machine with RoCE, made unusable in one of several ways.
broken() {
    roce
    i=0
    nines=$(head -c 20000 /dev/zero | tr '\0' 9)
    find "$root" -type f ! -path '*/config-*' | LC_ALL=C sort | while IFS= read -r file; do
        i=$((i + 1))
        case $((i % 7)) in
        0) : >"$file" ;;
        1) printf '\377\376\000\033[31m%%s%%n\200' >"$file" ;;
        2) : >"$file" && truncate -s 4G "$file" ;;
        3) rm "$file" && mkdir "$file" ;;
        4) ln -sf /nowhere/at/all "$file" ;;
        5) rm "$file" && mkfifo "$file" ;;
        6) echo "$nines" >"$file" ;;
        esac
    done
    ln -s ../../../devices/pci0000:ff/nothing "$root/sys/bus/pci/devices/0000:ff:00.0"
    ln -s loop "$root/sys/bus/pci/devices/loop"
    ln -s ../../devices/nothing "$root/sys/class/infiniband/mlx5_99"
    : >"$root/sys/class/infiniband/a-file"
    long=$(printf '%0200d' 0)
    mkdir "$root/sys/class/infiniband/$long" "$root/sys/class/net/$long"
}

mkdir -p "$root"
config_space "$root/config-on" 014
config_space "$root/config-off" 001
case $kind in
dgx-h100) dgx 0 ;;
dgx-h100-down) dgx 4 ;;
roce) roce ;;
vm-acs) vm ;;
laptop) laptop ;;
broken) broken ;;
*)
    echo "machine.sh: no machine is called $kind" >&2
    exit 2
    ;;
esac
