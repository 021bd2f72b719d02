/*
 * The address map of a pool: its spans cut into cells of one size, in the order of their addresses.
 * A cell is filled from below as far as it is live, then cached; the rest is free.
 */
(function (umf) {
    "use strict";

    const LEFT = 132; /* addresses */
    const CELL = 10;
    const ROW = 15;
    const AWAY = 1; /* flags of a span, as in record_format.h */
    const IMPORT = 2;
    const EXPORTED = 4;
    const UNKNOWN = 0x100; /* of the writer: its blocks are not known */
    const SEEN = 0x200; /* no span: allocations were seen here */
    const COLOURS = { live: "#0072b2", cached: "#e69f00", asleep: "#cc79a7" };

    let place = null; /* of each cell drawn: { spans: [{ span, index, first, cells, x, y... }] } */
    let cursor = -1; /* the cell whose state is shown */

    const map_now = () => umf.model.maps.find((map) => map.object === umf.state.pool) || umf.model.maps[0];

    /* The picture of the pool that is nearest to the moment, not after it if there is one. */
    function frame_of(map) {
        let best = map.frames[0];
        for (const frame of map.frames) {
            best = frame.t <= umf.state.moment + 1 ? frame : best;
        }
        return best;
    }

    /* Spans that are there, with their first cell among all of the map. */
    function spans_of(map, frame) {
        const list = [];
        let first = 0;
        map.spans.forEach((span, index) => {
            const cells = span[3];
            if (!frame.there || frame.there[index] === "1") {
                const flags = span[2] | (frame.asleep ? AWAY : 0);
                list.push({ base: span[0], size: span[1], flags, first, cells });
            }
            first += cells;
        });
        return { list, total: first };
    }

    /* Bytes of a cell: the last of a span may be a part. */
    function cell_bytes(map, span, index) {
        return index === span.cells - 1 ? span.size - (span.cells - 1) * map.cell : map.cell;
    }

    /* The figures of the writer where it has them, else those of the cells. */
    function figures(map, frame, spans) {
        const summary = { held: 0, live: frame.live_bytes, cached: frame.cached_bytes, away: 0, sparse: 0, seen: 0 };
        const live = umf.levels(frame.live, spans.total);
        for (const span of spans.list) {
            summary.held += span.flags & SEEN ? 0 : span.size;
            summary.seen += span.flags & SEEN ? 1 : 0;
            summary.away += span.flags & AWAY ? span.size : 0;
            let used = 0;
            for (let cell = 0; cell < span.cells; cell++) {
                used += (live[span.first + cell] / 15) * cell_bytes(map, span, cell);
            }
            summary.sparse += used > 0 && used < span.size / 4 && !(span.flags & (UNKNOWN | SEEN)) ? span.size : 0;
        }
        summary.free = Math.max(0, summary.held - summary.live - summary.cached - frame.unknown_bytes);
        return summary;
    }

    function sentence(map, frame, spans) {
        const summary = figures(map, frame, spans);
        if (summary.seen > 0) {
            return umf.bytes(summary.live) + " live. The spans of this pool are not known, or not all: they are older than the recording. " +
                umf.plural(summary.seen, "range") + " in which allocations were seen " + (summary.seen === 1 ? "is" : "are") + " drawn." + left_out(map);
        }
        const parts = [umf.plural(spans.list.length, "span") + " hold " + umf.bytes(summary.held),
            umf.bytes(summary.live) + " live", map.knows_cache ? umf.bytes(summary.cached) + " cached" : "",
            umf.bytes(summary.free) + (map.knows_cache ? " free" : " free or cached"),
            frame.unknown_bytes ? umf.bytes(frame.unknown_bytes) + " unknown" : "",
            summary.away ? (frame.asleep ? "all of it" : umf.bytes(summary.away)) + " asleep" : ""].filter((part) => part);
        let text = parts.join(", ") + ".";
        if (summary.free > 0 && frame.largest !== null) {
            const lost = Math.max(0, 1 - frame.largest / summary.free);
            text += " The largest free piece is " + (frame.largest_at_least ? "at least " : "") + umf.bytes(frame.largest) +
                ": fragmentation " + (frame.largest_at_least ? "at most " : "") + umf.percent(lost, 1) + ".";
        }
        if (summary.sparse > 0) {
            text += " " + umf.bytes(summary.sparse) + " are in spans of which less than a quarter is live.";
        }
        return text + left_out(map);
    }

    function left_out(map) {
        return map.spans_left ? " Not drawn: " + umf.plural(map.spans_left, "smaller span") + ", " + umf.bytes(map.bytes_left) + "." : "";
    }

    /* The place of each span: several to a row where they fit, a large one over many rows. */
    function arrange(spans, width) {
        const columns = Math.max(16, Math.floor((width - LEFT) / CELL));
        let column = 0;
        let row = 0;
        for (const span of spans.list) {
            if (column > 0 && column + span.cells > columns) {
                column = 0;
                row++;
            }
            span.column = column;
            span.row = row;
            column += span.cells;
            row += Math.floor(column / columns);
            column %= columns;
            column += column > 0 ? 1 : 0; /* a gap */
            if (column >= columns) {
                column = 0;
                row++;
            }
        }
        return { columns, rows: row + (column > 0 ? 1 : 0) };
    }

    function position(span, cell, columns) {
        const at = span.column + cell;
        return { x: LEFT + (at % columns) * CELL, y: (span.row + Math.floor(at / columns)) * ROW + 2 };
    }

    /* `levels`: of live, cached, unknown memory. */
    function draw_cell(context, span, x, y, levels, colours) {
        const height = ROW - 3;
        const width = CELL - 1;
        const [used, kept, dark] = levels.map((level) => Math.round((level / 15) * height));
        context.fillStyle = span.flags & (UNKNOWN | SEEN) ? colours.unknown : colours.free;
        context.fillRect(x, y, width, height);
        context.fillStyle = colours.unknown;
        context.fillRect(x, y, width, dark);
        context.fillStyle = COLOURS.cached;
        context.fillRect(x, y + height - used - kept, width, kept);
        context.fillStyle = COLOURS.live;
        context.fillRect(x, y + height - used, width, used);
        if (span.flags & AWAY) {
            context.fillStyle = COLOURS.asleep;
            context.fillRect(x, y, width, 4);
        }
    }

    function draw_label(context, text, y, colours) {
        context.fillStyle = colours.soft;
        context.textAlign = "right";
        context.textBaseline = "middle";
        context.fillText(text, LEFT - 8, y + ROW / 2 - 1);
    }

    function draw_map(map) {
        const frame = frame_of(map);
        const canvas = umf.element("map-canvas");
        const spans = spans_of(map, frame);
        const { columns, rows } = arrange(spans, canvas.clientWidth);
        const { context } = umf.context(canvas, Math.max(1, rows) * ROW + 4);
        const colours = { free: umf.colour("free"), soft: umf.colour("soft"), unknown: hatch(context) };
        const live = umf.levels(frame.live, spans.total);
        const cached = umf.levels(frame.cached, spans.total);
        const unknown = umf.levels(frame.unknown, spans.total);
        place = { map, spans, columns, live, cached, unknown };
        let labelled = -1;
        for (const span of spans.list) {
            if (span.row !== labelled) {
                draw_label(context, span.base, span.row * ROW + 2, colours);
                labelled = span.row;
            }
            for (let cell = 0; cell < span.cells; cell++) {
                const { x, y } = position(span, cell, columns);
                const at = span.first + cell;
                draw_cell(context, span, x, y, [live[at], cached[at], unknown[at]], colours);
            }
        }
        canvas.dataset.cells = spans.list.reduce((all, span) => all + span.cells, 0);
        canvas.dataset.first = LEFT + " 2";
        show_summary(map, frame, spans, canvas);
    }

    function hatch(context) {
        const tile = document.createElement("canvas");
        tile.width = tile.height = 4;
        const inside = tile.getContext("2d");
        inside.fillStyle = umf.colour("free");
        inside.fillRect(0, 0, 4, 4);
        inside.fillStyle = umf.colour("soft");
        [[0, 3], [1, 2], [2, 1], [3, 0]].forEach(([x, y]) => inside.fillRect(x, y, 1, 1));
        return context.createPattern(tile, "repeat");
    }

    function show_summary(map, frame, spans, canvas) {
        const text = sentence(map, frame, spans);
        umf.element("map-summary").textContent = text;
        canvas.setAttribute("aria-label", "Address map of " + umf.model.name(map.object) + ". " + text);
        const key = umf.element("map-key");
        umf.empty(key);
        const has = (flag) => spans.list.some((span) => span.flags & flag);
        const add = (colour, text, name) => {
            const item = umf.add(key, "span");
            const swatch = umf.add(item, "span", "swatch " + (name || ""));
            if (!name) {
                swatch.style.background = colour;
            }
            umf.add(item, "span", "", text);
        };
        add(COLOURS.live, "live");
        if (map.knows_cache) {
            add(COLOURS.cached, "cached");
        }
        add("var(--free)", map.knows_cache ? "free" : "free or cached");
        if (has(AWAY)) {
            add(COLOURS.asleep, "asleep: no physical memory");
        }
        if (has(UNKNOWN) || frame.unknown_bytes > 0) {
            add("", "not reported by the pool", "unknown");
        }
        if (has(SEEN)) {
            add("", "nothing of the pool was seen there", "unknown");
        }
        umf.add(key, "span", "soft", "one cell: " + umf.bytes(map.cell));
    }

    function cell_text(index) {
        const { map, spans, live, cached, unknown } = place;
        const span = spans.list.find((one) => index >= one.first && index < one.first + one.cells);
        if (!span) {
            return "";
        }
        const cell = index - span.first;
        const address = "0x" + (BigInt(span.base) + BigInt(cell) * BigInt(map.cell)).toString(16);
        const share = (level) => "about " + Math.round((level / 15) * 100) + " %";
        const state = span.flags & UNKNOWN ? "not reported by the pool" : share(live[index]) + " live" +
            (map.knows_cache ? ", " + share(cached[index]) + " cached" : "") + (unknown[index] ? ", " + share(unknown[index]) + " unknown" : "");
        const words = [[AWAY, "asleep"], [IMPORT, "opened from another process"], [EXPORTED, "exported"]]
            .filter(([flag]) => span.flags & flag).map(([, word]) => ", " + word).join("");
        return address + ", " + umf.bytes(cell_bytes(map, span, cell)) + ": " + state + (span.flags & SEEN ? "\nseen from " : "\nspan ") + span.base + ", " +
            umf.bytes(span.size) + words;
    }

    function cell_at(event) {
        const box = event.currentTarget.getBoundingClientRect();
        const column = Math.floor((event.clientX - box.left - LEFT) / CELL);
        const row = Math.floor((event.clientY - box.top - 2) / ROW);
        const { spans, columns } = place;
        for (const span of spans.list) {
            const cell = (row - span.row) * columns + column - span.column;
            if (column >= 0 && column < columns && cell >= 0 && cell < span.cells) {
                return span.first + cell;
            }
        }
        return -1;
    }

    /* Arrow keys walk over the cells, and the text below describes the cell. */
    function key(event) {
        const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -place.columns, ArrowDown: place.columns };
        if (place && steps[event.key]) {
            event.preventDefault();
            cursor = Math.max(0, Math.min(place.spans.total - 1, cursor + steps[event.key]));
            umf.element("map-cell").textContent = cell_text(cursor).replace("\n", "; ");
        }
    }

    /* A finger has no hover: it says what is below it where keys say it. */
    function press(event) {
        const cell = place ? cell_at(event) : -1;
        if (cell >= 0) {
            cursor = cell;
            umf.element("map-cell").textContent = cell_text(cell).replace("\n", "; ");
        }
    }

    function slide() {
        const frames = map_now().frames;
        umf.choose(frames[Math.min(frames.length - 1, Number(umf.element("map-time").value))].t);
    }

    function draw() {
        const map = map_now();
        umf.element("map-cell").textContent = "";
        if (!map) {
            umf.element("map-summary").textContent = "The recording has no pool with memory from a provider.";
            return;
        }
        const range = umf.element("map-time");
        umf.element("map-pool").value = umf.model.maps.indexOf(map);
        umf.element("map-slider").hidden = map.frames.length < 2;
        range.max = map.frames.length - 1;
        range.value = map.frames.indexOf(frame_of(map));
        range.setAttribute("aria-valuetext", umf.time(frame_of(map).t));
        draw_map(map);
    }

    umf.start_map = function () {
        const select = umf.element("map-pool");
        umf.model.maps.forEach((map, index) => {
            umf.add(select, "option", "", umf.model.name(map.object)).value = index;
        });
        select.disabled = umf.model.maps.length === 0;
        select.addEventListener("change", () => umf.change({ pool: umf.model.maps[select.value].object }));
        umf.element("map-time").addEventListener("input", slide);
        const canvas = umf.element("map-canvas");
        canvas.addEventListener("pointermove", (event) => {
            const cell = place ? cell_at(event) : -1;
            umf.tip(cell < 0 ? "" : cell_text(cell), event);
        });
        canvas.addEventListener("pointerleave", () => umf.tip(""));
        canvas.addEventListener("click", press);
        canvas.addEventListener("keydown", key);
        umf.listen((changes) => {
            if (umf.state.tab === "map" && ["moment", "tab", "pool"].some((name) => name in changes)) {
                draw();
            }
        });
    };
})((window.umf = window.umf || {}));
