#!/usr/bin/env bash
# The structure of the command's JSON, key by key as docs/cli.md defines it, and the figures that
# hold on every machine: bytes of a round trip, uploads and losses of minibatch, exit statuses. Not
# here: texts, streams, typing errors (tests/unit/tools/test_cli.sh).
# Usage: test_json.sh BUILD_DIR
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
ferry=$(realpath -m "$1")/bin/ferry
if [ ! -x "$ferry" ]; then
    echo "skipped: $ferry is not built"
    exit 77
fi
if ! command -v python3 >/dev/null; then
    echo "skipped: needs python3 to read JSON"
    exit 77
fi
cd "$here/../.." || exit 1
FERRY=$ferry exec python3 "$here/check_json.py"
