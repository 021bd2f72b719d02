#!/usr/bin/env python3
"""Makes the pictures of docs/guide/recording.md anew: scripts/pictures.py [<build folder>]

Runs the commands of the page with the programs of a build (build/release) and takes pictures in headless Chromium,
which the package chromium has.
"""
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "test", "tools"))
import browser as browsers  # noqa: E402

PAGE = os.path.join(ROOT, "docs", "guide", "recording.md")
WIDTH = 1000
# Of each page: the view, and the elements that are in the picture from the first to the last.
PICTURES = {"leak": ("flame", "title", "flame-graph"), "fragments": ("map", "title", "map-canvas"),
            "sleep": ("flame", "timeline", "legend")}


def make_pages(build, folder):
    path = os.pathsep.join([os.path.join(build, "examples"), os.path.join(build, "tools"), os.environ["PATH"]])
    with open(PAGE, encoding="utf-8") as file:
        for command in re.findall(r"```sh\n(.*?)```", file.read(), re.S):
            subprocess.run(["sh", "-ec", command], check=True, cwd=folder, env=dict(os.environ, PATH=path))


def take(browser, page, picture, tab, first, last):
    browser.window(WIDTH, "light")
    browser.open(page)
    browser.run("document.getElementById('tab-%s').click()" % tab)
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
        for name, (tab, first, last) in PICTURES.items():
            picture = os.path.join(ROOT, "docs", "guide", "images", "recording-%s.png" % name)
            take(browser, os.path.join(folder, name + ".html"), picture, tab, first, last)
            print(picture, os.path.getsize(picture))
        browser.close()


if __name__ == "__main__":
    main()
