/*
 * Pages of arenas: below the timeline, with its part of the time, one arena after the other. Areas are all pages: under
 * live blocks, under free parts, spare. The dashed line is stale addresses, whose pages are elsewhere or about to be
 * destroyed; the strip at the bottom shows when pages were donated.
 */
(function (umf) {
    "use strict";

    const STRIP = 16; /* of donations */
    const BOTTOM = 24 + STRIP + 6;
    const COLOURS = { live: "#0072b2", spare: "#e69f00", stale: "#d55e00", donated: "#009e73" };

    const chosen = () => umf.model.arenas[umf.state.arena];

    /* Of an arena at the end of a bin. */
    function sums(arena, bin) {
        const reserved = arena.reserved[bin];
        const spare = Math.min(reserved, arena.spare[bin]);
        const live = Math.min(reserved - spare, arena.live[bin]);
        return { reserved, spare, live, free: reserved - spare - live, stale: arena.stale[bin], donated: arena.donated[bin] };
    }

    function series(arena) {
        const areas = ["live", "free", "spare"].map((name) => ({ name, values: new Float64Array(umf.model.pools.bins) }));
        for (let bin = 0; bin < umf.model.pools.bins; bin++) {
            const at = sums(arena, bin);
            areas.forEach((area) => (area.values[bin] = at[area.name]));
        }
        areas[0].colour = COLOURS.live;
        areas[1].colour = umf.colour("free");
        areas[2].colour = COLOURS.spare;
        return areas;
    }

    const bin_at = (box, x) => umf.bin(umf.model.pools.bins, umf.state.from + (x / box.width) * (umf.state.to - umf.state.from));

    function draw_stale(context, box, arena, most) {
        context.strokeStyle = COLOURS.stale;
        context.lineWidth = 1.5;
        context.setLineDash([5, 3]);
        context.beginPath();
        for (let x = 0; x < box.width; x++) {
            context.lineTo(box.left + x, box.top + box.height * (1 - Math.min(1, arena.stale[bin_at(box, x + 0.5)] / most)));
        }
        context.stroke();
        context.setLineDash([]);
    }

    /* Nothing, if the sum at the beginning is not known. */
    function donated_in(arena, first, last) {
        const is_known = arena.reserved[first] > 0 || arena.donated[first] > 0;
        return is_known ? Math.max(0, arena.donated[last] - arena.donated[first]) : 0;
    }

    /* The bytes that were donated in the time of each point. */
    function draw_donated(context, box, arena) {
        const width = Math.max(1, Math.floor(box.width));
        const bytes = Array.from({ length: width }, (none, x) => donated_in(arena, bin_at(box, x), bin_at(box, x + 1)));
        const most = Math.max(1, ...bytes);
        const bottom = box.top + box.height + 24 + STRIP;
        context.fillStyle = umf.colour("panel");
        context.fillRect(box.left, bottom - STRIP, box.width, STRIP);
        context.fillStyle = COLOURS.donated;
        bytes.forEach((size, x) => {
            const height = size > 0 ? Math.max(2, STRIP * (size / most)) : 0;
            context.fillRect(box.left + x, bottom - height, 1, height);
        });
        context.fillStyle = umf.colour("soft");
        context.textAlign = "right";
        context.textBaseline = "middle";
        context.fillText("donated", box.left - 8, bottom - STRIP / 2);
    }

    function draw() {
        const arena = chosen();
        const canvas = umf.element("pages-chart");
        const { context, width, height } = umf.context(canvas);
        const box = umf.plot.box(width, height, 10, BOTTOM);
        const list = series(arena);
        const { bins } = umf.model.pools;
        const most = umf.plot.areas(context, box, list, bins, umf.plot.most(box, [{ values: arena.stale }], bins));
        umf.plot.grid(context, box, most);
        draw_stale(context, box, arena, most);
        draw_donated(context, box, arena);
        umf.plot.moment(context, box);
        canvas.dataset.box = [box.left, box.top, box.width, box.height].join(" ");
        say(arena);
    }

    function say(arena) {
        const bin = umf.bin(umf.model.pools.bins, umf.state.moment);
        const at = sums(arena, bin);
        const lacks = at.reserved === 0 && arena.live[bin] > 0;
        umf.element("pages-summary").textContent = lacks ? "Its pages are not known before the first change in this recording."
            : umf.bytes(at.reserved) + " of pages: " + umf.bytes(at.live) + " live, " + umf.bytes(at.free) + " free, " + umf.bytes(at.spare) +
                " spare" + (at.live > 0 ? "; " + (at.reserved / at.live).toFixed(3) + " of live memory" : "") + ". " +
                umf.bytes(at.stale) + " of stale addresses, " + umf.bytes(at.donated) + " donated so far.";
        umf.element("pages-chart").setAttribute("aria-label", "Pages of " + arena.name + " over time. " + umf.element("pages-summary").textContent);
    }

    function key() {
        const list = umf.element("pages-key");
        umf.empty(list);
        const texts = [[COLOURS.live, "under live blocks"], ["var(--free)", "under free parts"], [COLOURS.spare, "spare: mapped nowhere"],
            [COLOURS.stale, "stale addresses (line)"], [COLOURS.donated, "donated at that time"]];
        for (const [colour, text] of texts) {
            const item = umf.add(list, "span");
            umf.add(item, "span", "swatch").style.background = colour;
            umf.add(item, "span", "", text);
        }
    }

    umf.start_pages = function () {
        const { arenas } = umf.model;
        const select = umf.element("pages-pool");
        const canvas = umf.element("pages-chart");
        umf.element("pages").hidden = arenas.length === 0;
        if (arenas.length === 0) {
            return;
        }
        arenas.forEach((arena, index) => (umf.add(select, "option", "", arena.name).value = index));
        select.addEventListener("change", () => umf.change({ arena: Number(select.value) }));
        canvas.addEventListener("click", (event) => umf.choose(umf.plot.time(event.clientX - canvas.getBoundingClientRect().left)));
        key();
        umf.listen((changes) => {
            if (["moment", "from", "arena"].some((name) => name in changes)) {
                select.value = umf.state.arena;
                draw();
            }
        });
    };
})((window.umf = window.umf || {}));
