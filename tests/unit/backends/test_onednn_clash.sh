#!/usr/bin/env bash
# A program that has Ferry and a library with oneDNN's templates inside, as PyTorch's is: products
# and convolutions are oneDNN's, and right, in any order of the libraries. And a oneDNN that cannot
# be opened: the same results by Ferry's loops, with the reason in the log.
# Usage: test_onednn_clash.sh BUILD_DIR
# shellcheck source=tests/support/test.inc.sh
. "$(dirname "$0")/../../support/test.inc.sh" "$1"
needs lib/libferry.so
needs_command cc c++ nm readelf
grep -q '^FERRY_DNNL:[A-Z]*=OFF' "$build/CMakeCache.txt" && skip "this build has no oneDNN"
needed=$(readelf -dW "$build/lib/libferry.so")
grep -qE 'NEEDED.*(asan|tsan|ubsan|libomp)' <<<"$needed" && skip "with a sanitizer or libomp oneDNN is opened without RTLD_DEEPBIND"
grep -q 'NEEDED.*dnnl' <<<"$needed" && fail "libferry.so is linked to oneDNN"
onednn=$(sed -n 's/^DNNL_LIBRARY:[A-Z]*=//p' "$build/CMakeCache.txt")

# The weak functions that oneDNN exports for its own templates, each of which ends the process. oneDNN
# 3.7 of Debian 13 exports none: there the programs that have libclash are as the others.
nm -D --defined-only "$onednn" | awk '$2 == "W" && /dnnl/ { print $3 }' >"$work/names"
awk 'BEGIN { print "#include <unistd.h>" }
     { printf "void f%d(void) __asm__(\"%s\");\nvoid f%d(void) { _exit(9); }\n", NR, $1, NR }' "$work/names" >"$work/clash.c"
cc -shared -fPIC -o "$work/libclash.so" "$work/clash.c" || fail "libclash.so was not built"

cat >"$work/program.c" <<'END'
#include <dlfcn.h>
#include <ferry/ferry.h>
#include <stdio.h>
#include <string.h>

static void log_line(void *user, fy_log_level_t level, const char *text)
{
    (void)user, (void)level;
    printf("log: %s\n", text);
}
static void fact(void *user, const char *key, const char *value)
{
    (void)user;
    if (strcmp(key, "last_product") == 0) printf("by %s\n", value);
}
static fy_status_t run(fy_device_t *host)
{
    fy_tensor_t *a, *x, *w, *c, *y;
    const fy_conv2d_attrs_t attrs = FY_CONV2D_ATTRS_INIT;
    void *data;
    FY_TRY(fy_full(host, FY_DTYPE_F32, FY_DIMS(64, 64), 2, &a));
    FY_TRY(fy_matmul(a, a, &c));
    FY_TRY(fy_tensor_map(c, FY_ACCESS_READ, &data));
    printf("product %g\n", ((float *)data)[63 * 64 + 63]);
    FY_TRY(fy_device_describe(host, fact, NULL));
    FY_TRY(fy_full(host, FY_DTYPE_F32, FY_DIMS(2, 12, 12, 16), 1, &x));
    FY_TRY(fy_full(host, FY_DTYPE_F32, FY_DIMS(16, 3, 3, 16), 1, &w));
    FY_TRY(fy_conv2d(x, w, NULL, &attrs, &y));
    FY_TRY(fy_tensor_map(y, FY_ACCESS_READ, &data));
    printf("convolution %g\n", ((float *)data)[99]);
    return fy_device_describe(host, fact, NULL);
}
int main(int argc, char **argv)
{
    fy_device_t *host;
    if (argc > 1 && !dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL)) return puts(dlerror()), 1;
    fy_log_set(log_line, NULL);
    if (fy_device_open("host", &host) == FY_STATUS_OK && run(host) == FY_STATUS_OK) return 0;
    return puts(fy_error_get()->text), 1;
}
END
# Its `operator delete` ends the process if `operator new` did not allocate the memory.
cat >"$work/new.cpp" <<'END'
#include <cstdlib>
#include <new>

struct alignas(16) header {
    const void *self;
};
void *operator new(std::size_t nbytes)
{
    header *memory = static_cast<header *>(std::malloc(sizeof(header) + nbytes));
    if (!memory) throw std::bad_alloc();
    memory->self = memory;
    return memory + 1;
}
void operator delete(void *data) noexcept
{
    header *memory = static_cast<header *>(data) - 1;
    if (!data) return;
    if (memory->self != memory) std::abort();
    std::free(memory);
}
void operator delete(void *data, std::size_t) noexcept { operator delete(data); }
END
# made NAME LIBRARY...
made() {
    cc -I"$root/include" -o "$work/$1" "$work/program.c" -L"$build/lib" -L"$work" -Wl,--no-as-needed "${@:2}" -Wl,-rpath,"$build/lib:$work" ||
        fail "$1 was not linked"
}
# right PROGRAM [ARGUMENT]: the output is in $work/out
right() {
    "$work/$1" "${@:2}" >"$work/out" 2>&1 || fail "$* ended with status $?: $(cat "$work/out")"
    [ "$(grep -c -xE 'product 256|convolution 144' "$work/out")" = 2 ] || fail "$*: $(cat "$work/out")"
}
by_onednn() {
    right "$@"
    grep -qx 'by oneDNN sgemm' "$work/out" || fail "$*: $(cat "$work/out")"
    if grep -E '^log:|plain loops' "$work/out"; then fail "$* did not run by oneDNN alone"; fi
}
made alone -lferry
made first -lferry -lclash
made last -lclash -lferry
c++ -c -o "$work/new.o" "$work/new.cpp" || fail "new.cpp was not compiled"
made allocator "$work/new.o" -lstdc++ -lferry
by_onednn alone
by_onednn first
by_onednn last
by_onednn alone "$work/libclash.so"
by_onednn allocator
jemalloc=$(sed -n 's/^JEMALLOC_LIBRARY:[A-Z]*=//p' "$build/CMakeCache.txt")
if [ -e "$jemalloc" ]; then
    made jemalloc "$jemalloc" -lclash -lferry
    by_onednn jemalloc
fi

# The dynamic linker finds a file that is no library first.
mkdir "$work/broken"
name=$(readelf -dW "$onednn" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
echo "no library" >"$work/broken/$name"
LD_LIBRARY_PATH=$work/broken right alone
grep -q '^log: matmul 64 x 64 x 64 ran in .* plain loops .*: oneDNN cannot be opened: ' "$work/out" || fail "no line of the log: $(cat "$work/out")"
grep -q '^log: conv2d .*oneDNN cannot be opened' "$work/out" || fail "no line for the convolution: $(cat "$work/out")"
[ "$(grep -c '^by plain loops' "$work/out")" = 2 ] || fail "not by plain loops: $(cat "$work/out")"
[ "$failures" = 0 ]
