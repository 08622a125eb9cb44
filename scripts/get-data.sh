#!/usr/bin/env bash
# Fetches a public data set and checks it. Usage: scripts/get-data.sh airfoil|mnist|cifar10 [DIR]
# DIR: else $FERRY_DATA, else data/ here; each set has a separate folder in it, as `--data DIR`
# expects. A file with the right checksum is not fetched again; a file with a wrong one is deleted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage="usage: scripts/get-data.sh airfoil|mnist|cifar10 [DIR]"
name=${1:?$usage}
root=${2:-${FERRY_DATA:-data}}
folder=$root/$name
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT

# fetch FILE URL...: the first address that answers.
fetch() {
    local file=$1 url
    shift
    for url in "$@"; do
        echo "fetching $url" >&2
        if command -v curl >/dev/null 2>&1; then
            if curl -fsSL --retry 2 --connect-timeout 20 -o "$file" "$url"; then return 0; fi
        elif command -v wget >/dev/null 2>&1; then
            if wget -q -T 20 -t 2 -O "$file" "$url"; then return 0; fi
        else
            echo "get-data: neither curl nor wget is here (Debian: apt-get install curl)" >&2
            exit 1
        fi
    done
    {
        echo "get-data: none of these could be reached; without internet, fetch them elsewhere and put what they hold in $folder:"
        printf '  %s\n' "$@"
        echo "Ferry works without: the experiments make data in the same format and say so."
    } >&2
    exit 1
}

# checked TOOL SUM FILE: is FILE what it should be? A .gz is checked by what it unpacks to.
checked() {
    local got
    if [ ! -e "$3" ]; then return 1; fi
    case "$3" in
    *.gz) got=$(gzip -dc "$3" 2>/dev/null | "$1" | cut -d ' ' -f 1) ;;
    *) got=$("$1" <"$3" | cut -d ' ' -f 1) ;;
    esac
    [ "$got" = "$2" ]
}

# get FILE TOOL SUM URL...: into $folder, once its checksum is right.
get() {
    local file=$1 tool=$2 sum=$3
    shift 3
    if checked "$tool" "$sum" "$folder/$file"; then
        echo "$folder/$file is there" >&2
        return 0
    fi
    fetch "$temp/$file" "$@"
    if ! checked "$tool" "$sum" "$temp/$file"; then
        echo "get-data: $file is not what it should be ($tool differs from $sum); nothing was kept" >&2
        exit 1
    fi
    mkdir -p "$folder"
    mv "$temp/$file" "$folder/$file"
    echo "$folder/$file" >&2
}

case "$name" in
airfoil) # UCI, CC BY 4.0
    get airfoil_self_noise.dat sha1sum 76e5be1548fd8222e5074cf0faae75edff8cf93f \
        https://archive.ics.uci.edu/ml/machine-learning-databases/00291/airfoil_self_noise.dat
    ;;
mnist) # LeCun, Cortes, Burges; CC BY-SA 3.0
    while read -r file sum; do
        get "$file.gz" md5sum "$sum" "https://ossci-datasets.s3.amazonaws.com/mnist/$file.gz" \
            "https://storage.googleapis.com/cvdf-datasets/mnist/$file.gz"
    done <<'FILES'
train-images-idx3-ubyte 6bbc9ace898e44ae57da46a324031adb
train-labels-idx1-ubyte a25bea736e30d166cdddb491f175f624
t10k-images-idx3-ubyte 2646ac647ad5339dbf082846283269ea
t10k-labels-idx1-ubyte 27ae3e4e09519cfbb04c329615203637
FILES
    ;;
cifar10) # Krizhevsky 2009
    if [ -e "$folder/test_batch.bin" ] && [ -e "$folder/data_batch_5.bin" ]; then
        echo "$folder is there" >&2
    else
        fetch "$temp/cifar.tar" https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz
        # The published sum is of the packed file.
        if [ "$(md5sum <"$temp/cifar.tar" | cut -d ' ' -f 1)" != c32a1d4ab5d03f1284b67883e8d87530 ]; then
            echo "get-data: cifar-10-binary.tar.gz is not what it should be; nothing was kept" >&2
            exit 1
        fi
        mkdir -p "$folder"
        tar -xzf "$temp/cifar.tar" -C "$folder" --strip-components=1
    fi
    ;;
*)
    echo "$usage" >&2
    exit 2
    ;;
esac
echo "$name is in $folder: use --data $root, or FERRY_DATA=$root"
