/*
 * The flame graph: live allocations at the moment, from pools down their stacks, the outermost
 * function first. The width of a bar is its share. Bars are buttons, so keys and screen readers
 * reach them.
 */
(function (umf) {
    "use strict";

    const LEAST = 0.0012; /* of the width: narrower bars are left out */
    const COLOURS = ["#f7c6a3", "#f4d58d", "#c9dff0", "#bfe3d0", "#e8cfe0", "#d9d4f0", "#f0dcc0"];

    let active = ""; /* the path of the bar that Tab reaches */

    function child(node, key, name, module) {
        if (!node.children.has(key)) {
            node.children.set(key, { key, name, module, value: 0, own: 0, children: new Map() });
        }
        return node.children.get(key);
    }

    function add_site(root, site, value, model) {
        let node = child(root, "pool " + site.object, model.name(site.object), "pool");
        root.value += value;
        node.value += value;
        for (const frame of model.own_frames(site.stack).reverse()) {
            const [name, module] = model.frames[frame];
            node = child(node, name + "\n" + module, name, module);
            node.value += value;
        }
        node.own += value;
    }

    /* The tree of live allocations at a moment. */
    umf.flame_tree = function (moment, unit) {
        const model = umf.model;
        const bin = umf.bin(model.sites.bins, moment);
        const root = { key: "", name: "all that lives", module: "", value: 0, own: 0, children: new Map() };
        for (const site of model.sites.list) {
            const value = site[unit][bin];
            if (value > 0) {
                add_site(root, site, value, model);
            }
        }
        const rest = model.sites.rest[unit][bin];
        if (rest > 0) {
            root.value += rest;
            child(root, "rest", umf.plural(model.sites.left, "other stack"), "").value += rest;
        }
        return root;
    };

    function colour_of(node) {
        let hash = 7;
        for (const letter of node.name) {
            hash = (hash * 31 + letter.charCodeAt(0)) >>> 0;
        }
        return COLOURS[hash % COLOURS.length];
    }

    function matches(node, search) {
        return search !== "" && (node.name + " " + node.module).toLowerCase().includes(search);
    }

    function sorted(node) {
        return Array.from(node.children.values()).sort((a, b) => b.value - a.value);
    }

    /* Bytes below bars that match, each once. */
    function found_value(node, search) {
        if (matches(node, search)) {
            return node.value;
        }
        return sorted(node).reduce((all, next) => all + found_value(next, search), 0);
    }

    function has_match(node, search) {
        return matches(node, search) || sorted(node).some((next) => has_match(next, search));
    }

    function text_of(node, root) {
        const unit = umf.state.unit;
        const size = unit === "bytes" ? umf.bytes(node.value) : umf.plural(node.value, "allocation");
        return node.name + (node.module && node.module !== "pool" ? " (" + node.module + ")" : "") + "\n" +
            size + ", " + umf.percent(node.value, root.value) + " of the live memory";
    }

    function bar(graph, node, place, root) {
        const button = umf.add(graph, "button", place.above ? "above" : "");
        const path = place.path.join("\u0001");
        button.type = "button";
        button.style.left = (100 * place.left).toFixed(4) + "%";
        button.style.width = (100 * place.width).toFixed(4) + "%";
        button.style.top = "calc(" + place.row + " * var(--row))";
        button.style.background = colour_of(node);
        button.tabIndex = path === active ? 0 : -1;
        button.dataset.path = path;
        button.dataset.row = place.row;
        button.setAttribute("role", "treeitem");
        button.setAttribute("aria-level", place.row + 1);
        button.setAttribute("aria-label", text_of(node, root).replace("\n", ": "));
        decorate(button, node, place);
        button.addEventListener("click", () => zoom(place.path));
        button.addEventListener("pointermove", (event) => umf.tip(text_of(node, root), event));
        button.addEventListener("pointerleave", () => umf.tip(""));
    }

    function decorate(button, node, place) {
        const search = umf.state.search;
        button.classList.toggle("thin", place.width < 0.012);
        button.textContent = place.width < 0.012 ? "" : node.name + (place.width > 0.14 ? "  " + umf.amount(node.value, umf.state.unit) : "");
        if (search) {
            button.classList.toggle("found", matches(node, search));
            button.classList.toggle("dim", !place.below_match && !has_match(node, search));
        }
    }

    function bars(graph, node, place, root) {
        bar(graph, node, place, root);
        let left = place.left;
        const below_match = place.below_match || matches(node, umf.state.search);
        for (const next of sorted(node)) {
            const width = (place.width * next.value) / node.value;
            if (width >= LEAST) {
                bars(graph, next, { left, width, row: place.row + 1, path: place.path.concat([next.key]), below_match }, root);
            }
            left += width;
        }
    }

    /* The chain from the root to the zoomed bar, each over the whole width. */
    function draw_zoomed(graph, root) {
        let node = root;
        const path = [];
        for (const key of umf.state.zoomed) {
            if (!node.children.has(key)) {
                umf.state.zoomed = path.slice(); /* not at this moment */
                break;
            }
            bar(graph, node, { left: 0, width: 1, row: path.length, path: path.slice(), above: true, below_match: true }, root);
            node = node.children.get(key);
            path.push(key);
        }
        bars(graph, node, { left: 0, width: 1, row: path.length, path, below_match: false }, root);
    }

    function zoom(path) {
        active = path.join("\u0001");
        umf.change({ zoomed: path });
        focus(active);
    }

    function focus(path) {
        for (const button of umf.element("flame-graph").children) {
            button.tabIndex = button.dataset.path === path ? 0 : -1;
            if (button.dataset.path === path) {
                active = path;
                button.focus({ preventScroll: true });
            }
        }
    }

    /* Bars of the same row beside, the first below, the one above. */
    function key(event) {
        const buttons = Array.from(umf.element("flame-graph").children);
        const at = buttons.indexOf(document.activeElement);
        if (at < 0) {
            return;
        }
        const path = buttons[at].dataset.path;
        const row = buttons.filter((button) => button.dataset.row === buttons[at].dataset.row);
        const index = row.indexOf(buttons[at]);
        const below = buttons.find((button) => button.dataset.path.startsWith(path ? path + "\u0001" : "") &&
            Number(button.dataset.row) === Number(buttons[at].dataset.row) + 1);
        const above = path.includes("\u0001") ? path.slice(0, path.lastIndexOf("\u0001")) : "";
        const next = { ArrowLeft: row[index - 1], ArrowRight: row[index + 1], ArrowDown: below,
            ArrowUp: path && buttons.find((button) => button.dataset.path === above) }[event.key];
        if (event.key === "Escape") {
            zoom([]);
        } else if (next) {
            focus(next.dataset.path);
        } else {
            return;
        }
        event.preventDefault();
    }

    function draw() {
        const graph = umf.element("flame-graph");
        const root = umf.flame_tree(umf.state.moment, umf.state.unit);
        const summary = umf.element("flame-summary");
        umf.empty(graph);
        umf.tip("");
        if (root.value <= 0) {
            summary.textContent = "";
            umf.add(graph, "p", "empty", umf.nothing_lives());
            return;
        }
        if (!active) {
            active = umf.state.zoomed.join("\u0001");
        }
        draw_zoomed(graph, root);
        const rows = Array.from(graph.children, (button) => Number(button.dataset.row));
        graph.style.height = "calc(4px + " + (rows.reduce((most, row) => Math.max(most, row), 0) + 1) + " * var(--row))";
        if (!graph.querySelector("[tabindex='0']")) {
            graph.firstChild.tabIndex = 0;
        }
        show_summary(summary, root);
    }

    function show_summary(summary, root) {
        const { search, unit } = umf.state;
        const found = search ? found_value(root, search) : 0;
        summary.textContent = search
            ? "\u201c" + search + "\u201d: " + umf.amount(found, unit) + (unit === "count" ? " allocations" : "") + ", " + umf.percent(found, root.value) + " of the live memory"
            : "The width is the share of the live memory. Click a bar to fill the width with it, Escape to go back.";
    }

    umf.nothing_lives = function () {
        return umf.model.has_time ? "Nothing that was recorded lives at this moment."
            : "This snapshot has no allocations: they are in it if a recording with \u201cleaks\u201d runs when it is taken.";
    };

    umf.start_flame = function () {
        umf.element("flame-graph").addEventListener("keydown", key);
        umf.listen((changes) => {
            const matters = ["moment", "unit", "search", "tab", "zoomed"].some((name) => name in changes);
            if (umf.state.tab === "flame" && matters) {
                draw();
            }
        });
    };
})((window.umf = window.umf || {}));
