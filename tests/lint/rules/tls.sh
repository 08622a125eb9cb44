# shellcheck shell=bash
# No vector register is live across a TLS descriptor call in libferry.so. Compilers assume that such
# a call preserves them; glibc before 2.40 does not, on a thread's first access in a library that
# was dlopened without space in the static TLS block (glibc bug 31372).

check() {
    local library=$FERRY_BUILD_DIR/lib/libferry.so
    if [ -e planted.so ]; then library=planted.so; fi
    if [ ! -e "$library" ]; then echo "no libferry.so: name a build folder with --build" && return 77; fi
    if [ "$(uname -m)" != x86_64 ]; then echo "x86-64 only" && return 77; fi
    objdump -d --no-show-raw-insn "$library" | awk '
        /^[0-9a-f]+ <.*>:$/ { name = $2; after = 0; next }
        /[ \t]call +\*\(%rax\)/ { after = 60; split("", written); next }
        after > 0 {
            after--
            if ($0 ~ /[ \t](call|ret|jmp)/) { after = 0; next }
            if ($0 !~ /%[xyz]mm/) next
            line = $0; sub(/^[^\t]*\t/, "", line)
            op = line; sub(/[ \t].*/, "", op)
            operands = substr(line, length(op) + 1); gsub(/[ \t]/, "", operands); gsub(/%[yz]mm/, "%xmm", operands)
            n = 0; rest = operands
            while (match(rest, /%xmm[0-9]+/)) { reg[++n] = substr(rest, RSTART, RLENGTH); rest = substr(rest, RSTART + RLENGTH) }
            last_is_target = (operands ~ /%xmm[0-9]+$/)
            zeroes = (op ~ /^v?p?xor|^v?pcmpeq/ && n >= 2 && reg[1] == reg[2])
            for (i = 1; i <= n; i++) {
                target = (i == n && last_is_target)
                reads = !zeroes && (!target || op !~ /^v|^mov|^cvt|^pshuf|^lddqu/)
                if (reads && !(reg[i] in written)) { print "libferry.so:1: " name " keeps " reg[i] " across a TLS access: " line; after = 0; break }
                if (target) written[reg[i]] = 1
            }
        }' | report
}

plant() {
    printf '__thread int t;\ndouble f(double a);\ndouble f(double a) { return t + a; }\n' | cc -O2 -shared -fPIC -mtls-dialect=gnu2 -x c - -o planted.so
}
