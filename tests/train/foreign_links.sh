#!/bin/sh
# SPDX-License-Identifier: MIT
# Symbolic links of other users in directories where everybody may create files, such as /tmp: never written through.
. "${srcdir:-.}/tests/lib/cli.inc"
if [ "$(id -u)" -ne 0 ]; then
    echo "SKIP: only root can make links of other users"
    exit 77
fi
t="$trainer --quiet --model article --epochs 1"
echo "the quick brown fox jumps over the lazy dog, and so on" >"$work/text"
gpt2="$trainer --quiet --model gpt2 --layers 1 --heads 1 --channels 8 --seq-len 8 --steps 1 --no-eval --data $work/text"
chmod 755 "$work"
mkdir -m 1777 "$work/all"
mkdir -m 755 "$work/own"
echo precious >"$work/victim"
ln -s "$work/victim" "$work/all/foreign"
ln -s "$work/nothing" "$work/all/dangling.bin"
ln -s foreign "$work/all/second"
ln -s "$work/all/foreign" "$work/own/through"
chown -h 12345 "$work/all/foreign" "$work/all/dangling.bin"
refused='error: .*: cannot write: (it|.*all/foreign) is a symbolic link of another user, in a directory where everybody may create files'
expect "--save" 4 "$refused" $t --save "$work/all/foreign"
expect "--save, a second hop" 4 "$refused" $t --save "$work/all/second"
expect "--save, from elsewhere" 4 "$refused" $t --save "$work/own/through"
expect "--export, dangling" 4 "$refused" $gpt2 --export "$work/all/dangling.bin"
# Wherever the link stands in the path, and whatever is to be written there.
mkdir "$work/home" "$work/home/sub"
ln -s "$work/home" "$work/all/dir"
chown -h 12345 "$work/all/dir"
llama="$trainer --quiet --model llama --size d1 --seq-len 8 --steps 1 --no-eval --data $work/text"
inside='error: .*: cannot write: .*all/(dir|foreign) is a symbolic link of another user'
one='error: .*: cannot write: (it|.*all/(dir|foreign)) is a symbolic link of another user'
for option in log trace save checkpoint tensorboard; do
    expect "--$option" 4 "$one" $t --$option "$work/all/dir"
    expect "--$option, inside" 4 "$inside" $t --$option "$work/all/dir/x/y"
done
expect "--log of a file" 4 "$refused" $t --log "$work/all/foreign"
expect "--export of a directory" 4 "$one" $llama --export "$work/all/dir"
expect "--export of a directory, inside" 4 "$inside" $llama --export "$work/all/dir/sub"
expect "--log-dir" 125 "$one" "$ddprun" -n 1 --log-dir "$work/all/dir" true
[ "$(find "$work/home" | wc -l)" -eq 2 ] || fail "written through a link: $(find "$work/home")"
[ "$(cat "$work/victim")" = precious ] || fail "the victim was written"
[ ! -e "$work/nothing" ] || fail "a file was made through a link"
# Allowed: one's own links, the directory owner's, and all of them elsewhere.
ln -s "$work/mine" "$work/all/own"
expect "one's own link" 0 '' $t --save "$work/all/own"
[ -s "$work/mine" ] && [ -L "$work/all/own" ] || fail "one's own link was not followed"
chown 12345 "$work/all"
expect "the directory owner's" 0 '' $t --save "$work/all/foreign"
chown 0 "$work/all"
chmod 755 "$work/all"
expect "in a directory of few" 0 '' $t --save "$work/all/foreign"
finish
