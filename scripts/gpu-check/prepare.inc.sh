# shellcheck shell=bash disable=SC2154  # script, parts and here are gpu-check.sh's
# `gpu-check.sh prepare`: builds, and stages a folder that needs nothing of this machine any more.
# Next: machine.inc.sh, which unpacks it.
#
# The folder: gpu-check.sh and gpu-check/ (these scripts), gpu_torch.py with its models, staged.txt
# (facts, a line each), plan.txt (steps and limits), ops.txt, data/mnist/, recorded/ (losses of the
# simulated device), tools/ (what unpacks: xz, its libraries, a loader), programs.xz (programs and
# libraries, one behind the other; files.txt lists them with their bytes).
# lib/ is what such machines lack; base/ is the C and C++ runtime, used only where the machine's is
# missing or too old.

# Of the folder and the tracked files of the tree.
limit_bytes=$((60 << 20))
base_libraries=' ld-linux-x86-64.so.2 libc.so.6 libm.so.6 libmvec.so.1 libpthread.so.0 libdl.so.2 librt.so.1 libstdc++.so.6 libgcc_s.so.1 '

say() { echo "gpu-check: $*"; }

# Does the C compiler find this header?
has_header() { printf '#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <setjmp.h>\n#include <%s>\n' "$1" | ${CC:-cc} -E - >/dev/null 2>&1; }

# Sets `build`; with $2 = yes nothing is built.
build_for() {
    local arch=$1 generator=() tests=ON targets=(ferry_command ferry ferry_train ferry_cuda)
    has_header oneapi/dnnl/dnnl_version.h || die "oneDNN is not here (Debian: libdnnl-dev): the figures need it, and the machine with the card cannot bring it"
    has_header zlib.h || die "zlib is not here (Debian: zlib1g-dev)"
    if has_header cmocka.h; then
        ((is_fake)) && targets+=(fake_cuda)
    else
        tests=OFF
        say "CMocka is not here (Debian: libcmocka-dev): the tests are left out, so the call 'right' will check little"
    fi
    command -v cmake >/dev/null || die "cmake is not here"
    command -v ninja >/dev/null && generator=(-G Ninja)
    build=$root/build/gpu-$arch
    mkdir -p "$build" || exit 1
    say "building $build for compute capability $arch, log in $build/gpu-check.log"
    cmake -S "$root" -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DFERRY_CUDA=ON "-DFERRY_CUDA_ARCHITECTURES=$arch" \
        -DFERRY_TESTS=$tests -DFERRY_EXAMPLES=OFF -DFERRY_BENCH=ON -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON >"$build/gpu-check.log" 2>&1 ||
        die "configuring failed: $(tail -n 20 "$build/gpu-check.log")"
    local program
    for program in cuda_probe kernels; do targets+=("bench_$program"); done
    if [[ $tests == ON ]]; then
        targets+=(test_ops test_conformance)
    fi
    cmake --build "$build" --parallel "${FERRY_JOBS:-$(nproc)}" --target "${targets[@]}" >>"$build/gpu-check.log" 2>&1 ||
        die "building failed: $(tail -n 20 "$build/gpu-check.log")"
}

# pack FILE NAME: strips a copy; `compress` adds it to the folder.
pack() {
    local from=$1 copy=$temp/packed/$2
    mkdir -p "${copy%/*}"
    cp -L "$from" "$copy" || die "$from cannot be read"
    chmod u+w "$copy"
    [[ $2 == base/* || $2 == lib/lib[!f]* ]] || strip "$copy" || die "strip failed on $from"
    echo "$(stat -c %s "$copy") $2" >>"$out/files.txt"
    staged_files+=("$from")
}

# Programs share most of their code, which a window of 64 MiB finds again.
compress() {
    while read -r _ name; do cat "$temp/packed/$name"; done <"$out/files.txt" |
        XZ_OPT=${XZ_OPT:---lzma2=preset=0,dict=64MiB} xz -c >"$out/programs.xz" || die "xz failed"
}

pack_programs() {
    local file
    for file in "$build"/bin/ferry "$build"/bin/bench/{cuda_probe,kernels}; do
        [[ -e $file ]] || die "$file was not built"
        pack "$file" "${file#"$build"/}"
    done
    pack "$build/lib/ferry/libferry_cuda.so" lib/ferry/libferry_cuda.so
    if ((is_fake)); then
        [[ -e $build/lib/tests/libfake_cuda.so ]] || die "--fake: $build has no fake driver; it is built with the tests, which need CMocka"
        pack "$build/lib/tests/libfake_cuda.so" lib/libfake_cuda.so
    fi
    ntests=0
    for file in test_ops test_conformance; do
        [[ -x $build/bin/tests/$file ]] || continue
        pack "$build/bin/tests/$file" "bin/tests/$file"
        ntests=$((ntests + 1))
    done
    ((ntests)) || say "$build has no tests (no CMocka when it was configured?): they are left out"
}

# Every library that one of the staged files needs, Ferry's included, by name, once, as the loader of
# this machine finds it.
pack_libraries() {
    local name arrow path known=" " onednn
    onednn=$(sed -n 's/^DNNL_LIBRARY:[A-Z]*=//p' "$build/CMakeCache.txt") # opened at run time: ldd does not list it
    [[ -e $onednn ]] && staged_files+=("$onednn")
    for path in "${staged_files[@]}"; do LD_LIBRARY_PATH=$build/lib ldd "$path"; done 2>&1 | sed 's/ (0x[0-9a-f]*)$//' >"$temp/needed"
    for path in $(ldd "$(type -P xz)" | grep -o '/[^ ]*'); do cp -L "$path" "$out/tools/"; done
    [[ -e $out/tools/ld-linux-x86-64.so.2 ]] || die "ldd did not name the loader of xz: only glibc on x86-64 can be staged"
    cp -L "$(type -P xz)" "$out/tools/xz"
    [[ -e $onednn ]] && echo "$(readelf -dW "$onednn" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p') => $onednn" >>"$temp/needed"
    while read -r name arrow path; do # a path may have blanks
        if [[ $name == /*/ld-linux* ]]; then
            path=$name name=${name##*/}
        elif [[ $arrow != '=>' ]]; then
            continue
        fi
        [[ $path == "not found" ]] && die "$name is needed and not found on this machine"
        [[ $known == *" $name "* ]] && continue
        known+="$name "
        if [[ $base_libraries == *" $name "* ]]; then pack "$path" "base/$name"; else pack "$path" "lib/$name"; fi
    done <"$temp/needed"
}

stage_data() {
    local place=${data:-${FERRY_DATA:-$root/data}} folder file found=""
    for folder in "$place" "$place/mnist"; do
        [[ -z $found && -e $folder/train-images-idx3-ubyte.gz ]] && found=$folder
    done
    if [[ -z $found ]]; then
        [[ -z $data ]] || die "--data $data has no MNIST (train-images-idx3-ubyte.gz, ...): scripts/get-data.sh mnist fetches it"
        say "MNIST is not in $place (scripts/get-data.sh mnist fetches it): accuracy will be skipped"
        return
    fi
    mkdir -p "$out/data/mnist"
    for file in train-images-idx3 train-labels-idx1 t10k-images-idx3 t10k-labels-idx1; do
        cp "$found/$file-ubyte.gz" "$out/data/mnist/" || die "$found has no $file-ubyte.gz"
    done
    chmod u+w "$out"/data/mnist/*
}

# Losses that no other device needs to be here for.
record_losses() {
    local model
    mkdir "$out/recorded"
    for model in "${loss_models[@]}"; do
        losses_words "$model" 'sim:0' "$steps"
        FERRY_DATA=$out/data "$build/bin/ferry" "${words[@]}" >"$out/recorded/$model.json" || die "the losses of $model on sim:0 cannot be recorded"
    done
}

stage_scripts() {
    local what
    mkdir -p "$out/gpu-check"
    cp "$script" "$out/gpu-check.sh"
    cp "$parts"/*.inc.sh "$out/gpu-check/"
    cp "$root/bench/gpu_torch.py" "$root/tests/unit/train/models_reference.py" "$out/"
    sed -n 's/^ *X([A-Z0-9_]*, \([a-z0-9_]*\)).*/\1/p' "$root/include/ferry/op_list.h" >"$out/ops.txt"
    what=$(cat "$out/programs.xz" "$out/gpu-check.sh" "$out"/gpu-check/* | sha256sum)
    {
        echo "id=${what:0:16}"
        echo "arch=$arch"
        echo "fake=$is_fake"
        echo "tests=$ntests"
        echo "steps=$steps"
        echo "commit=$(git -C "$root" log -1 --format=%h 2>/dev/null || echo unknown)"
        echo "made=$(date -u +%Y-%m-%dT%H:%M:%SZ)"
    } >"$out/staged.txt"
    bash "$out/gpu-check.sh" plan >"$out/plan.txt" || die "the plan of the staged script cannot be printed"
}

check_size() {
    local bytes tree
    bytes=$(du -sb --apparent-size "$out" | cut -f 1)
    tree=$(cd "$root" && git ls-files -z 2>/dev/null | xargs -0 -r cat | wc -c)
    if ((bytes + tree > limit_bytes)); then
        du -ab --apparent-size "$out" | sort -rn | head -n 12 >&2
        die "$out has $bytes bytes and the tree's tracked files $tree, $((bytes + tree - limit_bytes)) more than the limit of $limit_bytes (60 MiB). Above are its largest files"
    fi
    say "staged $out: $bytes bytes, with the tree's tracked files $((bytes + tree)) of at most $limit_bytes, $ntests test programs$( ((is_fake)) && echo ', the fake driver')"
    say "there: bash DIR/gpu-check.sh run right   (then figures, learn; one command each)"
}

prepare() {
    local root arch=90 out="" data="" build="" is_fake=0 ntests=0 steps=50 temp staged_files=()
    root=$(readlink -f "$here/..")
    [[ -e $root/CMakeLists.txt ]] || die "prepare runs in a source tree of Ferry; $root is none"
    while (($#)); do
        case $1 in
        --arch | --out | --data | --build)
            [[ -n ${2:-} ]] || usage "$1 needs a value"
            case $1 in --arch) arch=$2 ;; --out) out=$2 ;; --data) data=$2 ;; --build) build=$2 ;; esac
            shift
            ;;
        --fake) is_fake=1 steps=3 ;;
        *) usage "prepare has no option '$1'" ;;
        esac
        shift
    done
    [[ $arch =~ ^[0-9]+$ ]] || usage "--arch is a compute capability without its dot, as 90; '$arch' is none"
    out=$(readlink -m "${out:-$root/build/gpu-check}")
    [[ ! -e $out || -e $out/staged.txt || -z $(ls -A "$out") ]] || die "$out has other files: name an empty folder, or one that prepare made"
    if [[ -n $build ]]; then
        build=$(readlink -f "$build")
        [[ -x $build/bin/ferry ]] || die "--build: there is no $build/bin/ferry"
    else
        build_for "$arch"
    fi
    rm -rf "$out"
    mkdir -p "$out/tools" || exit 1
    temp=$(mktemp -d)
    # shellcheck disable=SC2064 # this folder, now
    trap "rm -rf '$temp'" EXIT
    touch "$out/staged.txt"
    pack_programs
    pack_libraries
    compress
    stage_data
    stage_scripts
    check_size
    record_losses
}
