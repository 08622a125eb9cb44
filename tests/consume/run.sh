#!/usr/bin/env bash
# Installs a build, moves the installed tree, and uses it as applications do: CMake, pkg-config,
# C++, dlopen, Rust, Python. Consumers in C also check which library provides malloc and operator new.
# Usage: tests/consume/run.sh BUILD
set -u

build=$(cd "${1:?usage: tests/consume/run.sh BUILD}" && pwd) || exit 2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
unset LD_LIBRARY_PATH LD_PRELOAD FERRY_PLUGIN_PATH CFLAGS CPPFLAGS LDFLAGS

passed=0 failed=0 skipped=0
try() { # try NAME COMMAND...
    local name=$1
    shift
    if "$@" >"$temp/log" 2>&1; then
        echo "PASS $name" && passed=$((passed + 1))
    else
        echo "FAIL $name (exit $?)" && sed 's/^/    /' "$temp/log" | tail -n 25 && failed=$((failed + 1))
        return 1
    fi
}
skip() { echo "SKIP $1: $2" && skipped=$((skipped + 1)); }

# install_manifest.txt in the build is of the last installation: other runs of this wait.
try "install" flock "$build" cmake --install "$build" --prefix "$temp/first" || exit 1
mv "$temp/first" "$temp/ferry"
prefix=$temp/ferry
library=$(find "$prefix" -name libferry.so | head -n 1)
libdir=$(dirname "$library")
export PKG_CONFIG_PATH=$libdir/pkgconfig

# Properties of the file itself.
dynamic() { readelf -dW "$library"; }
try "SONAME is libferry.so.0" grep -q 'SONAME.*\[libferry\.so\.0\]' <(dynamic)
try "stays loaded (-z nodelete)" grep -q NODELETE <(dynamic)
# shellcheck disable=SC2016  # the inner shells expand
{
    try "does not need jemalloc" sh -c '! readelf -dW "$1" | grep -q "NEEDED.*jemalloc"' _ "$library"
    try "no static TLS: can be dlopened" sh -c '! readelf -dW "$1" | grep -q STATIC_TLS' _ "$library"
    try "refers to mallocx weakly" sh -c 'nm -D "$1" | grep -Eq " w mallocx"' _ "$library"
    try "every header is installed" sh -c 'cd "$1" && for h in *.h *.hpp; do test -e "$2/$h" || { echo "$h"; exit 1; }; done' _ \
        "$here/../../include/ferry" "$prefix/include/ferry"
}

if try "CMake: configure" cmake -S "$here/cmake" -B "$temp/cmake" -DCMAKE_PREFIX_PATH="$prefix" &&
    try "CMake: build" cmake --build "$temp/cmake"; then
    try "CMake: run" "$temp/cmake/plain"
    try "CMake: run with ferry::jemalloc" "$temp/cmake/with_jemalloc"
    if [ -e "$temp/cmake/train" ]; then try "CMake: run with ferry::train" "$temp/cmake/train"; fi
    # shellcheck disable=SC2016  # the inner shells expand
    for program in static train_static; do
        try "CMake: run $program" "$temp/cmake/$program"
        try "CMake: $program needs no libferry.so" sh -c '! readelf -dW "$1" | grep "NEEDED.*libferry"' _ "$temp/cmake/$program"
    done
fi

if try "pkg-config: build" make -s -C "$here/pkgconfig" OUT="$temp"; then
    try "pkg-config: run" "$temp/consumer"
fi
# With both kinds in one folder the linker takes the shared one; here are only the archives.
cp -r "$prefix" "$temp/archives"
find "$temp/archives" -name 'libferry*.so*' -delete
static=${libdir/#$prefix/$temp/archives}/pkgconfig
# shellcheck disable=SC2046  # one word per option is meant
if try "pkg-config --static: build" cc -std=c11 -Wall -Wextra -Werror "$here/cmake/main.c" -o "$temp/archived" -Wl,-u,fy_model_open -rdynamic \
    $(PKG_CONFIG_PATH=$static pkg-config --static --cflags --libs ferry-train); then
    try "pkg-config --static: run" "$temp/archived"
fi
# shellcheck disable=SC2046
if try "-flto: build with the archive" cc -O2 -flto -std=c11 -Wall -Wextra -Werror "$here/cmake/main.c" -o "$temp/lto" -Wl,-u,fy_model_open -rdynamic \
    $(PKG_CONFIG_PATH=$static pkg-config --static --cflags --libs ferry-train); then
    try "-flto: run" "$temp/lto"
fi
try "pkg-config: version" pkg-config --exact-version=0.1.0 ferry

# shellcheck disable=SC2046  # one word per option is meant
if try "C++: build" c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags ferry) "$here/cxx/main.cpp" -o "$temp/cxx" \
    $(pkg-config --libs ferry) -Wl,-rpath,"$libdir" -ldl; then
    try "C++: run" "$temp/cxx"
fi

for option in -fexceptions -fno-exceptions; do
    # shellcheck disable=SC2046
    if try "C++ objects: build with $option" c++ -std=c++17 "$option" -Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags ferry) \
        "$here/cxx/raii.cpp" -o "$temp/raii" $(pkg-config --libs ferry) -Wl,-rpath,"$libdir"; then
        try "C++ objects: run" "$temp/raii"
    fi
done

# shellcheck disable=SC2046
if try "dlopen: build" cc -std=gnu11 -Wall -Wextra -Werror $(pkg-config --cflags ferry) "$here/dlopen/main.c" -o "$temp/dlopen" -ldl -pthread; then
    try "dlopen: RTLD_LOCAL, dlclose under a living thread" "$temp/dlopen" local "$library"
    try "dlopen: RTLD_GLOBAL, dlclose under a living thread" "$temp/dlopen" global "$library"
    try "dlopen: no room left for static TLS" env GLIBC_TUNABLES=glibc.rtld.optional_static_tls=0 "$temp/dlopen" local "$library"
fi

# Declarations only: what remains of all headers without macros. No function is only an inline one.
(cd "$prefix/include" && find ferry -name '*.h' | LC_ALL=C sort | sed 's/.*/#include <&>/') >"$temp/all.c"
if try "no macros: preprocess" cc -std=gnu11 -E -P -I"$prefix/include" "$temp/all.c" -o "$temp/all.i"; then
    # shellcheck disable=SC2016  # the inner shell expands
    try "no macros: no inline functions" sh -c '! grep -E "inline[^;]*fy_" "$1"' _ "$temp/all.i"
    cat "$temp/all.i" "$here/nomacros/main.c" >"$temp/nomacros.i"
    if try "no macros: build" cc -std=gnu11 -fpreprocessed "$temp/nomacros.i" -o "$temp/nomacros" -L"$libdir" -lferry -Wl,-rpath,"$libdir"; then
        try "no macros: run" "$temp/nomacros"
    fi
fi

# The programs of docs/linking.md, and the output that the page has: the first line behind a `$ `.
# shellcheck source=/dev/null
page_program() { # page_program LANGUAGE: the program's file
    awk -v fence="\`\`\`$1" '$0 == fence { on = 1; next } /^```/ { on = 0 } on' "$page" >"$temp/page.$1"
    awk -v fence="\`\`\`$1" '$0 == fence { on = 1 } on && answer && !/^\$/ { print; exit } on && /^\$/ { answer = 1 }' "$page" >"$temp/page.$1.out"
    [ -s "$temp/page.$1" ] && [ -s "$temp/page.$1.out" ]
}
page_prints() { [ -s "$temp/page.$1.out" ] && "${@:2}" | diff "$temp/page.$1.out" -; }
page=$prefix/share/doc/ferry/docs/linking.md
for language in cpp rust python; do try "docs/linking.md: has a program in $language" page_program $language; done
# shellcheck disable=SC2046
if try "docs/linking.md: build C++" c++ -std=c++17 $(pkg-config --cflags ferry) -x c++ "$temp/page.cpp" -o "$temp/page_cxx" $(pkg-config --libs ferry) \
    -Wl,-rpath,"$libdir"; then
    try "docs/linking.md: C++ prints what the page has" page_prints cpp "$temp/page_cxx"
fi

rust=(rustc --edition 2021 -D warnings -L "$libdir" -l ferry -C "link-arg=-Wl,-rpath,$libdir")
if ! rustc --version >/dev/null 2>&1; then
    skip "Rust" "no rustc here"
else
    if try "docs/linking.md: build Rust" "${rust[@]}" "$temp/page.rust" -o "$temp/page_rust"; then
        try "docs/linking.md: Rust prints what the page has" page_prints rust "$temp/page_rust"
    fi
    # Declarations that a generator makes of all headers.
    if ! command -v bindgen >/dev/null 2>&1; then
        skip "Rust: bindgen" "no bindgen here"
    elif try "Rust: bindgen reads all headers" bindgen "$temp/all.c" -o "$temp/bindings.rs" --no-prepend-enum-name --no-layout-tests \
        --allowlist-function 'fy.*' --allowlist-type 'fy.*' --allowlist-var 'FY.*' -- -I"$prefix/include" &&
        try "Rust: build with bindgen's declarations" env FERRY_BINDINGS="$temp/bindings.rs" "${rust[@]}" "$here/rust/main.rs" -o "$temp/rust"; then
        try "Rust: run" "$temp/rust"
    fi
fi

if command -v python3 >/dev/null 2>&1; then
    try "docs/linking.md: Python prints what the page has" page_prints python env LD_LIBRARY_PATH="$libdir" python3 "$temp/page.python"
else
    skip "docs/linking.md: Python" "no python3 here"
fi

if [ -x "$prefix/bin/ferry" ]; then try "the installed command runs" "$prefix/bin/ferry" info --json; fi

# The installed pages and examples.
docs=$prefix/share/doc/ferry
examples() {
    local source
    for source in "$docs"/examples/*.c "$docs"/examples/framework/*.c; do
        # shellcheck disable=SC2046
        cc -std=gnu11 -Wall -Wextra -Werror -I"$docs" "$source" -o "$temp/$(basename "$source" .c)" $(pkg-config --cflags --libs ferry-train) \
            -Wl,-rpath,"$libdir" -lm -pthread || return 1
    done
    "$temp/01_linear" | grep '^traffic: '
}
try "the installed examples compile, the first one runs" examples
for file in README.md LICENSE docs/cli.md docs/pictures/memory.svg; do try "installed: $file" test -s "$docs/$file"; done
if command -v python3 >/dev/null; then try "installed: pages have no dead link" python3 "$here/links.py" "$docs"; fi
if [ -x "$prefix/bin/ferry" ]; then try "installed: the manual page" grep -q '^\.TH FERRY 1' "$prefix/share/man/man1/ferry.1"; fi
# Nothing installed names the folder of the build or the prefix of the installation.
# shellcheck disable=SC2016  # the inner shell expands
try "nothing installed names its first folder" sh -c '! grep -rlF -e "$1" -e "$2" "$3"' _ "$temp/first" "$build" "$prefix"

# Uninstalling removes the installed files, and no others.
uninstalls() (
    exec 9<"$build" && flock 9
    mkdir -p "$temp/second/share/doc/ferry" && echo kept >"$temp/second/share/doc/ferry/own.txt"
    DESTDIR=$1 cmake --install "$build" --prefix "$temp/second" && test -n "$(find "$1$temp/second" -name libferry.so)" || return 1
    DESTDIR=$1 cmake -DMANIFEST="$build/install_manifest.txt" -P "$here/../../cmake/uninstall.cmake" || return 1
    find "$1$temp/second" ! -type d | diff - <([ "$1" ] || echo "$temp/second/share/doc/ferry/own.txt") &&
        [ "$(find "$1$temp/second" -path '*/ferry/*' -type d | wc -l)" -eq 0 ]
)
try "uninstall: leaves the files of others" uninstalls ""
try "uninstall: below DESTDIR" uninstalls "$temp/stage"

echo "consume: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
