#!/usr/bin/env bash
# cmake/compile-once.cmake: kernels are compiled once for several build folders, and again after
# each change that matters. A stand-in takes the place of nvcc: it lists files as a compiler does,
# logs each compilation and writes the preprocessed text. Usage: test_compile_once.sh BUILD_DIR
# shellcheck source=tests/support/test.inc.sh
. "$(dirname "$0")/../../support/test.inc.sh" "$1"
needs_command cmake ninja cc

# ---- a project of two kernels, in a folder whose name has a space ----
tree="$work/a tree"
mkdir "$tree"
cat >"$tree/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(kernels NONE)
include("$root/cmake/compile-once.cmake")
foreach(name one two)
    ferry_compile_once(\${PROJECT_BINARY_DIR}/\${name}.fatbin \${PROJECT_SOURCE_DIR}/\${name}.cu
                       \${LAUNCHER} -- "$work/nvcc" \${FLAGS} -Ifirst -I\${PROJECT_SOURCE_DIR})
    add_custom_target(\${name} ALL DEPENDS \${PROJECT_BINARY_DIR}/\${name}.fatbin)
endforeach()
END
printf '#include <both.h>\n#include "only_one.h"\none ONE BOTH\n' >"$tree/one.cu"
printf '#include <both.h>\ntwo BOTH\n' >"$tree/two.cu"
echo '#define BOTH 1' >"$tree/both.h"
one() { echo "#define ONE $1" >"$tree/only_one.h"; }
one 1
echo 'release 1' >"$work/version"
# $work/hook, if it is there, runs in the middle of a compilation.
{
    printf "#!/usr/bin/env bash\nwork='%s'\n" "$work"
    cat <<'END'
if [ "$*" = --version ]; then exec cat "$work/version"; fi
arguments=()
output= source=
while [ $# -gt 0 ]; do
    case $1 in
    -o) output=$2 && shift ;;
    -MF | -MT) arguments+=("$1" "$2") && shift ;;
    -M | -I*) arguments+=("$1") ;;
    *.cu) source=$1 ;;
    esac
    shift
done
if [ -z "$output" ]; then exec cc -x c "${arguments[@]}" "$source"; fi
echo "${source##*/}" >>"$work/log"
echo half >"$output"
if [ -e "$work/hook" ]; then . "$work/hook"; fi
cc -x c -E -P "${arguments[@]}" "$source" -o "$output"
END
} >"$work/nvcc"
chmod +x "$work/nvcc"

# configure FOLDER [-DNAME=VALUE...]
configure() { cmake -G Ninja -S "$tree" -B "$@" >"$work/said" 2>&1 || fail "cmake -B $*: $(cat "$work/said")"; }
# has FOLDER ONE TWO: the texts of its two results
has() {
    local texts
    texts=$(tail -qn 1 "$1/one.fatbin" "$1/two.fatbin" | tr '\n' ,)
    [ "$texts" = "$2,$3," ] || fail "${1##*/} has '$texts', not '$2,$3,'"
}
# build FOLDER COMPILED ONE TWO: compiles these files; then the folder has these texts.
build() {
    local compiled
    : >"$work/log"
    ninja -C "$1" >"$work/said" 2>&1 || fail "${1##*/} is not built: $(tail -n 5 "$work/said")"
    compiled=$(sort "$work/log" | tr '\n' ' ')
    [ "$compiled" = "$2" ] || fail "${1##*/} compiled '$compiled', not '$2'"
    has "$1" "$3" "$4"
}
results() { find "$tree/build/kernels/$1.fatbin" -type f; }
dev=$tree/build/dev release=$tree/build/release

# ---- once for all folders; flags that make warnings errors are no difference ----
configure "$dev" -DFLAGS=-Werror=all-warnings
configure "$release"
build "$dev" 'one.cu two.cu ' 'one 1 1' 'two 1'
build "$release" '' 'one 1 1' 'two 1'
build "$dev" '' 'one 1 1' 'two 1'
configure "$work/elsewhere"
build "$work/elsewhere" 'one.cu two.cu ' 'one 1 1' 'two 1'
[ -d "$work/elsewhere/kernels" ] || fail "a folder outside build/ has no results of its own"

# ---- each change that matters ----
one 2
build "$dev" 'one.cu ' 'one 2 1' 'two 1'
build "$release" '' 'one 2 1' 'two 1'
echo '#define BOTH 2' >"$tree/both.h"
build "$release" 'one.cu two.cu ' 'one 2 2' 'two 2'
build "$dev" '' 'one 2 2' 'two 2'
sed -i 's/^two/two changed/' "$tree/two.cu"
build "$dev" 'two.cu ' 'one 2 2' 'two changed 2'
mkdir "$tree/first" # has a header that hides another one; nothing else is changed
echo '#define BOTH 3' >"$tree/first/both.h"
configure "$tree/build/hidden"
build "$tree/build/hidden" 'one.cu two.cu ' 'one 2 3' 'two changed 3'
rm -r "$tree/first"
configure "$tree/build/flags" -DFLAGS=-arch=sm_90
build "$tree/build/flags" 'one.cu two.cu ' 'one 2 2' 'two changed 2'
export NVCC_APPEND_FLAGS=-G
configure "$tree/build/variable"
build "$tree/build/variable" 'one.cu two.cu ' 'one 2 2' 'two changed 2'
unset NVCC_APPEND_FLAGS
echo 'release 2' >"$work/version"
configure "$tree/build/version"
build "$tree/build/version" 'one.cu two.cu ' 'one 2 2' 'two changed 2'

# ---- a launcher sees -c, and what a preprocessed text lacks ----
cat >"$work/launcher" <<END
#!/usr/bin/env bash
[[ " \$* " = *' -c '* ]] && [ -s "\$CCACHE_EXTRAFILES" ] && echo launched >>'$work/log'
exec "\$@"
END
chmod +x "$work/launcher"
configure "$tree/build/launcher" "-DLAUNCHER=env;A=1;$work/launcher"
build "$tree/build/launcher" '' 'one 2 2' 'two changed 2'
one 3
build "$tree/build/launcher" 'launched one.cu ' 'one 3 2' 'two changed 2'
build "$dev" '' 'one 3 2' 'two changed 2'

# ---- of each name four results are kept ----
for i in 10 11 12 13 14 15; do
    one $i
    build "$dev" 'one.cu ' "one $i 2" 'two changed 2'
done
[ "$(results one | wc -l)" -eq 4 ] || fail "$(results one | wc -l) results of one.cu are kept, not 4"

# ---- a compilation that ends in its middle ----
i=20
for end in 'exit 1' "kill -TERM \$PPID; exit 1" "kill -KILL \$PPID; exit 1"; do
    one $((++i))
    echo "$end" >"$work/hook"
    if ninja -C "$dev" >"$work/said" 2>&1; then fail "the build does not notice '$end'"; fi
    rm "$work/hook"
    if grep -qsx half "$dev/one.fatbin"; then fail "'$end' leaves half a file"; fi
    if [[ "$end" != *KILL* ]] && ls -d "$tree"/build/kernels/*/new.* 2>/dev/null; then fail "'$end' leaves a folder"; fi
    build "$release" 'one.cu ' "one $i 2" 'two changed 2'
    build "$dev" '' "one $i 2" 'two changed 2'
done

# ---- results that are not stored: with a warning, and of a file that changed meanwhile ----
one 30
echo 'echo a warning' >"$work/hook"
build "$dev" 'one.cu ' 'one 30 2' 'two changed 2'
grep -q '^a warning' "$work/said" || fail "the warning is lost"
rm "$work/hook"
build "$release" 'one.cu ' 'one 30 2' 'two changed 2'
one 31
echo "echo '#define ONE 32' >'$tree/only_one.h'" >"$work/hook"
build "$dev" 'one.cu ' 'one 32 2' 'two changed 2'
rm "$work/hook"
one 31
build "$release" 'one.cu ' 'one 31 2' 'two changed 2'

# ---- a damaged result ----
results one | while read -r file; do : >"$file"; done
configure "$tree/build/damaged"
build "$tree/build/damaged" 'one.cu ' 'one 31 2' 'two changed 2'

# ---- two builds at once: both have begun before one ends ----
one 40
: >"$work/log"
echo "for i in {1..100}; do [ \$(wc -l <'$work/log') -lt 2 ] || break; sleep 0.1; done" >"$work/hook"
ninja -C "$dev" >"$work/said.dev" 2>&1 &
ninja -C "$release" >"$work/said" 2>&1 || fail "a build at the same time: $(tail -n 5 "$work/said")"
wait $! || fail "a build at the same time: $(tail -n 5 "$work/said.dev")"
rm "$work/hook"
[ "$(wc -l <"$work/log")" -eq 2 ] || fail "not both have compiled: $(cat "$work/log")"
has "$dev" 'one 40 2' 'two changed 2'
has "$release" 'one 40 2' 'two changed 2'
configure "$tree/build/third"
build "$tree/build/third" '' 'one 40 2' 'two changed 2'
