# shellcheck shell=bash disable=SC2154,SC2034,SC2004  # here is gpu-check.sh's; what is found here is used by the other parts
# The machine with the card: unpacks the folder, sees to it that its programs load, and finds what
# NVIDIA and Python left there: the driver, cuBLASLt, cuDNN, NCCL, PyTorch, compute-sanitizer, ncu.
# Bash and coreutils only. Not here: what runs (phases.inc.sh).

# A fact of staged.txt.
staged() {
    local line
    while IFS= read -r line; do [[ $line == "$1="* ]] && echo "${line#*=}"; done <"$here/staged.txt"
}

# Sets `unpacked`. Programs are unpacked once for each folder that prepare made: one stream, cut by
# the lines of files.txt.
unpack_seconds=15
unpack() {
    local name nbytes started=$SECONDS
    unpacked=$work/unpacked
    [[ -e $unpacked/whole ]] && return 0
    rm -rf "$unpacked"
    mkdir -p "$unpacked/tools" || die "$unpacked cannot be made"
    # They may have lost their x bits on the way.
    { cp "$here"/tools/* "$unpacked/tools/" && chmod 755 "$unpacked"/tools/*; } || die "no room in $unpacked"
    "$unpacked/tools/ld-linux-x86-64.so.2" --library-path "$unpacked/tools" "$unpacked/tools/xz" -dc "$here/programs.xz" | while read -r nbytes name <&3; do
        mkdir -p "$unpacked/${name%/*}"
        head -c "$nbytes" >"$unpacked/$name"
        [[ $(wc -c <"$unpacked/$name") == "$nbytes" ]] || exit 1
        chmod 755 "$unpacked/$name"
    done 3<"$here/files.txt" || die "$here/programs.xz cannot be unpacked: is the folder whole, is there room in $work?"
    touch "$unpacked/whole"
    echo "unpacked to $unpacked in $((SECONDS - started)) s"
}

# ---- what is there ----

# Python programs to ask: those of FERRY_GPU_PYTHON (a program, or a virtual environment), then
# PATH's.
find_pythons() {
    local each name
    pythons=()
    IFS=: read -r -a each <<<"${FERRY_GPU_PYTHON:-}"
    for name in "${each[@]}"; do
        [[ -x $name/bin/python3 ]] && name=$name/bin/python3
        [[ -x $name && ! -d $name ]] && pythons+=("$name")
    done
    for name in python3 python; do name=$(command -v $name) && pythons+=("$name"); done
}

has_one_of() {
    local name
    for name in libcublasLt.so libcudnn.so libnccl.so libnvrtc.so libcuda.so.1; do compgen -G "$1/$name*" >/dev/null && return 0; done
    return 1
}

# Sets `folders` (':'-separated): NVIDIA's libraries as pip leaves them, then toolkits', then the
# driver's own. And `tool_folders`.
find_folders() {
    local python line each candidates=()
    folders="" tool_folders=()
    for python in "${pythons[@]}"; do
        while IFS= read -r line; do
            [[ -d $line ]] || continue
            candidates+=("$line"/nvidia/*/lib)
            tool_folders+=("$line"/nvidia/*/bin)
        done < <(timeout 20 "$python" -c 'import site, sys; print("\n".join(sys.path + getattr(site, "getsitepackages", list)()))' 2>/dev/null)
    done
    candidates+=(${CUDA_HOME:+"$CUDA_HOME/lib64"} /usr/local/cuda*/lib64 /usr/local/cuda*/targets/x86_64-linux/lib /opt/cuda/lib64
        /usr/local/nvidia/lib64 /usr/local/nvidia/lib)
    tool_folders+=(${CUDA_HOME:+"$CUDA_HOME/bin"} /usr/local/cuda*/bin /opt/cuda/bin /opt/nvidia/nsight-compute/* /usr/local/nvidia/bin)
    for each in "${candidates[@]}"; do
        [[ -d $each && :$folders: != *":$each:"* ]] && has_one_of "$each" && folders+=${folders:+:}$each
    done
    return 0
}

# find_tool NAME: its path, on PATH or where NVIDIA installs it.
find_tool() {
    local folder
    command -v "$1" && return
    for folder in "${tool_folders[@]}"; do [[ -x $folder/$1 && ! -d $folder/$1 ]] && echo "$folder/$1" && return; done
    return 1
}

# ---- that the programs load ----

# Sets `loader` (the words before a program; may be empty) and LD_LIBRARY_PATH. The dynamic loader
# reports which libraries it does not find; staged copies of those are added. If the C library is
# too old, all of the staged C library is used, with its loader.
make_loadable() {
    local extra=$work/extra program trace line name changed=1 round
    loader=()
    plain_library_path=${LD_LIBRARY_PATH:-}
    rm -rf "$extra"
    mkdir -p "$extra"
    library_path=$unpacked/lib:$extra${folders:+:$folders}${plain_library_path:+:$plain_library_path}
    for ((round = 0; changed && round < 8; round++)); do
        changed=0
        for program in bin/ferry bin/bench/cuda_probe bin/tests/test_ops; do
            [[ -e $unpacked/$program ]] || continue
            trace=$(LD_LIBRARY_PATH=$library_path LD_TRACE_LOADED_OBJECTS=1 "$unpacked/$program" 2>&1) || [[ -n $trace ]] || trace="version \`GLIBC_"
            if [[ ${FERRY_GPU_LOADER:-} == staged || $trace == *"version \`GLIBC_"* || $trace == *"No such file"* ]]; then
                use_staged_loader
                return
            fi
            [[ $trace == *"version \`GLIBCXX_"* || $trace == *"version \`CXXABI_"* ]] && trace+=$'\nlibstdc++.so.6 => not found'
            [[ $trace == *"version \`GCC_"* ]] && trace+=$'\nlibgcc_s.so.1 => not found'
            while read -r name line; do
                [[ $line == '=> not found'* && -e $unpacked/base/$name && ! -e $extra/$name ]] || continue
                cp "$unpacked/base/$name" "$extra/" && changed=1
            done <<<"$trace"
        done
    done
    export LD_LIBRARY_PATH=$library_path
}

use_staged_loader() {
    echo "the C library of this machine is too old or missing: the staged one is used"
    loader=("$unpacked/base/ld-linux-x86-64.so.2" --library-path "$unpacked/lib:$unpacked/base${folders:+:$folders}")
}

# A script that starts the staged ferry, for programs that must not see our LD_LIBRARY_PATH.
write_wrappers() {
    local name
    mkdir -p "$work/bin"
    for name in ferry bench/cuda_probe bench/kernels; do
        {
            echo '#!/usr/bin/env bash'
            ((${#loader[@]})) || printf 'export LD_LIBRARY_PATH=%q\n' "$library_path"
            printf 'exec'
            printf ' %q' "${loader[@]}" "$unpacked/bin/$name"
            echo ' "$@"'
        } >"$work/bin/${name#*/}"
        chmod 755 "$work/bin/${name#*/}"
    done
}

# program NAME: sets `program` to the words that start it.
program() { program=("${loader[@]}" "$unpacked/bin/$1"); }

# make_ready BEFORE: everything of the above, and the environment of every step. What is known comes
# from this machine, or from the results of an earlier call in BEFORE.
make_ready() {
    local name verdict
    [[ -e $here/staged.txt ]] || die "run starts in a folder that 'gpu-check.sh prepare' made; $here is none"
    is_fake=$(staged fake)
    device=${FERRY_GPU_DEVICE:-cuda:0}
    work=${FERRY_GPU_WORK:-${TMPDIR:-/tmp}/ferry-gpu-check-$UID}
    mkdir -p "$work" || die "no folder to work in: set FERRY_GPU_WORK"
    if [[ ! -e $work/id || $(<"$work/id") != $(staged id) ]]; then
        rm -rf "$work/steps.tsv" "$work/logs" "$work/unpacked"
        staged id >"$work/id"
    fi
    logs=$work/logs
    steps=$work/steps.tsv
    mkdir -p "$logs" || die "$work cannot be written: set FERRY_GPU_WORK"
    if [[ ! -e $steps && -s $1/steps.tsv ]]; then
        cp "$1/steps.tsv" "$steps"
        [[ -s $1/card.profile.json ]] && cp "$1/card.profile.json" "$logs/"
    fi
    touch "$steps"
    cp "$steps" "$results/steps.tsv" || die "$results cannot be written"
    while IFS=$'\t' read -r _ name verdict _; do verdict_of[$name]=$verdict; done <"$steps"
    unpack
    find_pythons
    find_folders
    make_loadable
    write_wrappers
    export FERRY_PLUGIN_PATH=$unpacked/lib/ferry FERRY_BUILD_DIR=$unpacked OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive} FERRY_DATA=$here/data
    if ((is_fake)); then
        fake=$unpacked/lib/libfake_cuda.so
        export FERRY_CUDA_DRIVER=$fake FERRY_CUBLASLT=$fake FERRY_CUDNN=$fake FERRY_NCCL=none
    else
        unset FERRY_CUDA_DRIVER FERRY_CUBLASLT FERRY_CUDNN FERRY_NCCL
    fi
}
