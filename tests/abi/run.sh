#!/usr/bin/env bash
# Programs and plugins that were built with other headers than the library. Yesterday's headers are
# today's without the last fields of some structs; tomorrow's have one field more.
# Usage: tests/abi/run.sh BUILD
set -eu

build=$(cd "${1:?usage: tests/abi/run.sh BUILD}" && pwd)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
unset FERRY_PLUGIN_PATH CFLAGS CPPFLAGS LDFLAGS
if grep -Eq 'NEEDED.*(asan|tsan|ubsan)' <<<"$(readelf -dW "$build/lib/libferry.so")"; then
    echo "skipped: the library is built with a sanitizer" && exit 77
fi
[ -e "$build/lib/libferry_train.so" ] || { echo "skipped: no libferry_train.so" && exit 77; }

cut_behind() { # cut_behind HEADER STRUCT LAST: the struct ends behind the declaration of LAST
    awk -v end="} fy_$2_t;" -v begin="struct fy_$2 {" -v last="$3" '
        index($0, begin) { in_struct = 1 }
        index($0, end) { in_struct = gone = 0 }
        !gone { print }
        in_struct && (index($0, last) || is_open) { is_open = ($0 !~ /;/); gone = !is_open; found = 1 }
        END { exit !found }' "$temp/older/ferry/$1" >"$temp/cut" && mv "$temp/cut" "$temp/older/ferry/$1"
}
grow() { # grow HEADER STRUCT [TYPE]: the struct has one field more
    awk -v end="} fy_$2_t;" -v field="${3:-uint64_t} from_a_newer_header;" '
        index($0, end) { print "    " field; found = 1 }
        { print }
        END { exit !found }' "$temp/newer/ferry/$1" >"$temp/cut" && mv "$temp/cut" "$temp/newer/ferry/$1"
}

for age in older today newer; do
    mkdir "$temp/$age" && cp -r "$root/include/ferry" "$temp/$age/ferry"
done
cut_behind transfer.h transfer_options '*site'
cut_behind train/safetensors.h safetensors_info 'nbytes, offset'
cut_behind backend.h backend '(*launch)'
cut_behind tensor.h tensor_info 'const char *name'
cut_behind train/layer.h layer_def '(*destroy)'
cut_behind train/model.h model_info 'is_training'
grow transfer.h transfer_options
grow scope.h guard_options
grow plan.h pool_options
grow tensor.h tensor_info
grow device.h device_info
grow memory.h memory_stats
grow ledger.h ledger_totals
grow train/model.h model_info
grow train/optimizer.h optimizer_options
grow train/safetensors.h safetensors_info
grow backend.h backend 'void *'

mkdir "$temp/plugins"
for age in older today newer; do
    cc -std=gnu11 -Wall -Wextra -Werror "-D${age^^}" -I"$temp/$age" "$here/program.c" -o "$temp/program_$age" -L"$build/lib" \
        -Wl,-rpath,"$build/lib" -lferry_train -lferry
    # The skeleton of a backend, under the name that plugins have.
    cc -std=gnu11 -D_GNU_SOURCE -shared -fPIC -Dfy__backend_null_open=fy_backend_open -I"$temp/$age" -I"$root" \
        "$root/backends/null/null.c" -o "$temp/plugins/libferry_$age.so"
done

today=$("$temp/program_today" sizes)
for age in older today newer; do
    [ "$age" = today ] || [ "$("$temp/program_$age" sizes)" != "$today" ] || { echo "$age: no struct differs" && exit 1; }
    "$temp/program_$age" run "$temp"
    echo "PASS a program with ${age} headers"
    FERRY_PLUGIN_PATH=$temp/plugins "$temp/program_today" plugin "$age:0"
    echo "PASS a plugin with ${age} headers"
done
grep -q 'fy_[a-z_]*@FERRY_0\.1' <<<"$(readelf --dyn-syms -W "$temp/program_today")" || { echo "no symbol version" && exit 1; }
echo "PASS symbols have versions"
