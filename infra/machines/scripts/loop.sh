# SPDX-License-Identifier: Apache-2.0
# Functions of scripts that act on a node again and again until a lease ends. For bash, behind PROCESS_OF
# (infra.machines.node). The loop is a process of its own: an inject command starts it, the undo command ends it.

exec {quiet}<> <(:)     # nothing is written into it: reading with a limit is a sleep that starts no process

now_ms() {      # `now` := time since boot; no change of a clock moves it
    local up
    read -r up _ < /proc/uptime
    now=$((10#${up/./} * 10))
}

rest() {        # sleep for $1 ms
    local s
    (($1 > 0)) || return 0
    printf -v s '%d.%03d' "$(($1 / 1000))" "$(($1 % 1000))"
    read -r -t "$s" -u "$quiet"
    return 0
}

start_loop() {  # run this script again, with other arguments, as the leader of a session of its own
    setsid --fork bash --norc -c "$BASH_EXECUTION_STRING" "$0" "$@" < /dev/null > /dev/null 2>&1
}

note_loop() {   # called by the loop: it can be ended by the file $1
    printf '%s\n' "$$ $(started_of $$)" > "$1.new" && mv -fT -- "$1.new" "$1"
}

loop_runs() {   # `loop` := its process, by the file $1
    local started
    read -r loop started 2>/dev/null < "$1" && [ -n "$started" ] && [ "$(started_of "$loop")" = "$started" ]
}

end_loop() {    # by the file $1; nothing happens where it has ended
    local i
    for ((i = 0; i < 500; i++)); do
        loop_runs "$1" || break
        ((i > 0)) || kill -s KILL -- "-$loop"
        rest 10
    done
    rm -f -- "$1"
}

await() {       # up to 5 s, until the command is true
    local i
    for ((i = 0; i < 500; i++)); do
        "$@" && return 0
        rest 10
    done
    return 1
}
