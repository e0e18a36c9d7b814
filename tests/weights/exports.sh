#!/bin/sh
# SPDX-License-Identifier: MIT
# Where results of a training can be written: directories and files that cannot be replaced (mount points, those of others,
# the working directory), disks without room at the beginning or in the end. What killed exports leave: check_hf_directory.c.
# shellcheck disable=SC2016  # the inner shells expand the variables
. "${srcdir:-.}/tests/lib/cli.inc"
make_text 30
train="$trainer --model llama --size d2 --data $work/text --seq-len 8 --batch-size 2 --threads 1 --no-eval --quiet"
one="$train --steps 1"

# whole DIR FILE: the model in it is the one that was saved by the same training
whole() {
    count=$((count + 1))
    "$trainer" --load "$1" --export "$work/again" --quiet >"$work/out" 2>&1 && cmp -s "$work/again/model.safetensors" "$2" ||
        fail "$name: $1 is not the model: $(head -n 3 "$work/out") $(ls -A "$1")"
    [ -z "$(find "$1" "$(dirname "$1")" -maxdepth 1 -name '.*ddprun*')" ] || fail "$name: something is left: $(ls -A "$1")"
}
expect "a directory" 0 '' $one --export "$work/plain"
model=$work/plain/model.safetensors
expect "a directory that is there" 0 '' $one --export "$work/plain"
whole "$work/plain" "$model"

# --- the directory itself stays, whoever it belongs to and whatever it is
mkdir -p "$work/group/.git"
echo mine >"$work/group/.git/config"
cp "$work/plain/config.json" "$work/group"
chmod 2770 "$work/group"
[ "$(id -u)" -ne 0 ] || chown 61873:61874 "$work/group"
! command -v setfacl >/dev/null || setfacl -m u:61875:rwx "$work/group" 2>/dev/null
stat -c '%i %u %g %a' "$work/group" >"$work/before"
(cd "$work/group" && expect "the working directory" 0 '' $one --export . && [ "$(stat -c %i .)" = "$(stat -c %i "$work/group")" ]) ||
    fail "the working directory is another one"
stat -c '%i %u %g %a' "$work/group" | cmp -s - "$work/before" || fail "the directory's owner or mode: $(stat "$work/group")"
[ "$(cat "$work/group/.git/config")" = mine ] || fail "a subdirectory is gone"
whole "$work/group" "$model"

if need_modes; then
    mkdir -p "$work/locked/dir"
    echo old >"$work/locked/weights"
    chmod 555 "$work/locked"
    expect "a parent that may not be written" 0 '' $heed_modes $one --export "$work/locked/dir" --save "$work/locked/weights"
    whole "$work/locked/dir" "$model"
    expect "a file in it" 0 '' $heed_modes $one --save "$work/locked/weights"
    expect "what was saved" 0 '' $one --load "$work/locked/weights"
    chmod 755 "$work/locked"
fi
user='setpriv --reuid 61873 --regid 61873 --clear-groups --inh-caps=-all'
if [ "$(id -u)" -eq 0 ] && chmod 755 "$work" && $user "$trainer" --version >/dev/null 2>&1; then
    mkdir -m 1777 "$work/sticky" "$work/sticky/dir"
    chmod 777 "$work/sticky/dir"
    cp "$work/plain/config.json" "$work/sticky/dir"
    expect "another's directory in a sticky one" 0 '' env XDG_CACHE_HOME="$work/sticky" $user $one --export "$work/sticky/dir"
    whole "$work/sticky/dir" "$model"
    mkdir -m 1777 "$work/sticky/all"
    cp "$work/plain/config.json" "$work/sticky/all"
    expect "another's files in a sticky directory" 4 'all/config.json: cannot write: it belongs to another user' \
        env XDG_CACHE_HOME="$work/sticky" $user $train --steps 100000000 --export "$work/sticky/all"
else
    not_run "directories of other users: this is not root"
fi

# --- mount points
for space in 'unshare -m' 'unshare -rm' none; do
    $space sh -c 'mount -t tmpfs none "$0"' "$work/group" 2>/dev/null && break
done
if [ "$space" != none ]; then
    # mounted NAME COMMANDS...: these, then a training that exports to $work/NAME/dir and saves to $work/NAME/weights
    mounted() {
        mkdir -p "$work/$1/dir" "$work/$1/lower" "$work/$1/upper" "$work/$1/at"
        cp "$work/plain/config.json" "$work/$1/dir"
        echo old and longer than that >"$work/$1/weights"
        expect "$1" 0 '' $space sh -c 'w=$0 train=$2; eval "$1" || exit 99; set -- $train; shift 0
            "$@" --export "$w/dir" --save "$w/weights"; code=$?
            cp -r "$w/dir" "$0/copy" && cp "$w/weights" "$0/saved" && exit $code' "$work/$1" "$2" "$one"
        whole "$work/$1/copy" "$model"
        expect "$1, saved" 0 '' $one --load "$work/$1/saved"
    }
    mounted bind 'mount --bind "$w/lower" "$w/dir" && mount --bind "$w/weights" "$w/weights"'
    mounted tmpfs 'mount -t tmpfs -o size=9m none "$w/dir"'
    if $space sh -c 'mount -t tmpfs none "$0" && mkdir "$0/l" "$0/u" "$0/w" "$0/d" &&
        mount -t overlay -o lowerdir="$0/l",upperdir="$0/u",workdir="$0/w" none "$0/d"' "$work/group" 2>/dev/null; then
        mounted overlay 'mv "$w/dir" "$w/weights" "$w/lower" && mount -t tmpfs none "$w/upper" && mkdir "$w/upper/u" "$w/upper/w" &&
            mount -t overlay -o lowerdir="$w/lower",upperdir="$w/upper/u",workdir="$w/upper/w" none "$w/at" && w=$w/at'
    else
        not_run "an overlay: none can be mounted here"
    fi

    # No room: said before the first step.
    mkdir "$work/disk"
    expect "no room" 4 'disk/dir/.ddprun-export/model.safetensors: cannot write it: it will have [0-9.]+ MB: No space left' \
        $space sh -c 'mount -t tmpfs -o size=64k none "$0" && "$@"' "$work/disk" $train --steps 100000000 --export "$work/disk/dir"
    expect "no room for a file" 4 'disk/w: cannot write it: it will have [0-9.]+ MB: No space left' \
        $space sh -c 'mount -t tmpfs -o size=64k none "$0" && "$@"' "$work/disk" $train --steps 100000000 --save "$work/disk/w"

    # A disk that is full in the end: the training waits for the reader of its log, who fills the disk at the first step.
    mkdir "$work/rescue"
    mkfifo "$work/log"
    cat >"$work/fill" <<'END'
mount -t tmpfs -o size=9m none "$0" || exit 99
fill=$0/fill log=$2
shift 2
exec 9<>"$log" # there is a reader from now on, however late the one below comes
{ while read -r line; do case $line in *'"step"'*) head -c 20m /dev/zero >"$fill"; cat >/dev/null ;; esac; done <"$log" 2>/dev/null; } 9>&- &
"$@" --log "$log" 9>&-
code=$?
exec 9>&-
wait
exit $code
END
    for way in "--export $work/disk/dir" "--save $work/disk/dir"; do
        rm -rf "$work/rescue"/*
        expect "full in the end: $way" 4 "warning: what was to be written there is in $work/rescue/ddprun-.*/dir$" \
            env TMPDIR="$work/rescue" $space sh -c '. "$1"' "$work/disk" "$work/fill" "$work/log" $train --steps 800 $way
        grep -q 'error: .*disk/.*: No space left' "$work/out" || fail "$name: $(cat "$work/out")"
        expect "what was rescued" 0 '' $one --load "$(echo "$work/rescue"/*/dir)"
    done
else
    not_run "mount points: nothing can be mounted here"
fi
expect "ulimit -f" 4 'no file may have more than [0-9.]+ MB: raise ulimit -f' \
    sh -c 'ulimit -f 1000; "$@"' sh $train --steps 100000000 --save "$work/limited"
finish
