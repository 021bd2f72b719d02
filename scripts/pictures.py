#!/usr/bin/env python3
"""Makes the pictures of recordings in docs/guide/recording.md and peak.md anew: scripts/pictures.py [<build folder>]

Runs the commands of the pages with the programs of a build (build/release: examples, tools, benchmark, and the recorded
trainings of the tests) and takes pictures in headless Chromium, which the package chromium has.
"""
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "test", "tools"))
import browser as browsers  # noqa: E402

PAGES = [os.path.join(ROOT, "docs", "guide", name) for name in ("recording.md", "peak.md")]
WIDTH = 1000
# Of each page: the picture, the view, and the elements that are in the picture from the first to the last.
PICTURES = {"leak": ("recording-leak", "flame", "title", "flame-graph"),
            "fragments": ("recording-fragments", "map", "title", "map-canvas"),
            "sleep": ("recording-sleep", "flame", "timeline", "legend"), "peak": ("peak-pages", "flame", "pages", "pages-key")}
# The recording of a replay has other pools before and after this one.
ZOOM = """(() => { const has = (bin) => umf.model.arenas.length > 0 && umf.model.arenas[0].reserved[bin] > 0;
    const { bins } = umf.model.pools;
    const at = Array.from({ length: bins }, (none, bin) => bin).filter(has).map((bin) => (bin / bins) * umf.model.length);
    if (at.length > 0) { umf.change({ from: at[0], to: at[at.length - 1] }); umf.choose(at[Math.floor(at.length * 0.75)]); } })()"""


def make_pages(build, folder):
    path = os.pathsep.join([os.path.join(build, name) for name in ("examples", "tools", "benchmark")] + [os.environ["PATH"]])
    os.symlink(os.path.join(build, "test", "traces", "training"), os.path.join(folder, "training.trace"))
    for page in PAGES:
        with open(page, encoding="utf-8") as file:
            for command in re.findall(r"```sh\n(.*?)```", file.read(), re.S):
                subprocess.run(["sh", "-ec", command], check=True, cwd=folder, env=dict(os.environ, PATH=path))


def take(browser, page, picture, tab, first, last):
    browser.window(WIDTH, "light")
    browser.open(page)
    browser.run("document.getElementById('tab-%s').click()" % tab)
    browser.run(ZOOM)
    edge = "document.getElementById('%s').getBoundingClientRect().%s + scrollY"
    top, bottom = browser.run(edge % (first, "top")) - 10, browser.run(edge % (last, "bottom")) + 10
    browser.picture(picture, (0, max(0, top), WIDTH, min(bottom - max(0, top), 1100)))


def main():
    build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release"))
    path = browsers.find()
    if not path:
        raise SystemExit("there is no browser: the package chromium has one")
    with tempfile.TemporaryDirectory() as folder:
        make_pages(build, folder)
        browser = browsers.Browser(path)
        for name, (picture, tab, first, last) in PICTURES.items():
            picture = os.path.join(ROOT, "docs", "guide", "images", picture + ".png")
            take(browser, os.path.join(folder, name + ".html"), picture, tab, first, last)
            print(picture, os.path.getsize(picture))
        browser.close()


if __name__ == "__main__":
    main()
