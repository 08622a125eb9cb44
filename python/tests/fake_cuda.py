"""Programs on cuda:0 over the fake driver (tests/support/fake_cuda), for tests."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

LIBRARY = Path(os.environ.get("FERRY_LIBRARY", "/"), "tests", "libfake_cuda.so").absolute()


def run(program):
    """Runs a program in a new interpreter; (output, error text)."""
    variables = {
        "FERRY_PLUGIN_PATH": os.environ.get(
            "FERRY_PLUGIN_PATH", str(LIBRARY.parent.parent / "ferry")
        ),
        "FERRY_CUDNN": "none",
        "FERRY_CUDA_DRIVER": str(LIBRARY),
        "FERRY_CUBLASLT": str(LIBRARY),
        "FAKE_CUDA_KERNELS": "source",
    }
    done = subprocess.run(
        [sys.executable, "-B", "-c", textwrap.dedent(program)],
        env={**os.environ, **variables}, capture_output=True, text=True, timeout=1200,
    )  # fmt: skip
    return done.stdout, done.stderr
