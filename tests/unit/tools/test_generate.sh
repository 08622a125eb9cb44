#!/usr/bin/env bash
# `ferry train gpt` on text and `ferry generate`: the file's bytes are learnt, draws depend on the
# seed alone, refusals say what to do.
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
says out '"generated_bytes": 40' '"prompt": "abc"' '"text": "defgh' '"encoding": "utf-8"'

# ---- --json: bytes that are not ASCII ----
# bytes_of KEY: the bytes of that text of the last document, by its encoding
bytes_of() {
    python3 -c 'import json, sys
d = json.load(open(sys.argv[1], encoding="utf-8"))
sys.stdout.buffer.write(d[sys.argv[2]].encode(d["encoding"]))' "$work/out" "$1"
}
# expect_text PROMPT WANT ENCODING: a model of a text of UTF-8 and of one of other bytes
expect_text() {
    expect 0 generate $model --weights "$work/other.safetensors" --prompt "$1" --bytes ${#2} --temperature 0 --device host --json
    says out "\"encoding\": \"$3\""
    [ "$(bytes_of prompt)" = "$1" ] || fail "prompt of $3: $(cat "$work/out")"
    [ "$(bytes_of text)" = "$2" ] || fail "text of $3: $(cat "$work/out")"
}
if command -v python3 >/dev/null; then
    LC_ALL=C
    for encoding in utf-8 latin-1; do
        letter=$([ $encoding = utf-8 ] && printf '\xc3\xa9' || printf '\xe9\xff')
        yes "ab${letter}cd" | head -c 20000 >"$work/text"
        expect 0 train $model --data "$work/text" --max-steps 60 --lr 0.01 --log-every 0 --save "$work/other.safetensors" --device sim:0
        expect_text "cd
ab" "${letter}cd
ab${letter}" $encoding
        expect_text "ab${letter}cd" "
ab${letter}cd" $encoding
        expect_text "ab" "${letter:0:1}" latin-1 # of UTF-8: half a character
    done
else
    echo "no python3: the bytes of --json are not compared"
fi

# ---- refusals ----
refuses 2 "MODEL is gpt" generate
refuses 2 "MODEL is gpt" generate mlp --weights "$work/gpt.safetensors"
refuses 2 "--weights FILE is needed" generate $model
refuses 2 "the argument is empty" generate $model --weights "$work/gpt.safetensors" --prompt ''
expect 1 generate $model --weights "$work/none"
expect 1 generate gpt:layers=2,heads=2,width=32,context=16,vocab=256 --weights "$work/gpt.safetensors" --device host
refuses 1 "no model of bytes" generate gpt:layers=1,heads=2,width=32,context=16,vocab=50 --weights "$work/gpt.safetensors" --device host
expect 1 train $model --data "$work/none" --device host
printf 'short' >"$work/short"
refuses 1 "5 bytes of text" train $model --data "$work/short" --device host
