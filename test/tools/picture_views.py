"""What picture_test.py checks of the views of the page: their addresses, also strange ones, phones, buttons that are off."""
import os

# The state, the hash and what depends on the state, once the page has written its hash or read another.
STATE = """(() => { const { moment, from, to, by, what, unit, search, tab, hidden, pool, zoomed, refusal } = umf.state;
    return { moment, from, to, by, what, unit, search, tab, pool, zoomed, refusal, hidden: Array.from(hidden),
        box: document.getElementById("search").value }; })()"""
WRITTEN = """new Promise((done) => { const before = location.hash; %s;
    const look = () => location.hash === before ? setTimeout(look, 10) : done(location.hash.slice(1)); look(); })"""
FOLLOWED = "new Promise((done) => { addEventListener('hashchange', () => done(location.hash.slice(1)), { once: true }); %s; })"
STRANGE = ("timeline", "%", "%E0%A4%A", "tab=<script>alert(1)</script>", "tab=constructor&by=__proto__&what=toString&unit=",
           "from=-1&to=NaN&moment=1e9", "from=5&to=5", "from=99999999999999999999&to=99999999999999999999", "from=0.1&to=0.2",
           "moment=&from=Infinity", "pool=-1&refusal=99999&hidden=-1,9,x,,1e0", "refusal=-0&pool=null", "refusal=01&pool=",
           "bar=__proto__&bar=<img src=x onerror=alert(1)>", "bar=" + "&bar=" * 1000,
           "search=" + "x" * 300, "search=" + "x" * 9000, "&=&;?#")


def address(test, page):
    """The view is in the address: it is sent, and the back button shows the one before."""
    test.open(page)
    opened = test.js(STATE)
    test.equal(test.js("location.hash"), "", "the address of the page as it opens")
    test.js(WRITTEN % "document.querySelector('#legend button').click();"
            "Array.from(document.querySelectorAll('#flame-graph button')).find((bar) => bar.textContent.startsWith('kv cache')).click();"
            "document.querySelector('[data-to=held]').click(); document.querySelector('[data-to=count]').click();"
            "umf.choose(umf.model.length * 0.55); document.getElementById('zoom-in').click()")
    first = test.js(STATE)
    test.check(first["from"] > 0 and len(first["zoomed"]) == 1 and len(first["hidden"]) == 1, "the view: %s" % first)
    fragment = test.js(WRITTEN % "const pools = document.getElementById('map-pool'); pools.value = 2; pools.dispatchEvent(new Event('change'));"
                       "document.getElementById('search').value = 'KV <b> & # cache';"
                       "document.getElementById('search').dispatchEvent(new Event('input')); document.getElementById('tab-map').click()")
    second = test.js(STATE)
    test.check(second["search"] == "kv <b> & # cache" and second["pool"] is not None and second["tab"] == "map", "the view: %s" % second)
    same_view(test, FOLLOWED % "history.back()", first, "back")
    test.equal(test.js("document.querySelectorAll('#flame-graph .above').length"), 1, "bars above, after back")
    same_view(test, FOLLOWED % "history.back()", opened, "back to the start")
    same_view(test, FOLLOWED % "history.forward()", first, "forward")
    test.open(page, fragment=fragment)
    same_view(test, "0", second, "the page opened with " + fragment)
    test.equal(test.js("document.getElementById('tab-map').getAttribute('aria-selected')"), "true", "the tab of the address")
    test.equal(test.js("document.getElementById('map-pool').value"), "2", "the pool of the map")
    test.check("live" in test.text("map-summary"), "the map is drawn: " + test.text("map-summary"))
    return fragment


def same_view(test, code, should, what):
    """Searches are kept as they are compared; times to a thousandth of a nanosecond."""
    test.js(code)
    state = test.js(STATE)
    for view in (state, should):
        view["box"] = view["box"].lower()
    for name, value in should.items():
        is_near = name in ("moment", "from", "to") and abs(state[name] - value) <= 0.001
        test.check(is_near or state[name] == value, "%s: %s is %r, should be %r" % (what, name, state[name], value))


def strange_addresses(test, page, other, fragment):
    """What is no view of this page is ignored, also the view of another page."""
    test.open(page)
    opened = test.js(STATE)
    for text in STRANGE:
        test.js(FOLLOWED % "location.hash = 'tab=sites'")
        test.js(FOLLOWED % "location.hash = decodeURIComponent('%s')" % "".join("%%%02X" % byte for byte in text.encode()))
        state = test.js("(umf.flame_tree(umf.state.moment, umf.state.unit), document.getElementById('when').textContent && %s)" % STATE)
        search = "x" * 200 if text.startswith("search") and len(text) <= 8192 else ""
        test.equal(state, dict(opened, search=search, box=search), "the state after #" + text[:80])
        test.nothing_strange(page)
    test.equal(test.js("document.scripts.length + document.images.length"), 2, "scripts and images")
    test.open(other, fragment=fragment + "&by=stack&hidden=0,1,2,3,4,5,6,7,8")
    test.equal(test.js("[umf.state.tab, umf.state.search]"), ["map", "kv <b> & # cache"], "what the other page has, too")
    for tab in ("flame", "sites", "allocs"):
        test.click("tab-" + tab)
    test.nothing_strange(other)


def phone(test, page):
    """One column, nothing wider than the window, and buttons for a finger."""
    for width in (390, 320):
        test.open(page, width)
        for tab in ("flame", "map", "sites", "allocs"):
            test.click("tab-" + tab)
            if width == 390:
                test.browser.picture(test.file("%s-%s-390.png" % (os.path.basename(page)[:-5], tab)))
            test.fits("%s at %d points" % (tab, width))
            low = test.js("Array.from(document.querySelectorAll('button, input, select, td summary')).filter((node) => node.offsetHeight && "
                          "node.offsetHeight < 39).map((node) => [node.id || node.textContent, node.offsetHeight])")
            test.equal(low, [], "what is too low for a finger")
            wide = test.js("Array.from(document.querySelectorAll('body *')).filter((node) => !node.closest('.scroll, #flame-graph, #tip') && "
                           "node.getBoundingClientRect().right > innerWidth).map((node) => node.id || node.tagName)")
            test.equal(wide, [], "what ends beyond the window")
    columns = test.js("new Set(Array.from(document.querySelectorAll('#legend li'), (item) => item.offsetLeft)).size")
    test.check(columns == 1 or page.endswith("snapshot.html"), "columns of the legend: %d" % columns)


def finger(test, page):
    """On a touch screen a tap says what a cell is; a drag that the browser takes to scroll zooms nothing."""
    test.open(page, 390)
    test.click("tab-map")
    test.choose_pool(1)
    x, y = map(int, test.js("document.getElementById('map-canvas').dataset.first").split())
    test.js("(() => { const canvas = document.getElementById('map-canvas'); const box = canvas.getBoundingClientRect();"
            "canvas.dispatchEvent(new MouseEvent('click', { clientX: box.left + %d, clientY: box.top + %d })); })()" % (x + 3, y + 5))
    test.check("0x7f20" in test.text("map-cell"), "a cell that was tapped: " + test.text("map-cell"))
    left, top, width, height = test.chart_box()
    before = test.js(STATE)
    test.js("document.getElementById('chart').scrollIntoView()")
    origin = test.js("(() => { const box = document.getElementById('chart').getBoundingClientRect(); return [box.left, box.top]; })()")
    place = (origin[0] + left + width / 2, origin[1] + top + height / 2)
    test.browser.mouse("mousePressed", *place, "left")
    test.js("document.getElementById('chart').dispatchEvent(new PointerEvent('pointercancel'))")
    test.browser.mouse("mouseReleased", place[0] + 60, place[1], "left")
    test.equal(test.js(STATE), before, "the state after a drag that was cancelled")


def disabled(test, page):
    """By stack there is no choice of what the pools have: its buttons are off, and can be read."""
    for scheme in ("light", "dark"):
        test.open(page, 1280, scheme)
        test.js("document.querySelector('[data-to=stack]').click()")
        test.equal(test.js("Array.from(document.querySelectorAll('[data-set=what]'), (button) => [button.disabled, "
                           "button.getAttribute('aria-pressed'), getComputedStyle(button).opacity])"),
                   [[True, "true", "1"], [True, "false", "1"]], "what of the pools")
        test.fits("by stack, " + scheme)


def run(test, server, still):
    strange_addresses(test, server, still, address(test, server))
    for page in (server, still):
        phone(test, page)
    finger(test, server)
    disabled(test, server)
