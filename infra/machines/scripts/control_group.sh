# SPDX-License-Identifier: Apache-2.0
# Control groups of strikes, on the host of a node. Run by bash as root. Both versions of control groups; PROC is the
# folder of proc(5).
#
#   find PROC CONTROLLER NS PID...          first line: VERSION MOUNT; then for each process: HOSTPID GROUP
#   hold PROC VERSION MOUNT GROUP FILE=VALUE... -- HOSTPID...      make a group, set its limits, move processes there
#   end  PROC VERSION MOUNT GROUP ORIGIN FILE=VALUE... -- HOSTPID=GROUP...     set the limits, move all back, remove it
#   run  PROC VERSION MOUNT GROUP COMMAND...                       run a command in a group
#   empty PROC VERSION MOUNT GROUP NS          reclaim what is charged to a group, if it has only processes of the node
#
# NS is the host's pid of a process in the node's pid namespace, and PIDs are counted there; `-`: the node is the host.
# GROUP and ORIGIN are paths below MOUNT. The group of a strike stands beside the processes' own one, as version 2 has no
# groups with both processes and groups in them. A process whose own group is the root moves below it.

command=$1 proc=$2
shift 2

complain() {
    echo "$1"
    exit 1
}

mount_of() {    # mountpoint of a controller, and the version of its control groups, in `mount` and `version`
    local line place options type super
    version= mount=
    while read -r line; do
        read -r _ _ _ _ place options _ <<< "${line%% - *}"
        read -r type _ super <<< "${line#* - }"
        case $type in
            cgroup) case ,$super, in *,"$1",*) version=1 mount=$place; return ;; esac ;;
            cgroup2) case " $(cat -- "$place/cgroup.controllers" 2>/dev/null) " in *" $1 "*) version=2 mount=$place ;; esac ;;
        esac
    done < "$proc/self/mountinfo"
    [ -n "$mount" ]
}

group_of() {    # the control group of a process of the host, in `group`
    local line
    group=
    while read -r line; do
        case $version:$line in
            1:*) case ,$(cut -d : -f 2 <<< "$line"), in *,"$controller",*) group=${line#*:*:} ;; esac ;;
            2:0::*) group=${line#0::} ;;
        esac
    done 2>/dev/null < "$proc/$1/cgroup"
    [ -n "$group" ]
}

set_files() {   # FILE=VALUE... of a group; stops at `--`
    local word
    for word; do
        [ "$word" != -- ] || return 0
        # The shell's own message goes away: it says where in this script it was.
        { printf '%s\n' "${word#*=}" > "$mount$group/${word%%=*}"; } 2>/dev/null ||
            { echo "cannot write ${word#*=} to $mount$group/${word%%=*}"; return 1; }
    done
}

move() {        # a process to a group
    { printf '%s\n' "$1" > "$mount$2/cgroup.procs"; } 2>/dev/null
}

case $command in
    find)
        controller=$1 ns=$2
        shift 2
        mount_of "$controller" || complain "no control groups have the controller $controller here"
        echo "$version $mount"
        if [ "$ns" != - ]; then
            inside=$(readlink "$proc/$ns/ns/pid") || complain "process $ns is gone"
            declare -A host_pid
            while read -r link name; do
                [ "$link" = "$inside" ] || continue
                name=${name%/ns/pid}
                while read -r key numbers; do
                    [ "$key" != NSpid: ] || host_pid[${numbers##*[[:space:]]}]=${name##*/}
                done 2>/dev/null < "$name/status"
            done < <(find "$proc"/[0-9]*/ns/pid -maxdepth 0 -printf '%l %p\n' 2>/dev/null)
        fi
        for pid; do
            [ "$ns" = - ] || pid=${host_pid[$pid]}
            [ -n "$pid" ] && group_of "$pid" && echo "$pid $group"
        done
        exit 0
        ;;
    hold)
        version=$1 mount=$2 group=$3
        shift 3
        if [ "$version" = 2 ]; then     # a controller is there for a group's children when each group above passes it on
            at=$mount
            IFS=/ read -r -a names <<< "${group#/}"
            unset 'names[-1]'
            controller=${1%%.*}
            for name in "" "${names[@]}"; do
                at=$at${name:+/$name}
                case " $(cat -- "$at/cgroup.subtree_control") " in
                    *" $controller "*) ;;
                    *) { echo "+$controller" > "$at/cgroup.subtree_control"; } 2>/dev/null ||
                        complain "$at does not pass the controller $controller on" ;;
                esac
            done
        fi
        mkdir -- "$mount$group" 2>/dev/null || complain "cannot make $mount$group"
        set_files "$@" || exit 1
        while [ "$1" != -- ]; do shift; done
        shift
        moved=0
        for pid; do move "$pid" "$group" && moved=1; done
        [ $# = 0 ] || [ "$moved" = 1 ] || complain "no process could be moved to $mount$group"
        exit 0
        ;;
    end)
        version=$1 mount=$2 group=$3 origin=$4
        shift 4
        [ -d "$mount$group" ] || exit 0
        set_files "$@"      # first: who waits for memory goes on
        while [ "$1" != -- ]; do shift; done
        shift
        declare -A back
        for word; do back[${word%%=*}]=${word#*=}; done
        for ((i = 0; i < 200; i++)); do     # 10 s: children that were born meanwhile, and who is just ending
            while read -r pid; do
                to=${back[$pid]-$origin}
                [ -d "$mount$to" ] || to=$origin    # of an overlapping strike that is over
                move "$pid" "$to"
            done < "$mount$group/cgroup.procs"
            rmdir -- "$mount$group" 2>/dev/null && exit 0
            [ -d "$mount$group" ] || exit 0
            sleep 0.05
        done
        complain "cannot remove $mount$group: $(wc -l < "$mount$group/cgroup.procs") processes are left in it"
        ;;
    run)
        mount=$2 group=$3
        shift 3
        move $$ "$group" || complain "cannot enter $mount$group"
        exec "$@"
        ;;
    empty)
        version=$1 mount=$2 group=$3
        inside=$(readlink "$proc/$4/ns/pid") || complain "process $4 is gone"
        [ -n "${group#/}" ] || exit 0
        while read -r pid; do
            [ "$(readlink "$proc/$pid/ns/pid")" = "$inside" ] || exit 0
        done < "$mount$group/cgroup.procs"
        if [ "$version" = 1 ]; then
            set_files memory.force_empty=0
        else
            set_files "memory.reclaim=$(cat -- "$mount$group/memory.current")"
        fi
        exit 0      # what cannot be reclaimed stays
        ;;
esac
