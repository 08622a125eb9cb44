#!/usr/bin/env bash
# Builds the wheel with pip, installs it in a fresh environment, and runs there the example of
# python/README.md and the tests. It uses no library of Ferry but the wheel's.
# Usage: python/tests/wheel.sh FOLDER      FOLDER: the environment and the wheel in it are replaced
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "${1:?usage: python/tests/wheel.sh FOLDER}"
folder=$(cd "$1" && pwd)
cd "$here/../.."
unset FERRY_LIBRARY PYTHONPATH LD_LIBRARY_PATH

rm -rf "$folder/env" "$folder/wheels"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" wheel --quiet --disable-pip-version-check --no-deps -w "$folder/wheels" .
"$folder/env/bin/pip" install --quiet --disable-pip-version-check 'numpy>=2.1' "$folder"/wheels/ferry-*.whl
echo "$("$folder/env/bin/python" --version): $(basename "$folder"/wheels/ferry-*.whl)"
"$folder/env/bin/python" -c "import ferry; assert ferry._library.path.startswith('$folder/env/'), ferry._library.path"
"$here/readme.sh" "$folder/env/bin/python"
for test in "$here"/test_*.py; do
    status=0
    "$folder/env/bin/python" -B "$test" || status=$?
    case $status in 0) ;; 77) echo "skipped: $test" ;; *) exit "$status" ;; esac
done
