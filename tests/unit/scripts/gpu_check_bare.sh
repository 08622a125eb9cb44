#!/usr/bin/env bash
# scripts/gpu-check.sh in a root that has bash and coreutils and no network: stages a folder with
# the fake driver and all test programs, does every call there, and asks the loader about every
# program and library. Bars: the calls take 780 s together; the folder and the tracked files of the
# tree have 60 MiB. CI runs it now and then; it takes minutes.
# Usage: gpu_check_bare.sh [BUILD_DIR]   FERRY_BARE_ROOT: use this root (a Debian one, say),
# unchanged, in place of one made of bash and coreutils.
# Exit 77 with the reason where no root can be made.
set -uo pipefail
tree=$(cd "$(dirname "$0")/../../.." && pwd)
build=$(realpath -m "${1:-$tree/build/dev}")
if [ ! -e "$build/lib/tests/libfake_cuda.so" ] || [ ! -e "$build/bin/bench/cuda_probe" ]; then
    echo "skipped: $build has no CUDA plugin or no tests"
    exit 77
fi
isolate=(unshare --mount --net --pid --fork)
[ "$(id -u)" -eq 0 ] || isolate+=(--map-root-user)
if ! "${isolate[@]}" mount -t tmpfs none /mnt 2>/dev/null; then
    echo "skipped: this machine does not allow unshare and mount"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/made" "$work/upper" "$work/over" "$work/root" "$work/out"

# A root of bash, coreutils and the libraries that those need.
make_root() {
    local name file folder=$work/made
    mkdir -p "$folder"/{bin,lib64,tmp}
    for name in bash env cat chmod cp cut date dirname head id ls mkdir mktemp mv readlink rm sleep sort tail timeout touch tr uname wc; do
        file=$(type -P $name) || continue
        cp -L "$file" "$folder/bin/"
        ldd "$file" | while read -r name arrow file _; do
            [[ $name == /* ]] && file=$name arrow='=>'
            [[ $arrow == '=>' && $file == /* ]] || continue
            mkdir -p "$folder$(dirname "$file")"
            cp -L "$file" "$folder$file"
        done
    done
}

"$tree/scripts/gpu-check.sh" prepare --build "$build" --fake --out "$work/folder" || exit 1
bytes=$(($(du -sb --apparent-size "$work/folder" | cut -f 1) + $(cd "$tree" && git ls-files -z | xargs -0 cat | wc -c)))
echo "the folder and the tracked files: $bytes bytes"
if ((bytes > 60 << 20)); then
    echo "FAILED: more than 60 MiB"
    exit 1
fi
lower=${FERRY_BARE_ROOT:-}
if [ -z "$lower" ]; then
    make_root
    lower=$work/made
fi
cat >"$work/inside" <<'END'
work=$1 lower=$2 chroot=$3
set -e
mount -t tmpfs none "$work/upper"
mkdir "$work/upper/changes" "$work/upper/scratch"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$work/upper/changes,workdir=$work/upper/scratch" "$work/root"
cd "$work/root"
mkdir -p proc dev tmp folder out
mount -t proc proc proc
mount -t tmpfs none dev
for node in null zero full urandom; do touch dev/$node && mount --bind /dev/$node dev/$node; done
ln -s /proc/self/fd dev/fd
mount --bind "$work/folder" folder
mount -o remount,bind,ro folder
mount --bind "$work/out" out
cp "$work/check" tmp/check
exec env -i PATH=/usr/bin:/bin "$chroot" . /bin/bash /tmp/check
END
cat >"$work/check" <<'END'
status=0
for call in right figures learn; do
    FERRY_GPU_WORK=/tmp/work bash /folder/gpu-check.sh run --results /out/$call $call || status=1
    echo "until the end of $call: $SECONDS s"
done
((SECONDS <= 780)) || { echo "FAILED: more than 780 s"; status=1; }
# Every program and library that was staged finds everything it needs, here.
unresolved=0
while read -r _ name; do
    [[ $name == base/* ]] && continue
    trace=$(LD_LIBRARY_PATH=/tmp/work/unpacked/lib:/tmp/work/extra LD_TRACE_LOADED_OBJECTS=1 "/lib64/ld-linux-x86-64.so.2" "/tmp/work/unpacked/$name" 2>&1)
    if [[ $trace == *"not found"* || $trace == *"rror"* ]]; then
        echo "FAILED: $name: $trace"
        unresolved=$((unresolved + 1))
    fi
done </folder/files.txt
echo "staged files with something that is not found: $unresolved"
((unresolved == 0)) || status=1
exit $status
END
"${isolate[@]}" bash "$work/inside" "$work" "$lower" "$(PATH=$PATH:/usr/sbin:/sbin type -P chroot)"
status=$?
if [ $status -ne 0 ]; then
    tail -n 200 "$work"/out/*/logs.txt 2>/dev/null
    echo "FAILED"
fi
exit $status
