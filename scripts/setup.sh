#!/usr/bin/env bash
# Installs what Ferry is built, tested and checked with, by Debian package name; does nothing,
# quickly, if all of it is there.
#   scripts/setup.sh [--tests] [--ci] [--peers] [--browser]
# Without an option: what `make demo` needs. --tests adds the test framework, --ci the checkers,
# --peers the libraries that bench-peers compares with, --browser Chromium for the test of reports.
# Elsewhere than on Debian (or without root and sudo) it lists the missing packages, and exits 1.
set -euo pipefail

# The requirements, one a line: how each is detected (a command, a file, a file under an include
# folder, an archive that clang links, an option that clang links with, a header of python3) and the
# package that provides it.
wanted="
command:cc            build-essential
command:c++           build-essential
command:make          build-essential
command:cmake         cmake
command:ninja         ninja-build
command:pkg-config    pkg-config
header:oneapi/dnnl/dnnl.h  libdnnl-dev
header:jemalloc/jemalloc.h libjemalloc-dev
header:zlib.h         zlib1g-dev
command:gnuplot       gnuplot-nox"
tests="
header:cmocka.h       libcmocka-dev
command:mpirun.openmpi openmpi-bin
command:mpicc.openmpi libopenmpi-dev
command:python3       python3
python:Python.h       python3-dev"
ci="
command:mpirun.mpich  mpich
command:mpicc.mpich   libmpich-dev
command:clang         clang
archive:libclang_rt.fuzzer libclang-rt-dev
command:clang-tidy    clang-tidy
command:clang-format  clang-format
command:doxygen       doxygen
command:gcovr         gcovr
command:valgrind      valgrind
command:abidw         abigail-tools
module:ensurepip      python3-venv
command:shellcheck    shellcheck
command:groff         groff-base
command:git           git
file:/usr/share/i18n/locales/de_DE locales
command:ccache        ccache
command:debootstrap   debootstrap
command:rustc         rustc
command:bindgen       bindgen
clang:-fopenmp        libomp-dev"
peers="
header:torch/csrc/api/include/torch/torch.h libtorch-dev
header:openblas-openmp/cblas.h libopenblas-openmp-dev
header:mimalloc.h     libmimalloc-dev
command:valgrind      valgrind"

browser="
command:chromium      chromium
module:ensurepip      python3-venv"

with_ci=0
for option in "$@"; do
    case "$option" in
    --tests) wanted+="$tests" ;;
    --ci) wanted+="$tests$ci" with_ci=1 ;;
    --peers) wanted+="$peers" ;;
    --browser) wanted+="$browser" ;;
    *)
        echo "usage: scripts/setup.sh [--tests] [--ci] [--peers] [--browser]" >&2
        exit 2
        ;;
    esac
done

is_there() {
    case "$1" in
    command:*) command -v "${1#command:}" >/dev/null 2>&1 ;;
    header:*)
        local name=${1#header:} folder
        for folder in /usr/include /usr/local/include "/usr/include/$(uname -m)-linux-gnu"; do
            if [ -e "$folder/$name" ]; then return 0; fi
        done
        # Installed elsewhere: the compiler finds it (CPATH, another toolchain).
        if command -v cc >/dev/null 2>&1; then
            printf '#include <%s>\n' "$name" | cc -E -x c - >/dev/null 2>&1
        else
            return 1
        fi
        ;;
    file:*) [ -e "${1#file:}" ] ;;
    clang:*) echo 'int main(void) { return 0; }' | clang -x c "${1#clang:}" - -o /dev/null 2>/dev/null ;;
    python:*) [ -e "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))' 2>/dev/null)/${1#python:}" ] ;;
    module:*) python3 -c "import ${1#module:}" >/dev/null 2>&1 ;;
    archive:*) # clang's own, which it comes without if nothing recommended is installed
        local resources
        resources=$(clang -print-resource-dir 2>/dev/null) && compgen -G "$resources/lib/*/${1#archive:}*.a" >/dev/null
        ;;
    esac
}

# Packages whose thing is missing, each once, and the things themselves for the message.
find_missing() {
    packages=""
    things=""
    local thing package
    while read -r thing package; do
        if [ -z "$thing" ] || is_there "$thing"; then continue; fi
        things+="  ${thing#*:} (Debian package $package)"$'\n'
        case " $packages " in *" $package "*) ;; *) packages+=" $package" ;; esac
    done <<<"$wanted"
    packages=${packages# }
}

find_missing
# Readers of the kernels' machine code, which Debian has not; without them unit_cuda_sass is skipped
# and says so.
finish() {
    if [ "$with_ci" -eq 1 ]; then "$(dirname "${BASH_SOURCE[0]}")/cuda-tools.sh" >/dev/null || [ $? -eq 77 ]; fi
    exit 0
}
if [ -z "$packages" ]; then finish; fi

give_up() {
    {
        echo "Ferry needs what is not on this machine:"
        printf '%s' "$things"
        echo "$1"
        echo "On Debian or Ubuntu:  apt-get update && apt-get install -y --no-install-recommends $packages"
        echo "Elsewhere: install the same libraries by your system's own means; docs/dependencies.md says what each is for."
    } >&2
    exit 1
}

if ! command -v apt-get >/dev/null 2>&1; then give_up "This is not a Debian system (no apt-get), so nothing was installed."; fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then give_up "Installing needs root, and there is no sudo here, so nothing was installed."; fi
    if [ -t 0 ]; then as_root=(sudo); else as_root=(sudo -n); fi
    if ! "${as_root[@]}" true; then give_up "Installing needs root, and sudo did not grant it, so nothing was installed."; fi
fi

echo "setup: installing $packages" >&2
# shellcheck disable=SC2086  # one word per package is meant
install_packages() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $packages </dev/null >"$log" 2>&1
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The package lists of a fresh machine are empty or old.
if ! "${as_root[@]}" apt-get update -q </dev/null >"$log" 2>&1; then tail -n 5 "$log" >&2; fi
if ! install_packages; then
    tail -n 15 "$log" >&2
    give_up "apt-get could not install it (its last words are above)."
fi

find_missing
if [ -n "$packages" ]; then give_up "apt-get installed what it was asked to, and this is missing still."; fi

finish
