/*
 * Tables that are searched, sorted and shown in parts: the stacks that hold memory at the moment, and
 * allocations that live at the end.
 */
(function (umf) {
    "use strict";

    const PART = 200; /* rows that are shown at a time */

    /* A table in `panel`. `columns`: { name, width, number, value(row), text(row), cell(td, row) };
       `rows()` gives what there is, `say(shown, all)` a line above it. */
    umf.table = function (panel, columns, order, rows, say) {
        const table = { panel, columns, order, down: true, shown: PART, rows, say };
        table.summary = umf.add(panel, "p", "summary");
        table.summary.setAttribute("aria-live", "polite");
        const scroll = umf.add(panel, "div", "scroll");
        const element = umf.add(scroll, "table");
        table.head = umf.add(umf.add(element, "thead"), "tr");
        table.body = umf.add(element, "tbody");
        table.more = umf.add(panel, "button", "more", "show more");
        table.more.type = "button";
        table.more.addEventListener("click", () => draw(table, table.shown + PART));
        columns.forEach((column, index) => head(table, column, index));
        return () => draw(table, PART);
    };

    function head(table, column, index) {
        const cell = umf.add(table.head, "th", column.number ? "number" : "");
        cell.scope = "col";
        cell.style.width = column.width || "";
        const button = umf.add(cell, "button", "", column.name);
        button.type = "button";
        button.addEventListener("click", () => {
            table.down = table.order === index ? !table.down : Boolean(column.number);
            table.order = index;
            draw(table, PART);
        });
    }

    function compare(column, down) {
        const sign = down ? -1 : 1;
        return (a, b) => {
            const x = column.value(a);
            const y = column.value(b);
            return sign * (x < y ? -1 : x > y ? 1 : 0);
        };
    }

    function draw(table, shown) {
        const all = table.rows();
        const { search } = umf.state;
        const found = search ? all.filter((row) => row.words.includes(search)) : all.slice();
        found.sort(compare(table.columns[table.order], table.down));
        table.shown = shown;
        umf.empty(table.body);
        for (const row of found.slice(0, shown)) {
            const line = umf.add(table.body, "tr");
            table.columns.forEach((column) => fill(umf.add(line, "td", column.number ? "number" : column.name.toLowerCase()), column, row));
        }
        Array.from(table.head.children).forEach((cell, index) => {
            const sort = index !== table.order ? "none" : table.down ? "descending" : "ascending";
            cell.setAttribute("aria-sort", sort);
            cell.firstChild.textContent = table.columns[index].name + { none: "", descending: " \u25be", ascending: " \u25b4" }[sort];
        });
        table.more.hidden = found.length <= shown;
        table.summary.textContent = table.say(found, all);
        if (found.length === 0) {
            const cell = umf.add(umf.add(table.body, "tr"), "td", "empty", search ? "Nothing matches the search." : umf.nothing_lives());
            cell.colSpan = table.columns.length;
        }
    }

    function fill(cell, column, row) {
        if (column.cell) {
            column.cell(cell, row);
        } else {
            cell.textContent = column.text(row);
        }
    }

    /* One line with the innermost functions, which opens to the whole stack. */
    function stack_cell(cell, row) {
        const { model } = umf;
        const frames = row.stack < 0 ? [] : model.stacks[row.stack];
        if (frames.length === 0) {
            cell.textContent = "no stack recorded";
            return;
        }
        const details = umf.add(cell, "details");
        umf.add(details, "summary", "", model.stack_title(row.stack));
        const list = umf.add(details, "ol");
        for (const frame of frames) {
            const [name, module, line] = model.frames[frame];
            umf.add(list, "li", "", name + (line ? " at " + line : "") + " (" + module + ")");
        }
    }

    function words(row, more) {
        const { model } = umf;
        const frames = row.stack < 0 ? [] : model.stacks[row.stack].map((frame) => model.frames[frame].join(" "));
        return [model.name(row.object), more].concat(frames).join(" ").toLowerCase();
    }

    const STACK = { name: "Stack, innermost first", value: (row) => umf.model.stack_title(row.stack), cell: stack_cell };
    const POOL = { name: "Pool", width: "150px", value: (row) => umf.model.name(row.object), text: (row) => umf.model.name(row.object) };

    function signed(value, text) {
        return value > 0 ? "+" + text : text;
    }

    function site_columns() {
        const growth = { name: "Growth", width: "104px", number: true, value: (row) => row.growth, text: (row) => signed(row.growth, umf.bytes(row.growth)) };
        const size = { name: "Bytes", width: "96px", number: true, value: (row) => row.bytes, text: (row) => umf.bytes(row.bytes) };
        const count = { name: "Count", width: "90px", number: true, value: (row) => row.count, text: (row) => umf.count(row.count) };
        return [size, count].concat(umf.model.has_time ? [growth] : [], [POOL, STACK]);
    }

    function site_rows() {
        const { sites } = umf.model;
        const now = umf.bin(sites.bins, umf.state.moment);
        const then = umf.bin(sites.bins, umf.state.from);
        const before = (site) => (umf.state.from > 0 ? site.bytes[then] : 0);
        return sites.list.filter((site) => site.bytes[now] > 0 || site.count[now] > 0).map((site) => {
            const row = { object: site.object, stack: site.stack, bytes: site.bytes[now], count: site.count[now], growth: site.bytes[now] - before(site) };
            row.words = words(row, "");
            return row;
        });
    }

    function say_sites(found, all) {
        const { sites, has_time } = umf.model;
        const now = umf.bin(sites.bins, umf.state.moment);
        const total = found.reduce((sum, row) => sum + row.bytes, 0);
        const rest = sites.rest.bytes[now];
        return umf.plural(found.length, "stack") + (found.length < all.length ? " of " + umf.count(all.length) : "") + ", " + umf.bytes(total) + "." +
            (rest > 0 ? " Not listed: " + umf.plural(sites.left, "other stack") + ", " + umf.bytes(rest) + "." : "") +
            (has_time ? " Growth is since the left edge of the timeline." : "");
    }

    const age = (row) => (row.t === null ? Infinity : umf.model.length - row.t);

    function alloc_columns() {
        const address = { name: "Address", width: "138px", value: (row) => row.address.padStart(20, "0"), text: (row) => row.address };
        const size = { name: "Size", width: "96px", number: true, value: (row) => row.size, text: (row) => umf.bytes(row.size) };
        const old = { name: "Age", width: "104px", number: true, value: age, text: (row) => (row.t === null ? "unknown" : umf.time(age(row))) };
        const thread = { name: "Thread", width: "92px", number: true, value: (row) => row.thread, text: (row) => (row.thread ? String(row.thread) : "unknown") };
        return [address, size, old, thread, POOL, STACK];
    }

    function alloc_rows() {
        return umf.model.allocs.map(([address, size, object, stack, t, thread]) => {
            const row = { address, size, object, stack, t, thread };
            row.words = words(row, address);
            return row;
        });
    }

    function say_allocs(found, all) {
        const [left, bytes] = umf.model.allocs_left;
        return umf.plural(found.length, "allocation") + (found.length < all.length ? " of " + umf.count(all.length) : "") + " that " +
            (found.length === 1 ? "lives" : "live") + " at the end, " + umf.bytes(found.reduce((sum, row) => sum + row.size, 0)) + "." +
            (left > 0 ? " Not listed: " + umf.count(left) + " smaller ones, " + umf.bytes(bytes) + "." : "");
    }

    umf.start_tables = function () {
        const allocs = alloc_rows();
        const draw_sites = umf.table(umf.element("sites"), site_columns(), 0, site_rows, say_sites);
        const draw_allocs = umf.table(umf.element("allocs"), alloc_columns(), 1, () => allocs, say_allocs);
        umf.listen((changes) => {
            if (umf.state.tab === "sites" && ("tab" in changes || !("hidden" in changes))) {
                draw_sites();
            } else if (umf.state.tab === "allocs" && ("search" in changes || "tab" in changes)) {
                draw_allocs();
            }
        });
    };
})((window.umf = window.umf || {}));
