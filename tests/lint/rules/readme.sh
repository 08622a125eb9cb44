# shellcheck shell=bash
# Each folder has a README.md that describes its contents, its allowed includes and where to start.

check() {
    local folder needed
    for folder in opset runtime runtime/base alloc transfer ops ops/typed backends backends/*/ train tools bench examples tests tests/*/ docs docs/decisions scripts cmake; do
        folder=${folder%/}
        if [ ! -d "$folder" ] || [ -z "$(ls -A "$folder")" ]; then continue; fi
        case "$folder" in tests/* | docs/* | */base | */typed | scripts | cmake) needed=parent ;; *) needed=own ;; esac
        # The README of the folder above may describe inner folders, by their names.
        if [ -s "$folder/README.md" ]; then continue; fi
        if [ "$needed" = parent ] && grep -q "$(basename "$folder")/" "$(dirname "$folder")/README.md" 2>/dev/null; then continue; fi
        echo "$folder:1: no README.md"
    done | report
}

plant() { mkdir -p backends/planted && echo >backends/planted/planted.h; }
