#!/bin/sh
# SPDX-License-Identifier: MIT
# The program in each page of section 3, after a line `.\" build NAME`: it compiles as it stands, as C11 and as C++11, without
# a warning, the commands after `.\" run NAME` build and run it and print the lines after `.\" prints`, and it runs alone and on
# two workers.
# shellcheck disable=SC2086 # compilers are lists of words
. "${srcdir:-.}/tests/lib/cli.inc"
[ -e "$top/.libs/libddp.so" ] || skip "there is no shared library here"
source=$(cd "$here" && pwd)
cd "$work" || exit 99

# What readers have on their PATH: compilers, pkg-config and ddprun.
mkdir bin
warnings='-pedantic -Wall -Wextra -Werror'
tool() {
    printf '#!/bin/sh\n%s\n' "$2" >"bin/$1"
    chmod +x "bin/$1"
}
tool cc "PATH='$PATH' exec ${CC:-cc} ${DDP_SANITIZE:-} -std=c11 $warnings \"\$@\""
tool c++ "PATH='$PATH' exec ${CXX:-c++} ${DDP_SANITIZE:-} -std=c++11 $warnings -x c++ \"\$@\""
tool ddprun "exec '$ddprun' \"\$@\""
tool pkg-config "echo -I$source/src -L$top/.libs -Wl,-rpath,$top/.libs -lddp"
PATH=$work/bin:$PATH

# display MARK PAGE: the lines of the display after this mark
display() {
    awk -v mark=".\\\\\" $1" '$0 == mark { found = 1; next } found && /^\.Bd/ { code = 1; next } /^\.Ed/ { if (code) exit } code' "$2" |
        sed 's/\\e/\\/g; s/^\\&//'
}

for page in "$source"/man/*.3; do
    program=$(sed -n 's/^\.\\" build \([a-z]*\)$/\1/p' "$page")
    file=${page##*/}
    display "build $program" "$page" >"$program.c"
    display "run $program" "$page" >commands
    display prints "$page" >lines
    [ -s "$program.c" ] && [ -s commands ] || { fail "$file has no complete example"; continue; }
    compile=$(sed 1q commands)
    expect "$file, compiled" 0 '' sh -c "$compile"
    sed -e 1d -e ':again' -e '/\\$/ { N; s/\\\n *//; b again' -e '}' commands >runs
    [ -s runs ] || fail "$file does not say how its example is run"
    while read -r run; do
        expect "$file: $run" 0 '' sh -c "$run"
        while IFS= read -r line; do
            grep -qF -- "$line" out || fail "$file: $run: it does not print: $line"
        done <lines
    done <runs
    expect "$file, alone" 0 '' "./$program"
    if command -v ${CXX:-c++} >/dev/null; then
        expect "$file, compiled as C++" 0 '' sh -c "$(echo "$compile" | sed "s/^cc /c++ /; s/-o $program/-o $program++/")"
        expect "$file, C++ on 2 workers" 0 '' ddprun -n 2 "./$program++"
    fi
done
finish
