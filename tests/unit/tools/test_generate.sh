#!/usr/bin/env bash
# `ferry train gpt` on text and `ferry generate`: the file's bytes are learnt, draws depend on the
# seed alone, refusals say what to do.
# Usage: test_generate.sh BUILD_DIR
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"

model=gpt:layers=1,heads=2,width=32,context=16,vocab=256
yes 'abcdefgh' | head -c 20000 >"$work/text"
expect 0 train $model --data "$work/text" --max-steps 60 --lr 0.01 --log-every 0 --save "$work/gpt.safetensors" --device sim:0
says out "device allocations in steady steps 0"

# ---- generate ----
expect 0 generate $model --weights "$work/gpt.safetensors" --prompt abc --bytes 24 --temperature 0 --device sim:0
printf 'abcdefgh\nabcdefgh\nabcdefgh\n\n' >"$work/want"
cmp -s "$work/out" "$work/want" || fail "a text of one line repeated continues as: $(cat "$work/out")"
silent err
expect 0 generate $model --weights "$work/gpt.safetensors" --bytes 40 --temperature 5 --seed 3 --device host
cp "$work/out" "$work/first"
expect 0 generate $model --weights "$work/gpt.safetensors" --bytes 40 --temperature 5 --seed 3 --device sim:0
cmp -s "$work/out" "$work/first" || fail "host and sim draw another text from one seed"
expect 0 generate $model --weights "$work/gpt.safetensors" --bytes 40 --temperature 5 --seed 4 --device sim:0
! cmp -s "$work/out" "$work/first" || fail "two seeds give one text"
expect 0 generate $model --weights "$work/gpt.safetensors" --bytes 40 --temperature 5 --top 1 --prompt abc --device sim:0 --json
says out '"generated_bytes": 40'
says out '"text": "abcdefgh'

# ---- refusals ----
expect 2 generate
says err "MODEL is gpt"
expect 2 generate mlp --weights "$work/gpt.safetensors"
says err "MODEL is gpt"
expect 2 generate $model
says err "--weights FILE is needed"
expect 2 generate $model --weights "$work/gpt.safetensors" --prompt ''
says err "the argument is empty"
expect 1 generate $model --weights "$work/none"
expect 1 generate gpt:layers=2,heads=2,width=32,context=16,vocab=256 --weights "$work/gpt.safetensors" --device host
expect 1 generate gpt:layers=1,heads=2,width=32,context=16,vocab=50 --weights "$work/gpt.safetensors" --device host
says err "no model of bytes"
expect 1 train $model --data "$work/none" --device host
printf 'short' >"$work/short"
expect 1 train $model --data "$work/short" --device host
says err "5 bytes of text"

[ $failures -eq 0 ] && echo "ok"
exit $((failures != 0))
