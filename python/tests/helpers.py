"""What the tests of the package share."""

import os
import subprocess
import sys


def run_python(code, *args, env=None, timeout=120):
    """Runs `code` in a Python of its own and returns its output; fails with it otherwise."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
