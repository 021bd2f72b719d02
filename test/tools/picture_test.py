#!/usr/bin/env python3
"""Tests the picture of a recording in a browser:
picture_test.py <umfctl> <record_sample> <folder to work in> [<page of the guide> <folder of the examples>]

Checks the drawing (elements, texts, colours of points) in every view, at 1280 and 800 points, light and dark, and on
phones (picture_views.py); runs the commands of the guide and looks at what they made. The pictures stay in the folder.
77: there is no browser.
"""
import os
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import browser as browsers  # noqa: E402
import picture_views  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
WINDOWS = [(1280, "light"), (1280, "dark"), (800, "light"), (800, "dark")]
BLUE, ORANGE, PINK = [0, 0x72, 0xB2], [0xE6, 0x9F, 0], [0xCC, 0x79, 0xA7]

# Texts with a contrast below 4.5 to their background, as [text, contrast].
CONTRAST = """(() => {
    const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const linear = (c) => c / 255 <= 0.03928 ? c / 255 / 12.92 : Math.pow((c / 255 + 0.055) / 1.055, 2.4);
    const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    const behind = (node) => {
        for (let at = node; at; at = at.parentElement) {
            const colour = parts(getComputedStyle(at).backgroundColor);
            if (colour.length < 4 || colour[3] === 1) { return colour; }
        }
        return [255, 255, 255];
    };
    const bad = [];
    for (const node of document.querySelectorAll("body *")) {
        const own = Array.from(node.childNodes).some((child) => child.nodeType === 3 && child.data.trim());
        const box = node.getBoundingClientRect();
        if (own && box.width && !["SCRIPT", "OPTION"].includes(node.tagName)) {
            const [a, b] = [light(parts(getComputedStyle(node).color)), light(behind(node))];
            const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            if (contrast < 4.5) { bad.push([node.textContent.slice(0, 40), contrast]); }
        }
    }
    return bad;
})()"""


class Test:
    def __init__(self, umfctl, sample, folder, path):
        self.umfctl, self.sample, self.folder = umfctl, sample, folder
        self.browser = browsers.Browser(path)
        self.checks = 0

    def check(self, is_right, what):
        self.checks += 1
        if not is_right:
            self.browser.picture(os.path.join(self.folder, "failed.png"))
            raise SystemExit("picture_test: %s (see %s/failed.png)" % (what, self.folder))

    def equal(self, is_value, should, what):
        self.check(is_value == should, "%s: %r, should be %r" % (what, is_value, should))

    # --- files

    def file(self, name):
        return os.path.join(self.folder, name)

    def make(self, name, command):
        """A page out of the recording that `command` writes; returns its path."""
        subprocess.run(command + [name] if command[0] == sys.executable else command, check=True)
        recording, page = self.file(name + ".umfrec"), self.file(name + ".html")
        start = time.monotonic()
        subprocess.run([self.umfctl, "trace", recording, "--html", page], check=True, stdout=subprocess.DEVNULL)
        print("%s: %.1f MB of events, written in %.2f s, %.0f KB" %
              (name, os.path.getsize(recording) / 1e6, time.monotonic() - start, os.path.getsize(page) / 1e3))
        self.check(os.path.getsize(page) < 4_000_000, name + " is larger than 4 MB")
        return page

    def own(self, name):
        return self.make(name, [sys.executable, os.path.join(HERE, "picture_sample.py"), self.file(name + ".umfrec")])

    def sampled(self, name, what, events):
        return self.make(name, [self.sample, self.file(name + ".umfrec"), what, str(events)])

    # --- the page

    def open(self, page, width=1280, scheme="light", fragment=""):
        self.browser.window(width, scheme)
        self.browser.open(page, fragment)
        self.nothing_strange(page)

    def nothing_strange(self, page):
        for event in self.browser.events:
            method, params = event.get("method"), event.get("params")
            self.check(method not in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"),
                       "the page complains: %s" % params)
            if method == "Network.requestWillBeSent":
                self.equal(params["request"]["url"], "file://" + os.path.abspath(page), "a request")

    def js(self, code):
        return self.browser.run(code)

    def text(self, name):
        return self.js("document.getElementById('%s').textContent" % name)

    def click(self, name):
        self.js("document.getElementById('%s').click()" % name)

    def point(self, canvas, x, y):
        """The colour of a point of a canvas."""
        return self.js("Array.from(document.getElementById('%s').getContext('2d').getImageData(%d, %d, 1, 1).data)"
                       ".slice(0, 3)" % (canvas, x, y))

    def search(self, words):
        self.js("new Promise((done) => { const box = document.getElementById('search'); box.value = '%s';"
                "box.dispatchEvent(new Event('input')); setTimeout(done, 150); })" % words)

    def chart_box(self):
        return [float(word) for word in self.js("document.getElementById('chart').dataset.box").split()]

    def choose_pool(self, index):
        self.js("(() => { const box = document.getElementById('map-pool'); box.value = %d;"
                "box.dispatchEvent(new Event('change')); })()" % index)

    # --- what holds in every view

    def fits(self, what):
        self.check(self.js("document.documentElement.scrollWidth <= innerWidth"), what + " is wider than the window")
        low = self.js(CONTRAST)
        self.equal(low, [], what + ": texts with too little contrast")

    def has_names(self):
        nodes = self.browser.call("Accessibility.getFullAXTree")["nodes"]
        roles = ("button", "tab", "slider", "searchbox", "combobox", "treeitem", "tree", "tabpanel")
        for node in nodes:
            role = node.get("role", {}).get("value")
            if role in roles and not node.get("ignored"):
                self.check(node.get("name", {}).get("value"), "a %s has no name" % role)

    def views(self, name, page, tabs, windows=WINDOWS):
        """Takes a picture of each view in each window."""
        for width, scheme in windows:
            self.open(page, width, scheme)
            self.has_names()
            for tab in tabs:
                self.click("tab-" + tab)
                what = "%s-%s-%d-%s" % (name, tab, width, scheme)
                self.browser.picture(self.file(what + ".png"))
                self.fits(what)
        self.nothing_strange(page)


def timeline(test, page):
    test.open(page)
    left, top, width, height = test.chart_box()
    bottom = top + height
    test.equal(test.js("document.getElementById('chart').dataset.areas"), "4", "areas by pool")
    test.equal(test.point("chart", left + width * 0.35, bottom - 6), BLUE, "weights, at the bottom")
    test.equal(test.point("chart", left + width * 0.35, top + height * 0.28), ORANGE, "kv cache, above")
    test.equal(test.point("chart", left + width * 0.58, 34), PINK, "the sleep")
    asleep = [test.point("chart", left + width * 0.5 + x, bottom - 6) for x in range(8)]
    test.check(BLUE in asleep and [255, 255, 255] in asleep, "stripes where weights sleeps: %s" % asleep)
    test.check("240 MiB" in test.text("legend") and "kv cache" in test.text("legend"), "the legend: " + test.text("legend"))
    test.js("document.querySelector('[data-to=stack]').click()")
    test.equal(test.js("document.getElementById('chart').dataset.areas"), "4", "areas by stack")
    test.check("0x401200" in test.text("legend"), "stacks in the legend: " + test.text("legend"))
    test.js("document.querySelector('[data-to=pool]').click(); document.querySelector('[data-to=held]').click()")
    test.check("256 MiB" in test.text("legend"), "held, in the legend: " + test.text("legend"))
    test.js("document.querySelector('[data-to=live]').click(); document.querySelector('#legend button').click()")
    test.equal(test.js("document.getElementById('chart').dataset.areas"), "3", "areas, one hidden")


def mouse(test, page):
    """A drag zooms, a click chooses the moment, hovering shows the value; the page below stays where it is."""
    test.open(page)
    left, top, width, height = test.chart_box()
    origin = test.js("(() => { const box = document.getElementById('chart').getBoundingClientRect();"
                     "return [box.left, box.top]; })()")
    below = test.js("document.getElementById('details').getBoundingClientRect().top")
    x, y = origin[0] + left, origin[1] + top + height / 2
    test.browser.mouse("mouseMoved", x + width / 2, y)
    tip = test.text("tip")
    test.check("weights" in tip and "MiB" in tip, "the tip: " + tip)
    test.browser.drag(x + width * 0.25, y, x + width * 0.5, y)
    span = test.js("[umf.state.from / umf.model.length, umf.state.to / umf.model.length]")
    test.check(abs(span[0] - 0.25) < 0.01 and abs(span[1] - 0.5) < 0.01, "the zoom: %s" % span)
    test.browser.drag(x + width * 0.5, y, x + width * 0.5, y)
    moment = test.js("umf.state.moment / umf.model.length")
    test.check(abs(moment - 0.375) < 0.01, "the moment: %s" % moment)
    test.equal(test.js("document.getElementById('details').getBoundingClientRect().top"), below, "the place of the details")


def keyboard(test, page):
    test.open(page)
    test.js("document.getElementById('chart').focus()")
    before = test.js("umf.state.moment")
    test.browser.key("ArrowLeft", 37)
    test.check(test.js("umf.state.moment") < before, "the left arrow moves the moment")
    test.browser.key("+", 187, "+")
    test.check(test.js("umf.state.to - umf.state.from") < 0.6 * test.js("umf.model.length"), "+ zooms")
    test.browser.key("Escape", 27)
    test.equal(test.js("umf.state.from"), 0, "Escape shows all")
    test.check("MiB" in test.js("document.getElementById('chart').getAttribute('aria-valuetext')"), "the value is shown")
    test.js("document.querySelector('#flame-graph [tabindex=\"0\"]').focus()")
    test.browser.key("ArrowDown", 40)
    test.browser.key("ArrowRight", 39)
    test.check("kv cache" in test.js("document.activeElement.getAttribute('aria-label')"), "arrows walk in the flame graph")
    test.js("document.getElementById('tab-flame').focus()")
    test.browser.key("ArrowRight", 39)
    test.equal(test.js("document.activeElement.id + ' ' + umf.state.tab"), "tab-map map", "arrows change the tab")


def flame(test, page):
    test.open(page)
    labels = test.js("Array.from(document.querySelectorAll('#flame-graph button'), (bar) => bar.getAttribute('aria-label'))")
    test.check(labels[0].startswith("all that lives: 379 MiB"), "the root: " + labels[0])
    test.check(any(label.startswith("kv cache #3: 120 MiB, 31.7 %") for label in labels), "a pool: %s" % labels)
    test.check(any(label.startswith("0x401200") for label in labels), "a function: %s" % labels)
    test.search("0x401200")
    test.equal(test.js("document.querySelectorAll('#flame-graph .found').length"), 1, "bars that are found")
    test.check("120 MiB" in test.text("flame-summary"), "findings: " + test.text("flame-summary"))
    test.search("")
    test.js("Array.from(document.querySelectorAll('#flame-graph button')).find((bar) => "
            "bar.textContent.startsWith('kv cache')).click()")
    test.equal(test.js("document.querySelectorAll('#flame-graph .above').length"), 1, "bars above the zoomed one")
    test.equal(test.js("document.querySelectorAll('#flame-graph button').length"), 5, "bars of the zoomed one")
    test.js("document.querySelector('#flame-graph button').click(); document.querySelector('[data-to=count]').click()")
    root = test.js("document.querySelector('#flame-graph button').getAttribute('aria-label')")
    test.check("1,052 allocations" in root, "the root by count: " + root)


def address_map(test, page):
    test.open(page)
    test.click("tab-map")
    test.choose_pool(1)
    text = test.text("map-summary")
    test.check("6 spans hold 192 MiB, 120 MiB live, 72 MiB free or cached" in text, "the map: " + text)
    test.check("at least 3.5 MiB: fragmentation at most 95.1 %" in text, "fragmentation: " + text)
    x, y = map(int, test.js("document.getElementById('map-canvas').dataset.first").split())
    test.equal(test.point("map-canvas", x + 3, y + 5), BLUE, "the first cell")
    before = test.js("umf.state.moment")
    test.js("(() => { const range = document.getElementById('map-time'); range.value = 3;"
            "range.dispatchEvent(new Event('input')); })()")
    test.check(test.js("umf.state.moment") < before, "the slider chooses the moment")
    test.check("2 spans hold 64 MiB, 56 MiB live" in test.text("map-summary"), "the map, earlier: " + test.text("map-summary"))
    test.js("document.getElementById('map-canvas').focus()")
    test.browser.key("ArrowRight", 39)
    test.check("0x7f20" in test.text("map-cell") and "live" in test.text("map-cell"), "a cell: " + test.text("map-cell"))


def tables(test, page):
    test.open(page)
    test.click("tab-sites")
    rows = "Array.from(document.querySelectorAll('#%s tbody tr'), (row) => row.cells[%d].textContent)"
    test.equal(test.js(rows % ("sites", 0))[:2], ["240 MiB", "120 MiB"], "stacks by bytes")
    test.equal(test.js("document.querySelector('#sites th').getAttribute('aria-sort')"), "descending", "the order")
    test.js("document.querySelectorAll('#sites th button')[1].click()")
    counts = [int(text.replace(",", "")) for text in test.js(rows % ("sites", 1))]
    test.check(counts == sorted(counts, reverse=True) and counts[0] > 700, "stacks by count: %s" % counts)
    test.search("requests")
    test.equal(len(test.js(rows % ("sites", 0))), 2, "stacks of the pool requests")
    test.search("")
    test.click("tab-allocs")
    test.equal(len(test.js(rows % ("allocs", 0))), 200, "rows at first")
    test.js("document.querySelector('#allocs .more').click()")
    test.equal(len(test.js(rows % ("allocs", 0))), 400, "rows after more")
    test.check("live at the end" in test.js("document.querySelector('#allocs .summary').textContent"), "list")


def explanation(test, page, lost):
    test.open(page)
    text = test.text("refusal-text")
    for words in ("pool kv cache #3 found no memory for 48 MiB", "It held 192 MiB: 120 MiB were live in 240 allocations",
                  "72 MiB free or cached, the largest free piece 3.5 MiB", "it is fragmented", "weights #2 with 240 MiB"):
        test.check(words in text, "'%s' in: %s" % (words, text))
    test.equal(test.js("document.getElementById('notes').children.length"), 0, "notes")
    test.open(lost)
    text = test.text("notes")
    for words in ("events of", "are lost", "of memory that was allocated before the recording", "has no end"):
        test.check(words in text, "'%s' in: %s" % (words, text))
    test.check("at least 112 MiB were live" in test.text("refusal-text"), "known bytes: " + test.text("refusal-text"))


def hostile(test, page):
    """Names with markup stay text."""
    test.open(page)
    test.equal(test.js("document.scripts.length"), 2, "scripts")
    test.check("</script><script>hurt()</script><!--" in test.text("legend"), "the name, as it is: " + test.text("legend"))
    test.check(test.js("umf.model.marks[0].text.endsWith('</script>\\u2028<!--')"), "the mark, as it is")


def pages(test, page, other):
    """The band of an arena's pages."""
    test.open(page)
    left, top, width, height = [float(word) for word in test.js("document.getElementById('pages-chart').dataset.box").split()]
    test.js("umf.choose(umf.model.length * 0.6)")
    test.equal(test.text("pages-summary"), "64 MiB of pages: 32 MiB live, 24 MiB free, 8 MiB spare; 2.000 of live memory. "
               "16 MiB of stale addresses, 16 MiB donated so far.", "the sums")
    at = [test.point("pages-chart", left + width * 0.65, top + height * (1 - part * 64 / 68)) for part in (0.4, 0.8, 0.95)]
    test.equal([at[0], at[2]], [BLUE, ORANGE], "live and spare pages")
    test.check(at[1] not in (BLUE, ORANGE, [255, 255, 255]), "free pages: %s" % at[1])
    strip = [test.point("pages-chart", left + width * 0.5 + x, top + height + 24 + 15) for x in range(-6, 7)]
    test.check([0, 0x9E, 0x73] in strip, "the donation: %s" % strip)
    test.check(all(test.point("pages-chart", left + width * 0.3 + x, top + height + 24 + 15) != [0, 0x9E, 0x73] for x in range(9)),
               "no donation earlier")
    test.js("umf.choose(umf.model.length * 0.2)")
    test.check(test.text("pages-summary").startswith("64 MiB of pages: 64 MiB live, 0 B free"), test.text("pages-summary"))
    test.js("(() => { const box = document.getElementById('pages-chart').getBoundingClientRect();"
            "document.getElementById('pages-chart').dispatchEvent(new MouseEvent('click', { clientX: box.left + %f })); })()" %
            (left + width * 0.75))
    moment = test.js("umf.state.moment / umf.model.length")
    test.check(abs(moment - 0.75) < 0.01, "a click chooses the moment: %s" % moment)
    fragment = test.js(picture_views.WRITTEN % "(() => { const box = document.getElementById('pages-pool'); box.value = 1;"
                       "box.dispatchEvent(new Event('change')); })()")
    test.check(test.text("pages-summary").startswith("16 MiB of pages: 16 MiB live"), test.text("pages-summary"))
    test.open(page, fragment=fragment)
    test.equal(test.js("umf.state.arena"), 1, "the arena of the address")
    test.js("umf.change({ arena: 2 }); umf.choose(umf.model.length)")
    test.check("5 B of pages" in test.text("pages-summary"), "damaged sums: " + test.text("pages-summary"))
    for spans in test.js("umf.model.maps.map((map) => map.spans.map((span) => [span[0], span[1]]))"):
        ends = [int(address, 16) + size for address, size in spans]
        test.check(all(end <= int(address, 16) for end, (address, _) in zip(ends, spans[1:])), "spans overlap: %s" % spans)
    test.nothing_strange(page)
    test.open(other)
    test.check(test.js("document.getElementById('pages').hidden"), "no pages without an arena")


def snapshot(test, page):
    test.open(page)
    test.check(test.js("document.getElementById('timeline').hidden"), "no timeline in a snapshot")
    test.equal(test.js("document.querySelectorAll('#bar-rows .track').length"), 4, "bars of pools")
    test.check("6 MiB live of 8 MiB, 8 MiB asleep" in test.text("bar-rows"), "a pool asleep: " + test.text("bar-rows"))
    test.click("tab-map")
    names = test.js("Array.from(document.getElementById('map-pool').options, (option) => option.textContent.split(' ')[0])")
    test.choose_pool(names.index("scattered"))
    text = test.text("map-summary")
    test.check("16 MiB, 4 MiB live, 4 MiB cached, 8 MiB free" in text and "is 512 KiB: fragmentation 93.8 %" in text, text)
    x, y = map(int, test.js("document.getElementById('map-canvas').dataset.first").split())
    test.equal(test.point("map-canvas", x + 3, y + 5), BLUE, "live")
    test.equal(test.point("map-canvas", x + 64 * 10 + 3, y + 5), ORANGE, "cached")
    test.choose_pool(names.index("asleep"))
    test.equal(test.point("map-canvas", x + 3, y + 1), PINK, "asleep")
    test.choose_pool(names.index("opaque"))
    test.check("2 MiB live" in test.text("map-summary") and "6 MiB unknown" in test.text("map-summary"), test.text("map-summary"))
    last = test.js("Number(document.getElementById('map-canvas').height)") - 9
    hatched = {tuple(test.point("map-canvas", x + 1 + dot, last)) for dot in range(6)}
    test.equal(len(hatched), 2, "colours of unknown parts")


def large(test, page):
    for _ in range(2):
        test.open(page)
    print("the page of many events opens in %s ms" % test.js("document.documentElement.dataset.openMs"))
    test.check("keep_batch" in test.text("refusal-text"), "functions have names: " + test.text("refusal-text"))
    # Of many events in one bin: the state at the refusal.
    test.equal(test.js("umf.flame_tree(umf.state.moment, 'bytes').value"), test.js("umf.model.refusals[0].total"),
               "what lived at the refusal")


def guide(test, page, examples):
    """Text of the guide on its three programs."""
    with open(page, encoding="utf-8") as file:
        commands = re.findall(r"```sh\n(.*?)```", file.read(), re.S)
    test.equal(len(commands), 5, "commands of the guide")
    path = os.pathsep.join([examples, os.path.dirname(test.umfctl), os.environ["PATH"]])
    for command in commands:
        subprocess.run(["sh", "-ec", command], check=True, cwd=test.folder, env=dict(os.environ, PATH=path),
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    leak_of_guide(test, test.file("leak.html"))
    fragments_of_guide(test, test.file("fragments.html"))
    test.open(test.file("sleep.html"))
    test.equal(test.js("umf.model.marks.filter((mark) => mark.kind === 'suspend').length"), 4, "suspends")
    test.equal(test.js("umf.model.marks.filter((mark) => mark.kind === 'resume').length"), 4, "resumes")
    for name in ("leak", "fragments", "sleep"):
        test.views(name, test.file(name + ".html"), ("flame", "map", "sites", "allocs"), WINDOWS[::3])


def leak_of_guide(test, page):
    test.open(page)
    labels = test.js("Array.from(document.querySelectorAll('#flame-graph button'), (bar) => bar.getAttribute('aria-label'))")
    test.check(any(label.startswith("open_session") for label in labels), "the function: %s" % labels)
    test.click("tab-sites")
    first = test.js("Array.from(document.querySelector('#sites tbody tr').cells, (cell) => cell.textContent)")
    test.check(first[0] == first[2][1:] and first[3].startswith("sessions") and first[4].startswith("open_session"),
               "the stack that grows: %s" % first)
    test.equal(test.js("umf.model.allocs.length"), 1993, "sessions that are left")


def fragments_of_guide(test, page):
    test.open(page)
    text = test.text("refusal-text")
    for words in ("found no memory for 32 MiB", "30 MiB were live in 120 allocations", "it is fragmented", "keep_result"):
        test.check(words in text, "'%s' in: %s" % (words, text))
    test.click("tab-map")
    test.check("are in spans of which less than a quarter is live" in test.text("map-summary"), test.text("map-summary"))


def run(test):
    server, lost, still = test.own("server"), test.own("lost"), test.own("snapshot")
    timeline(test, server)
    mouse(test, server)
    keyboard(test, server)
    flame(test, server)
    address_map(test, server)
    tables(test, server)
    explanation(test, server, lost)
    hostile(test, server)
    picture_views.run(test, server, still)
    snapshot(test, still)
    arena = test.own("arena")
    pages(test, arena, server)
    tabs = ("flame", "map", "sites", "allocs")
    test.views("server", server, tabs)
    test.views("arena", arena, ("flame",))
    test.views("lost", lost, tabs)
    test.views("snapshot", still, tabs)
    for what in ("clean", "died", "overwritten", "tiny"):
        test.views(what, test.sampled(what, what, 20000), ("flame", "map"), WINDOWS[::3])
    full = int(os.environ.get("UMF_TEST_SCALE", "10")) >= 100
    large(test, test.sampled("large", "demo", 10_000_000 if full else 1_000_000))


def main():
    umfctl, sample, folder = sys.argv[1:4]
    path = browsers.find()
    if not path:
        print("there is no browser: the package chromium has one", file=sys.stderr)
        return 77
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    test = Test(umfctl, sample, folder, path)
    try:
        run(test)
        if len(sys.argv) > 4:
            guide(test, *sys.argv[4:6])
    finally:
        test.browser.close()
    print("%d checks, the pictures are in %s" % (test.checks, folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
