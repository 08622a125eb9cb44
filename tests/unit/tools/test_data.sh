#!/usr/bin/env bash
# Commands look for data sets in --data, else in $FERRY_DATA, else in data/ of the current folder,
# and nowhere else. A set that is missing there is made up with a warning; one missing from --data,
# and one that is there and cannot be read, is an error.
# shellcheck disable=SC2086  # options are words
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"
export OMP_WAIT_POLICY=passive

# here/data and other have the sets in the folders that scripts/get-data.sh makes: MNIST's format,
# 32 black images of class 0; the airfoil data's format.
for sets in "$work/here/data" "$work/other"; do
    mkdir -p "$sets/mnist" "$sets/airfoil"
    for part in train t10k; do
        { printf '\0\0\x8\x3\0\0\0\x20\0\0\0\x1c\0\0\0\x1c' && head -c $((32 * 28 * 28)) /dev/zero; } >"$sets/mnist/$part-images-idx3-ubyte"
        { printf '\0\0\x8\x1\0\0\0\x20' && head -c 32 /dev/zero; } >"$sets/mnist/$part-labels-idx1-ubyte"
    done
    awk 'BEGIN { for (i = 0; i < 1503; i++) print i, i % 7, i % 5, i % 11, i % 13, i % 17 }' >"$sets/airfoil/airfoil_self_noise.dat"
done
mkdir "$work/empty"
# Links to themselves, and a set of which a part is missing.
mkdir -p "$work/unreadable" "$work/part/mnist"
ln -s mnist "$work/unreadable/mnist"
ln -s airfoil "$work/unreadable/airfoil"
cp "$work/other"/mnist/train-* "$work/part/mnist/"

# checked NAME COMMAND: one that takes the data set NAME.
checked() {
    local name=$1 command=$2
    found() { # found FOLDER: the last command took the set from there
        silent err
        matches out "(^data: |steps \()($name, )?$1[,/)]"
    }
    made_up() { # made_up FOLDER: it looked there in vain
        says err "the data set $name is not in $1 (" "made-up data"
        matches out '(^data: |steps \().*synthetic'
    }
    cd "$work/here" || exit 1
    unset FERRY_DATA
    {
        expect 0 $command && found data
        FERRY_DATA='' expect 0 $command && found data
        FERRY_DATA=$work/other expect 0 $command && found "$work/other"
        FERRY_DATA=$work/nothing expect 0 $command && made_up "$work/nothing"
        FERRY_DATA=$work/nothing expect 0 $command --data "$work/other" && found "$work/other"
        refuses 1 "UNAVAILABLE: " $command --data "$work/nothing"
        says err "$work/nothing"
        silent out
        FERRY_DATA=$work/unreadable refuses 1 "IO: " $command
        says err "$work/unreadable/$name"
        silent out
        cd "$work/empty" || exit 1
        expect 0 $command && made_up data
    }
}
checked mnist "train mlp --device host --batch 8 --max-steps 1"
FERRY_DATA=$work/part refuses 1 "IO: " train mlp --device host --batch 8 --max-steps 1
says err "no t10k-images-idx3-ubyte"
checked airfoil "train linear --device host --max-steps 1"
checked mnist "experiment parallel lenet --devices 1 --batch 8 --steps 1"
checked airfoil "experiment minibatch --device host --runs gd"
