/*
 * Puts the page together: reads the data, starts the views, draws them once. It runs at the end of
 * the document, after the data.
 */
(function (umf) {
    "use strict";

    const { TABS } = umf;

    function head(model) {
        const { file } = model;
        umf.element("title").textContent = file.name;
        document.title = file.name + " \u2013 memory";
        const start = file.started_ms > 0 ? ", " + new Date(file.started_ms).toISOString().replace("T", " ").slice(0, 19) + " UTC" : "";
        umf.element("subtitle").textContent = file.kind === "snapshot"
            ? "Snapshot of process " + file.pid + start
            : "Recording of process " + file.pid + start + ": " + umf.time(model.length) + ", " + umf.plural(file.events, "event");
    }

    /* Snapshots: what each pool holds, in bars of one scale. */
    function bars(model) {
        const pools = Array.from(model.objects.values()).filter((object) => object.kind === 1 && object.held > 0)
            .sort((a, b) => b.held - a.held).slice(0, 12);
        const most = pools.length ? pools[0].held : 1;
        const rows = umf.element("bar-rows");
        for (const pool of pools) {
            umf.add(rows, "span", "name", pool.name).title = pool.name;
            const track = umf.add(rows, "span", "track");
            const live = pool.live === null ? 0 : pool.live;
            const away = pool.away || 0;
            part(track, "#0072b2", "", live / most);
            part(track, pool.live === null ? "" : "var(--free)", pool.live === null ? "unknown" : "", Math.max(0, pool.held - live) / most);
            part(track, "", "asleep", away / most);
            umf.add(rows, "span", "value", umf.bytes(pool.live) + (pool.live === null ? " live, " : " live of ") + umf.bytes(pool.held) +
                (away ? ", " + umf.bytes(away) + " asleep" : ""));
        }
        key(pools);
    }

    function part(track, colour, name, share) {
        const element = umf.add(track, "span", name);
        element.style.width = 100 * share + "%";
        if (colour) {
            element.style.background = colour;
        }
    }

    function key(pools) {
        const add = (name, colour, text) => {
            const item = umf.add(umf.element("bar-key"), "span");
            umf.add(item, "span", "swatch " + name).style.background = colour;
            umf.add(item, "span", "", text);
        };
        add("", "#0072b2", "live");
        add("", "var(--free)", "free or cached");
        if (pools.some((pool) => pool.away > 0)) {
            add("asleep", "", "asleep: no physical memory");
        }
        if (pools.some((pool) => pool.live === null)) {
            add("unknown", "", "not reported by the pool");
        }
    }

    /* Buttons of which one of a group is on. */
    function groups() {
        const buttons = Array.from(document.querySelectorAll("button[data-set]"));
        for (const button of buttons) {
            button.addEventListener("click", () => umf.change({ [button.dataset.set]: button.dataset.to, hidden: umf.state.hidden }));
        }
        umf.listen(() => {
            for (const button of buttons) {
                button.setAttribute("aria-pressed", String(umf.state[button.dataset.set] === button.dataset.to));
                button.disabled = button.dataset.set === "what" && umf.state.by === "stack";
            }
        });
    }

    function tabs() {
        const buttons = TABS.map((name) => umf.element("tab-" + name));
        buttons.forEach((button, index) => {
            button.addEventListener("click", () => umf.change({ tab: TABS[index] }));
            button.addEventListener("keydown", (event) => {
                const step = { ArrowLeft: TABS.length - 1, ArrowRight: 1 }[event.key];
                if (step) {
                    buttons[(index + step) % TABS.length].focus();
                    buttons[(index + step) % TABS.length].click();
                }
            });
        });
    }

    /* Before views draw, since they need the width of the panel. */
    function show_tab() {
        TABS.forEach((name) => {
            const is_on = name === umf.state.tab;
            umf.element(name).hidden = !is_on;
            umf.element("tab-" + name).setAttribute("aria-selected", String(is_on));
            umf.element("tab-" + name).tabIndex = is_on ? 0 : -1;
        });
        umf.element("when").textContent = !umf.model.has_time ? ""
            : umf.state.tab === "allocs" ? "At the end of the recording:"
            : "At " + umf.time(umf.state.moment) + ", the moment chosen above:";
    }

    function search() {
        let timer = 0;
        const box = umf.element("search");
        const words = () => box.value.trim().toLowerCase();
        box.addEventListener("input", () => {
            clearTimeout(timer);
            timer = setTimeout(() => umf.change({ search: words() }), 80);
        });
        umf.listen(({ search }) => {
            if (search !== undefined && search !== words()) {
                clearTimeout(timer);
                box.value = search;
            }
        });
    }

    /* The highest point is what most people look for, and a refusal more than that. */
    function first_moment(model) {
        return model.refusals.length ? model.refusals[0].t : model.has_time ? model.file.peak_t : 0;
    }

    function redraw() {
        umf.change({ moment: umf.state.moment, tab: umf.state.tab });
    }

    function start() {
        const model = umf.read(JSON.parse(umf.element("data").textContent));
        umf.model = model;
        head(model);
        umf.element("bars").hidden = model.has_time;
        umf.element("timeline").hidden = !model.has_time;
        if (!model.has_time) {
            bars(model);
        }
        umf.listen(show_tab);
        groups();
        tabs();
        search();
        umf.start_explain();
        if (model.has_time) {
            umf.start_timeline();
            umf.start_pages();
        }
        umf.start_flame();
        umf.start_map();
        umf.start_tables();
        umf.start_address({ moment: first_moment(model), from: 0, to: model.length });
        window.addEventListener("resize", redraw);
        window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
        document.documentElement.dataset.openMs = performance.now().toFixed(0);
    }

    start();
})((window.umf = window.umf || {}));
