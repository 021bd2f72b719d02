"""Shared by the tests of the package."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run_python(code, *args, env=None, timeout=600):
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


def programs_of_pages():
    """(page and line, code) of each block of Python in the documentation."""
    pages = ("README.md", "python/README.md", "docs/python/recipes.md", "docs/guide/python.md", "docs/guide/rmm_cupy.md")
    for page in pages:
        text = (ROOT / page).read_text()
        for block in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, block.start()) + 2
            yield f"{page}:{line}", block[1]


def scaled(rounds):
    """Of so many rounds those that this run makes: UMF_TEST_SCALE percent of them, at least one."""
    return max(1, rounds * int(os.environ.get("UMF_TEST_SCALE", "10")) // 100)


def busy_pool():
    """A pool whose next suspend takes a while, and its memory."""
    import umf

    pool = umf.Pool("disjoint over linux_vmm")
    pool.set_policy("host")
    kept = [pool.allocate(8 << 20) for _ in range(8)]
    for one in kept:
        umf.fill(one, 3)
    return pool, kept


def interrupts(call, after):
    """Seconds from a signal, `after` seconds from now, to the KeyboardInterrupt that it makes of a call."""
    begins, sent = threading.Event(), []

    def send():
        begins.wait()
        time.sleep(after)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        begins.set()
        call()
        time.sleep(600)  # it was done before the signal
    ended = time.monotonic()
    thread.join()
    return ended - sent[0]
