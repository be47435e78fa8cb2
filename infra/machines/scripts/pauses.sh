# SPDX-License-Identifier: Apache-2.0
# Pauses of one process, again and again, behind loop.sh and the functions of infra.machines.primitives.process.
#
#   hold FOLDER TTL PID STARTED MS MS...    stop the process for so many milliseconds, let it run for so many, ...
#   end  FOLDER PID STARTED                 no more pauses; the process goes on
#
# FOLDER/loop.pid names the loop. The numbers are repeated from the first one. FOLDER/log has a line for each pause that is over: from the moment when
# every thread was seen stopped to SIGCONT, in milliseconds. A process that another fault has stopped is left alone.

command=$1 folder=$2
shift 2

case $command in
    hold)
        mkdir -p -- "$folder" && : > "$folder/log" || exit 1
        [ "$(started_of "$2")" = "$3" ] || { echo "process $2 is gone"; exit 1; }
        start_loop loop "$folder" "$@"
        await test -s "$folder/loop.pid" && exit 0
        echo "the loop that pauses process $2 did not begin"
        exit 1
        ;;
    loop)
        now_ms
        deadline=$((now + $1 * 1000)) pid=$2 started=$3
        shift 3
        words=("$@") at=0
        note_loop "$folder/loop.pid"
        while ((now < deadline)) && [ "$(started_of "$pid")" = "$started" ]; do
            if ! is_stopped "$pid"; then
                : > "$folder/stopped"       # before SIGSTOP: the end of this loop then continues the process
                stop_all "$pid" || break
                now_ms
                begin=$now
                echo "$begin" > "$folder/stopped"
                rest "${words[at]}"
                now_ms
                kill -s CONT "$pid"
                rm -f -- "$folder/stopped"
                echo "$((now - begin))" >> "$folder/log"
            fi
            rest "${words[at + 1]}"
            at=$(((at + 2) % ${#words[@]}))
            now_ms
        done
        [ ! -e "$folder/stopped" ] || kill -s CONT "$pid"
        rm -f -- "$folder/stopped" "$folder/loop.pid"
        ;;
    end)
        end_loop "$folder/loop.pid"
        [ -e "$folder/stopped" ] || exit 0
        now_ms
        [ "$(started_of "$1")" != "$2" ] || kill -s CONT "$1" || exit 1
        read -r begin < "$folder/stopped" && echo "$((now - begin))" >> "$folder/log"
        rm -f -- "$folder/stopped"
        ;;
esac
