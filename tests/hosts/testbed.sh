#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A small cluster of pretended hosts on one Linux machine, for tests of several machines.
#
# Each host has its own network, host name, processes, shared memory and mounts, its own
# writable copy of the root file system, its own sshd, one core and a memory limit. Two
# networks: hosts cannot reach each other over `mgmt`, but can over `fabric`. The trap:
# names resolve to mgmt, where nobody answers.
#
#     host       mgmt             fabric
#     spark-1    10.1.230.180     192.168.200.12
#     spark-2    10.1.230.181     192.168.200.13     and so on
#
#   testbed.sh can                    exit 77 and the reason if it cannot work here
#   testbed.sh up [FLAG...]           starts one, prints its folder
#       --hosts N        how many (2, at most 8)
#       --mgmt KIND      isolated: no wire, connecting fails after 3 s (default)
#                        blackhole: packets vanish; noroute: connecting fails at once;
#                        routed: it works
#       --names KIND     trap (default), fabric, or loopback (a host's own name is
#                        127.0.1.1, as Debian has it)
#       --routed         each host's fabric is a network of its own, 192.168.200.0/24,
#                        192.168.201.0/24, ..., with a router between them
#       --spread         host i has all cores (default: core i modulo their number)
#       --owner PID      ends when this process does (default: who called)
#
# The others take the folder from TESTBED:
#
#   testbed.sh down
#   testbed.sh exec HOST CMD...       runs CMD there, same directory and environment
#   testbed.sh pids HOST              processes there: outer pid, command line
#   testbed.sh cut HOST               pulls the fabric cable: no carrier
#   testbed.sh blackhole HOST         frames vanish, the link stays up
#   testbed.sh mend HOST              undoes both
#   testbed.sh firewall HOST RULE     drops what RULE (nft) matches; '': takes all away
#   testbed.sh delay USEC             each way between hosts 1 and 2; 0: none
#   testbed.sh memory HOST BYTES      limit of the host's memory group; max: none
#   testbed.sh clock HOST SECONDS     programs started from now on see another time
#   testbed.sh addr HOST mgmt|fabric  an address
#
# TESTBED/shared is one folder on all hosts; everything else that a host writes stays on
# that host, in memory, and is gone with it. The rest of the tree below is the machine's.
#
# Everything hangs on one process, the keeper: when it ends, in whatever way, the kernel
# ends all others and with them namespaces, links and mounts. What a killed keeper leaves
# (a folder in /tmp, empty control groups) is taken away by the next `up`.
#
# What Linux cannot do for one host alone: another wall-clock time (a library that is
# preloaded on that host pretends it), /proc/meminfo and /proc/vmstat (the memory group
# is what differs), the kernel's log.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
me=$here/$(basename "${BASH_SOURCE[0]}")
T=${TESTBED:-}

die() {
    echo "testbed: $*" >&2
    exit 1
}

name() { echo "spark-$1"; }
subnet() { [ -e "$T/routed" ] && echo $((199 + $1)) || echo 200; }
addr() {
    case $2 in
    mgmt) echo "10.1.230.$((179 + $1))" ;;
    fabric) echo "192.168.$(subnet "$1").$((11 + $1))" ;;
    *) die "no network $2" ;;
    esac
}
index() {
    [[ $1 =~ ^spark-([1-8])$ && -s $T/$1.pid ]] || die "no host $1"
    echo "${BASH_REMATCH[1]}"
}
switch() { nsenter -t "$(cat "$T/switch.pid")" -n "$@"; }

can() {
    local c
    [ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
    for c in ip nsenter unshare setpriv ssh ssh-keygen /usr/sbin/sshd cc; do
        command -v "$c" >/dev/null || { echo "needs ${c##*/}"; exit 77; }
    done
    unshare --net --mount --pid --ipc --uts --fork true 2>/dev/null ||
        { echo "this kernel or container gives no namespaces"; exit 77; }
    unshare --mount sh -c 'mount -t tmpfs tmpfs /mnt && mkdir /mnt/u /mnt/w /mnt/r &&
        mount -t overlay -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w tb /mnt/r' \
        2>/dev/null || { echo "this kernel or container mounts no overlay"; exit 77; }
}

# ---- control groups ------------------------------------------------------------------

# The folders of a host's groups: one (v2), or one of each controller (v1).
groups() {
    local g root=/sys/fs/cgroup
    g=$(basename "$T")-$1
    if [ -e $root/cgroup.controllers ]; then
        echo "$root/$g"
    else
        [ ! -d $root/memory ] || echo "$root/memory/$g"
        [ ! -d $root/cpuset ] || echo "$root/cpuset/$g"
    fi
}

# Best effort: without them a host is pinned by affinity and has no memory limit.
make_groups() {
    local g
    for g in $(groups "$1"); do
        mkdir "$g" 2>/dev/null || continue
        if [ -e "$g/cpuset.cpus" ]; then
            cat "${g%/*}/cpuset.cpus" >"$g/cpuset.cpus" 2>/dev/null || true
            cat "${g%/*}/cpuset.mems" >"$g/cpuset.mems" 2>/dev/null || true
            [ -z "$2" ] || echo "$2" >"$g/cpuset.cpus" || true
        fi
    done
}

enter_groups() {
    local g
    for g in $(groups "$1"); do
        echo $BASHPID >"$g/cgroup.procs" || true
    done 2>/dev/null
}

memory() {
    local bytes=$2 g
    index "$1" >/dev/null
    for g in $(groups "$1"); do
        if [ -e "$g/memory.max" ]; then
            echo 0 >"$g/memory.swap.max" 2>/dev/null || true
            echo "$bytes" >"$g/memory.max" && return 0
        elif [ -e "$g/memory.limit_in_bytes" ]; then
            echo "${bytes/max/-1}" >"$g/memory.limit_in_bytes" && return 0
        fi
    done
    die "this kernel or container gives no memory group"
}

# ---- a host: pid 1 of its namespaces --------------------------------------------------

mounts() {
    local d=$1
    ulimit -c 0
    mount -t tmpfs -o size=50% tmpfs "$d"
    mkdir "$d/upper" "$d/work" "$d/root"
    mount -t overlay -o "lowerdir=/,upperdir=$d/upper,workdir=$d/work" host "$d/root"
    cd "$d/root"
    mount -t proc proc proc
    mount -t sysfs sysfs sys
    mount --rbind /sys/fs/cgroup sys/fs/cgroup 2>/dev/null || true
    mount --rbind /dev dev
    mount -t tmpfs -o mode=1777,size=25% tmpfs dev/shm
    mount -t tmpfs -o mode=755,size=25% tmpfs run
    mkdir -p ".$T/shared"
    mount --bind "$T/shared" ".$T/shared"
    pivot_root . .
    umount -l .
    cd /
}

hosts_file() {
    local i n=$1 kind=$2 own=$3 net=mgmt
    [ "$kind" = trap ] || net=fabric
    echo "127.0.0.1 localhost"
    [ "$kind" != loopback ] || echo "127.0.1.1 $(name "$own")"
    for ((i = 1; i <= n; i++)); do
        [ "$kind" = loopback ] && [ "$i" = "$own" ] || echo "$(addr "$i" $net) $(name "$i")"
    done
}

host() { # I N NAMES
    local i=$1 h files=$T/files pid
    h=$(name "$i")
    read -r pid _ </proc/self/stat # still as the keeper sees it
    echo "$pid" >"$T/$h.pid.new"
    mv "$T/$h.pid.new" "$T/$h.pid"
    mounts "$T/$h"
    hostname "$h"
    echo "$h" >/etc/hostname
    hosts_file "$2" "$3" "$i" >/etc/hosts
    mkdir -p /run/sshd /root/.ssh
    chmod 700 /root /root/.ssh
    rm -f /root/.ssh/*
    cp "$files"/{id_ed25519,authorized_keys,known_hosts,config} /root/.ssh
    chmod 600 /root/.ssh/*
    cp "$files/hostkey" /run/hostkey
    chmod 600 /run/hostkey
    printf '%s\n' 'HostKey /run/hostkey' 'PidFile none' 'UsePAM no' 'UseDNS no' \
        'PermitRootLogin prohibit-password' 'PasswordAuthentication no' \
        'KbdInteractiveAuthentication no' 'PrintMotd no' 'MaxStartups 100' \
        >/run/sshd_config
    ip link set lo up
    while [ ! -e "$T/shared/.wired" ]; do sleep 0.02; done
    /usr/sbin/sshd -f /run/sshd_config -E /run/sshd.log
    touch "$T/shared/.$h"
    trap 'exit 0' TERM
    while :; do # bash reaps what is orphaned here
        sleep 3600 &
        wait $! || true
    done
}

# ---- the keeper ----------------------------------------------------------------------

keys() {
    local i n=$1 key
    ssh-keygen -q -t ed25519 -N '' -C testbed -f "$T/files/id_ed25519"
    ssh-keygen -q -t ed25519 -N '' -C testbed -f "$T/files/hostkey"
    cp "$T/files/id_ed25519.pub" "$T/files/authorized_keys"
    key=$(cut -d' ' -f1,2 "$T/files/hostkey.pub")
    for ((i = 1; i <= n; i++)); do
        echo "$(name "$i"),$(addr "$i" mgmt),$(addr "$i" fabric) $key"
    done >"$T/files/known_hosts"
    printf 'Host *\n  BatchMode yes\n  StrictHostKeyChecking yes\n' >"$T/files/config"
}

wire() { # I N MGMT
    local i=$1 n=$2 kind=$3 pid bits=24 j
    pid=$(cat "$T/$(name "$i").pid")
    local on=(nsenter -t "$pid" -n ip)
    [ "$kind" != noroute ] || bits=32
    switch ip link add "m$i" type veth peer name mgmt netns "$pid"
    switch ip link add "f$i" type veth peer name fabric netns "$pid"
    "${on[@]}" addr add "$(addr "$i" mgmt)/$bits" dev mgmt
    "${on[@]}" addr add "$(addr "$i" fabric)/24" dev fabric
    "${on[@]}" link set mgmt up
    "${on[@]}" link set fabric up
    switch ip link set "m$i" up
    if [ -e "$T/routed" ]; then
        switch ip addr add "192.168.$(subnet "$i").1/24" dev "f$i"
        switch ip link set "f$i" up
        "${on[@]}" route add 192.168.0.0/16 via "192.168.$(subnet "$i").1"
    else
        switch ip link set "f$i" master fabric up
    fi
    case $kind in
    isolated | noroute) ;;
    routed) switch ip link set "m$i" master mgmt ;;
    blackhole)
        for ((j = 1; j <= n; j++)); do
            [ "$j" = "$i" ] || "${on[@]}" neigh add "$(addr "$j" mgmt)" \
                lladdr "02:00:00:00:00:0$j" dev mgmt nud permanent
        done
        ;;
    *) die "no --mgmt $kind" ;;
    esac
}

keep() { # N MGMT NAMES SPREAD OWNER
    local n=$1 mgmt=$2 names=$3 spread=$4 owner=$5 i h core
    local bound=(setpriv --pdeathsig KILL)
    trap clean EXIT
    trap 'exit 0' TERM INT HUP
    keys "$n"
    "${bound[@]}" unshare --net sleep infinity &
    echo $! >"$T/switch.pid"
    while [ "$(readlink "/proc/$!/ns/net")" = "$(readlink /proc/self/ns/net)" ]; do
        sleep 0.02
    done
    switch ip link add fabric type bridge
    switch ip link add mgmt type bridge
    switch ip link set fabric up
    switch ip link set mgmt up
    switch sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
    for ((i = 1; i <= n; i++)); do
        h=$(name "$i") core=
        mkdir "$T/$h"
        [ "$spread" = 1 ] || core=$(((i - 1) % $(nproc --all)))
        echo "$core" >"$T/$h.core"
        make_groups "$h" "$core"
        (
            enter_groups "$h"
            [ -z "$core" ] || taskset -pc "$core" $BASHPID >/dev/null
            exec "${bound[@]}" unshare --net --uts --ipc --pid --mount --fork \
                --kill-child=KILL "$me" host "$i" "$n" "$names"
        ) >"$T/$h.log" 2>&1 &
        until [ -s "$T/$h.pid" ]; do
            kill -0 $! || die "$h did not start: $(cat "$T/$h.log")"
            sleep 0.02
        done
    done
    for ((i = 1; i <= n; i++)); do wire "$i" "$n" "$mgmt"; done
    touch "$T/shared/.wired"
    for ((i = 1; i <= n; i++)); do
        h=$(name "$i")
        until [ -e "$T/shared/.$h" ]; do
            kill -0 "$(cat "$T/$h.pid")" || die "$h did not start: $(cat "$T/$h.log")"
            sleep 0.02
        done
    done
    touch "$T/ready"
    tail --pid="$owner" -s 0.3 -f /dev/null &
    wait $! || true
}

# Ends all that hangs on this keeper, and takes away what the kernel does not.
clean() {
    local pid
    trap '' TERM INT HUP
    for pid in $(jobs -p); do kill -KILL "$pid" 2>/dev/null || true; done
    wait
    remove "$T"
}

remove() {
    local T=$1 g i pid
    [ ! -s "$T/delay.run" ] || kill "$(cat "$T/delay.run")" 2>/dev/null || true
    for ((i = 1; i <= 8; i++)); do
        for g in $(groups "$(name "$i")"); do
            [ -d "$g" ] || continue
            while read -r pid; do kill -KILL "$pid" 2>/dev/null || true; done <"$g/cgroup.procs"
            rmdir "$g" 2>/dev/null || { sleep 0.3 && rmdir "$g" 2>/dev/null; } || true
        done
    done
    rm -rf --one-file-system "$T"
}

# Folders whose keeper was killed.
sweep() {
    local d pid
    for d in "${TMPDIR:-/tmp}"/tandem-hosts-*; do
        [ -s "$d/keeper.pid" ] || continue
        pid=$(cat "$d/keeper.pid")
        grep -qs testbed "/proc/$pid/cmdline" || remove "$d"
    done
}

up() {
    local n=2 mgmt=isolated names=trap spread=0 routed=0 owner=$PPID i
    while [ $# -gt 0 ]; do
        case $1 in
        --hosts) n=$2 && shift ;;
        --mgmt) mgmt=$2 && shift ;;
        --names) names=$2 && shift ;;
        --owner) owner=$2 && shift ;;
        --spread) spread=1 ;;
        --routed) routed=1 ;;
        *) die "no flag $1" ;;
        esac
        shift
    done
    [[ $n =~ ^[1-8]$ ]] || die "1 to 8 hosts"
    (can) >&2 || exit 77
    sweep
    T=$(mktemp -d "${TMPDIR:-/tmp}/tandem-hosts-XXXXXX")
    mkdir "$T/shared" "$T/files"
    [ $routed = 0 ] || touch "$T/routed"
    export TESTBED=$T
    setsid "$me" keep "$n" "$mgmt" "$names" "$spread" "$owner" \
        </dev/null >"$T.log" 2>&1 &
    echo $! >"$T/keeper.pid"
    for ((i = 0; i < 1500; i++)); do
        [ ! -e "$T/ready" ] || { rm -f "$T.log"; echo "$T"; return; }
        kill -0 $! 2>/dev/null || break
        sleep 0.02
    done
    die "no testbed: $(cat "$T.log" 2>/dev/null)"
}

down() {
    local pid i
    [ -d "$T" ] || return 0
    pid=$(cat "$T/keeper.pid")
    kill -TERM "$pid" 2>/dev/null || true
    for ((i = 0; i < 500; i++)); do
        [ -d "$T" ] || return 0
        sleep 0.02
    done
    die "$T does not go away"
}

# ---- on a host, and faults -----------------------------------------------------------

run_on() {
    local h=$1 core
    index "$h" >/dev/null
    shift
    core=$(cat "$T/$h.core")
    enter_groups "$h"
    [ -z "$core" ] || taskset -pc "$core" $BASHPID >/dev/null
    exec nsenter -t "$(cat "$T/$h.pid")" -n -u -i -p -m -r --wdns="$PWD" -- \
        setpriv --pdeathsig KILL "$@"
}

pids() {
    local space p
    index "$1" >/dev/null
    space=$(readlink "/proc/$(cat "$T/$1.pid")/ns/pid")
    for p in /proc/[0-9]*; do
        [ "$(readlink "$p/ns/pid" 2>/dev/null)" = "$space" ] || continue
        echo "${p#/proc/} $(tr '\0\n' '  ' <"$p/cmdline" 2>/dev/null || true)"
    done
}

firewall() {
    local rule=$2
    local on=(nsenter -t "$(cat "$T/$1.pid")" -n nft)
    if [ -z "$rule" ]; then
        "${on[@]}" delete table inet testbed
        return
    fi
    "${on[@]}" -f - <<<"table inet testbed { chain input {
        type filter hook input priority 0; policy accept; $rule drop; }; }"
}

no_delay() {
    local i
    [ ! -s "$T/delay.run" ] || kill "$(cat "$T/delay.run")" 2>/dev/null || true
    rm -f "$T/delay.run"
    for i in 1 2; do
        switch tc qdisc del dev "f$i" root 2>/dev/null || true
        switch ip link set "f$i" master fabric
    done
}

delay() {
    local i
    no_delay
    [ "$1" != 0 ] || return 0
    if switch tc qdisc add dev f1 root netem delay "${1}us" 2>/dev/null; then
        switch tc qdisc add dev f2 root netem delay "${1}us"
        return
    fi
    [ -x "$T/delay" ] || cc -O2 -o "$T/delay" "$here/delay.c"
    for i in 1 2; do switch ip link set "f$i" nomaster; done
    setsid nsenter -t "$(cat "$T/switch.pid")" -n "$T/delay" f1 f2 "$1" \
        </dev/null >"$T/delay.log" 2>&1 &
    echo $! >"$T/delay.run"
    sleep 0.2
    kill -0 $! || die "$(cat "$T/delay.log")"
}

clock() {
    index "$1" >/dev/null
    cc -O2 -shared -fPIC -o "$T/shared/clock.so" "$here/clock.c" -ldl
    # shellcheck disable=SC2016
    (run_on "$1" sh -c 'cp "$1" /run/clock.so && echo "$2" >/run/clock-offset &&
        echo /run/clock.so >/etc/ld.so.preload' sh "$T/shared/clock.so" "$2")
}

verb=${1:-}
shift || true
case $verb in
can | up | host | keep) ;;
down | exec | pids | cut | blackhole | mend | firewall | delay | memory | clock | addr)
    [ -d "$T" ] || [ "$verb" = down ] || die "no testbed in TESTBED=$T"
    ;;
*)
    sed -n '4,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "$me"
    exit 2
    ;;
esac
case $verb in
exec) run_on "$@" ;;
cut) switch ip link set "f$(index "$1")" down ;;
blackhole) switch ip link set "f$(index "$1")" nomaster ;;
mend) switch ip link set "f$(index "$1")" master fabric up ;;
addr) addr "$(index "$1")" "$2" ;;
*) "$verb" "$@" ;;
esac
