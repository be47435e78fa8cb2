# SPDX-License-Identifier: Apache-2.0
# The wall clock of one server on a node, as libfaketime shows it to the server. Behind loop.sh.
#
#   ready FOLDER                            make the file of the offset, if it is missing
#   hold  FOLDER PART TTL PLAN...           a strike begins
#   end   FOLDER PART SLEW                  it ends. SLEW (ms): the offset goes to 0 in small steps in this time
#   state FOLDER PART                       SUM (us) VALUE (us, or -) LOOP (1: its loop runs)
#
# FOLDER/offset is the file that libfaketime reads: the sum of the files FOLDER/parts/PART, one for each strike, in
# microseconds. So strikes overlap, and each one heals alone. The file is replaced by rename: a reader never sees a part
# of it. The writer of a part holds FOLDER/lock.
#
# PLAN is `drift PPM` (the offset grows by so many microseconds a second), or `course US MS US MS ...`: each offset for
# so many milliseconds, then again from the start; one offset with 0 ms stays. What changes with time is done by a loop,
# a process of its own (loop.sh), until the part goes, or for TTL seconds.

command=$1 folder=$2 part=$3
shift 3

add_up() {      # `sum` := that of the parts
    local file value
    sum=0
    for file in "$folder"/parts/*; do
        read -r value < "$file" && sum=$((sum + value))
    done
}

publish() {     # the file of the offset := the sum of the parts
    local value size
    add_up
    size=${sum#-}
    value=+
    ((sum < 0)) && value=-
    printf '%s%d.%06d\n' "$value" "$((size / 1000000))" "$((size % 1000000))" > "$folder/offset.new" &&
        mv -fT -- "$folder/offset.new" "$folder/offset"
}

write_part() {  # the part := $1. Fails when it has been taken away: then its loop ends
    (
        flock 9 || exit 2
        [ -e "$folder/parts/$part" ] || exit 1
        printf '%d\n' "$1" > "$folder/parts/$part" && publish
    ) 9> "$folder/lock"
}

remove_part() {
    (
        flock 9 || exit 2
        rm -f -- "$folder/parts/$part" && publish
    ) 9> "$folder/lock"
}

drift() {
    local begin
    now_ms
    begin=$now
    while ((now < deadline)); do
        write_part "$(((now - begin) * $1 / 1000))" || return
        rest 250
        now_ms
    done
}

course() {
    local words=("$@") at=0
    now_ms
    while ((now < deadline)); do
        write_part "${words[at]}" || return
        rest "${words[at + 1]}"
        at=$(((at + 2) % ${#words[@]}))
        now_ms
    done
}

shopt -s nullglob
case $command in
    ready)
        mkdir -p -- "$folder/parts" "$folder/loops" || exit 1
        (flock 9 && publish) 9> "$folder/lock"
        ;;
    hold)
        ttl=$1
        shift
        [ -e "$folder/offset" ] || { echo "no $folder/offset: no server has this clock"; exit 1; }
        : > "$folder/parts/$part" || exit 1
        if [ "$1" = course ] && [ "$3" = 0 ]; then
            write_part "$2"
            exit
        fi
        start_loop loop "$folder" "$part" "$ttl" "$@"
        await test -s "$folder/parts/$part" && exit 0
        echo "the loop that moves the clock did not begin"
        exit 1
        ;;
    loop)
        now_ms
        deadline=$((now + $1 * 1000))
        shift
        note_loop "$folder/loops/$part.pid"
        "$@"
        rm -f -- "$folder/loops/$part.pid"
        remove_part
        ;;
    end)
        slew=$1
        [ -d "$folder" ] || exit 0
        end_loop "$folder/loops/$part.pid"
        if ((slew > 0)) && read -r value 2>/dev/null < "$folder/parts/$part"; then
            steps=$(((slew + 249) / 250))
            for ((i = 1; i < steps; i++)); do
                write_part "$((value * (steps - i) / steps))" || break
                rest 250
            done
        fi
        remove_part
        ;;
    state)
        [ -d "$folder" ] || { echo "0 - 0"; exit 0; }     # another fault has emptied the disk
        own=- running=0
        (
            flock 9
            add_up
            [ ! -s "$folder/parts/$part" ] || read -r own < "$folder/parts/$part"
            loop_runs "$folder/loops/$part.pid" && running=1
            echo "$sum $own $running"
        ) 9> "$folder/lock"
        ;;
esac
