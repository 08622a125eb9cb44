#!/usr/bin/env bash
# The example of python/README.md with the installed package.
# shellcheck source=debian/tests/lib.inc.sh
. debian/tests/lib.inc.sh
python/tests/readme.sh /usr/bin/python3
cd "$work"
python3 -c '
import importlib.metadata, importlib.util, ferry, ferry.train
assert importlib.metadata.version("ferry") == ferry.__version__, ferry.__version__
assert ferry._library.path == "libferry.so.0", ferry._library.path
ferry._c.fy_group_close(None)  # fails without libferry_dist
assert importlib.util.find_spec("ferry.torch_record._recorder"), "no _recorder"'
