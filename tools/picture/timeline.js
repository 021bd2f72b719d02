/*
 * Memory over time: areas on top of each other, with what happened above them. A click chooses the
 * moment, a drag the part that is shown; the strip below shows the whole and moves the part.
 */
(function (umf) {
    "use strict";

    const LEFT = 76;
    const RIGHT = 14;
    const TOP = 46; /* the lanes of marks and of sleep */
    const BOTTOM = 24;
    const SLEEP = 27; /* top of the lane of sleep */
    const KINDS = {
        mark: ["\u25bc", "mark", "ink"],
        refused: ["\u2715", "no memory", "alarm"],
        provider_refused: ["\u2715", "provider refused", "alarm"],
        trim: ["\u25c7", "trim", "soft"],
        suspend: ["\u25d7", "suspend", "soft"],
        resume: ["\u25d6", "resume", "soft"],
    };

    let drag = null; /* { kind, x0, x } while a button is down */
    let plot = null; /* { left, width, height, top, most } as drawn last */

    const x_of = (time) => LEFT + ((time - umf.state.from) / (umf.state.to - umf.state.from)) * plot.width;
    const time_of = (x) => umf.state.from + ((x - LEFT) / plot.width) * (umf.state.to - umf.state.from);

    function visible(series) {
        return series.list.filter((item) => !umf.state.hidden.has(item.name));
    }

    /* For each point of the plot the bin with the highest sum of those that it covers. */
    function columns(list, bins, width, from, to) {
        const total = new Float64Array(bins);
        for (const item of list) {
            for (let bin = 0; bin < bins; bin++) {
                total[bin] += item.values[bin];
            }
        }
        const chosen = new Int32Array(width);
        for (let x = 0; x < width; x++) {
            const first = umf.bin(bins, from + (x / width) * (to - from) + 1e-6);
            const last = Math.max(first, umf.bin(bins, from + ((x + 1) / width) * (to - from)));
            let best = first;
            for (let bin = first + 1; bin <= last; bin++) {
                best = total[bin] > total[best] ? bin : best;
            }
            chosen[x] = best;
        }
        return { chosen, most: chosen.reduce((most, bin) => Math.max(most, total[bin]), 0) };
    }

    /* Draws the areas into a box; returns the value at its top, at least `least`. */
    function areas(context, box, list, bins, from, to, least) {
        const width = Math.max(1, Math.floor(box.width));
        const { chosen, most: highest } = columns(list, bins, width, from, to);
        const most = Math.max(highest * 1.06, least || 0);
        const scale = most > 0 ? box.height / most : 0;
        const below = new Float64Array(width);
        const is_wide = chosen[width - 1] - chosen[0] < width / 3; /* steps are seen, so are edges */
        for (const item of list) {
            const lower = below.slice();
            for (let x = 0; x < width; x++) {
                below[x] += Math.max(0, item.values[chosen[x]]);
            }
            area(context, box, lower, below, scale, item.colour);
            draw_asleep(context, box, item, lower, below, scale, [from, to]);
            if (is_wide) {
                context.strokeStyle = umf.colour("page");
                context.lineWidth = 0.6;
                context.stroke();
            }
        }
        return most;
    }

    function area(context, box, lower, upper, scale, colour) {
        const bottom = box.top + box.height;
        context.beginPath();
        for (let x = 0; x < upper.length; x++) {
            context.lineTo(box.left + x, bottom - upper[x] * scale);
            context.lineTo(box.left + x + 1, bottom - upper[x] * scale);
        }
        for (let x = lower.length - 1; x >= 0; x--) {
            context.lineTo(box.left + x + 1, bottom - lower[x] * scale);
            context.lineTo(box.left + x, bottom - lower[x] * scale);
        }
        context.closePath();
        context.fillStyle = colour;
        context.fill();
    }

    /* Lines over memory without physical memory, because its pool is suspended. */
    function draw_asleep(context, box, item, lower, upper, scale, [from, to]) {
        const at = (time) => Math.round(((time - from) / (to - from)) * upper.length);
        for (const sleep of sleeps().filter((one) => one.object === item.object)) {
            const first = Math.max(0, at(sleep.from));
            const last = Math.min(upper.length, at(sleep.to));
            if (first < last) {
                const part = { left: box.left + first, top: box.top, height: box.height };
                area(context, part, lower.subarray(first, last), upper.subarray(first, last), scale, stripes(context));
            }
        }
    }

    function stripes(context) {
        const tile = document.createElement("canvas");
        tile.width = tile.height = 8;
        const inside = tile.getContext("2d");
        inside.strokeStyle = umf.colour("page");
        inside.lineWidth = 3;
        for (const shift of [-8, 0, 8]) {
            inside.beginPath();
            inside.moveTo(shift, 8);
            inside.lineTo(shift + 8, 0);
            inside.stroke();
        }
        return context.createPattern(tile, "repeat");
    }

    /* A round step for about `count` parts: 1, 2, 5 of time; powers of two of bytes. */
    function time_step(range, count) {
        const rough = range / count;
        const power = Math.pow(10, Math.floor(Math.log10(rough)));
        return [1, 2, 5, 10].map((part) => part * power).find((step) => step >= rough);
    }

    function grid(context, box, most) {
        context.textBaseline = "middle";
        context.textAlign = "right";
        const step = Math.max(1, Math.pow(2, Math.ceil(Math.log2(Math.max(1, most) / 5))));
        for (let value = 0; value <= most; value += step) {
            const y = Math.round(box.top + box.height - (most ? value / most : 0) * box.height) + 0.5;
            context.strokeStyle = umf.colour("grid");
            context.beginPath();
            context.moveTo(box.left, y);
            context.lineTo(box.left + box.width, y);
            context.stroke();
            context.fillStyle = umf.colour("soft");
            context.fillText(umf.bytes(value), box.left - 8, y);
        }
        times(context, box);
    }

    function times(context, box) {
        const { from, to } = umf.state;
        const step = time_step(to - from, Math.max(2, box.width / 130));
        context.textBaseline = "top";
        context.textAlign = "center";
        context.fillStyle = umf.colour("soft");
        for (let time = Math.ceil(from / step) * step; time <= to * (1 + 1e-9); time += step) {
            const half = context.measureText(umf.time(time, step)).width / 2;
            const x = Math.min(x_of(time), box.left + box.width + RIGHT - half - 1);
            context.fillText(umf.time(time, step), Math.max(x, half + 1), box.top + box.height + 7);
            context.fillRect(Math.round(x_of(time)), box.top + box.height, 1, 4);
        }
    }

    /* From each suspend to the resume of the same pool. */
    function sleeps() {
        const open = new Map();
        const list = [];
        for (const mark of umf.model.marks) {
            if (mark.kind === "suspend" && !open.has(mark.object)) {
                open.set(mark.object, mark.t);
            } else if (mark.kind === "resume") {
                list.push({ from: open.get(mark.object) || 0, to: mark.t, object: mark.object });
                open.delete(mark.object);
            }
        }
        open.forEach((from, object) => list.push({ from, to: umf.model.length, object }));
        return list;
    }

    function draw_sleep(context, box) {
        const end = box.left + box.width;
        for (const sleep of sleeps()) {
            const left = Math.max(box.left, x_of(sleep.from));
            const right = Math.min(end, Math.max(x_of(sleep.to), left + 2));
            if (right > box.left && left < end) {
                context.fillStyle = "#cc79a7";
                context.fillRect(left, SLEEP, right - left, 14);
                context.fillStyle = "#1a1a1a";
                context.textAlign = "left";
                context.textBaseline = "middle";
                context.fillText(umf.fit(context, umf.model.name(sleep.object) + " asleep", right - left - 8), left + 4, SLEEP + 7.5);
            }
        }
    }

    /* Signs, lines and texts as far as there is room between one mark and the next. */
    function draw_marks(context, box) {
        const list = umf.model.marks.map((mark) => ({ mark, x: x_of(mark.t) }))
            .filter(({ x }) => x >= box.left - 1 && x <= box.left + box.width + 1);
        let drawn = -100;
        list.forEach(({ mark, x }, index) => {
            const next = index + 1 < list.length ? list[index + 1].x : box.left + box.width + RIGHT;
            const is_alarm = KINDS[mark.kind][2] === "alarm";
            if (is_alarm || x - drawn >= 9) {
                draw_mark(context, box, mark, x, Math.min(x - drawn, next - x));
                label(context, mark, x, next);
                drawn = x;
            }
        });
    }

    function draw_mark(context, box, mark, x, room) {
        const [sign, , colour] = KINDS[mark.kind];
        context.strokeStyle = context.fillStyle = umf.colour(colour);
        context.textAlign = "center";
        context.textBaseline = "middle";
        context.fillText(sign, x, 10);
        if (colour !== "alarm" && (mark.kind !== "mark" || room < 16)) {
            return;
        }
        context.globalAlpha = colour === "alarm" ? 1 : 0.45;
        context.setLineDash(colour === "alarm" ? [] : [3, 3]);
        context.beginPath();
        context.moveTo(x, 18);
        context.lineTo(x, box.top + box.height);
        context.stroke();
        context.setLineDash([]);
        context.globalAlpha = 1;
    }

    function label(context, mark, x, next) {
        const text = mark.kind === "mark" ? umf.fit(context, mark.text, Math.min(150, next - x - 18)) : "";
        if (text === mark.text || text.length > 6) {
            context.textAlign = "left";
            context.fillText(text, x + 8, 10);
        }
    }

    function draw_top(context, box, most) {
        const { top, bins } = umf.model.pools;
        context.strokeStyle = umf.colour("ink");
        context.lineWidth = 1;
        context.globalAlpha = 0.6;
        context.beginPath();
        for (let x = 0; x < box.width; x++) {
            const bin = umf.bin(bins, time_of(box.left + x + 0.5));
            context.lineTo(box.left + x, box.top + box.height - Math.min(1, top[bin] / most) * box.height);
        }
        context.stroke();
        context.globalAlpha = 1;
    }

    function draw_moment(context, box) {
        const x = x_of(umf.state.moment);
        if (drag && drag.kind === "zoom" && Math.abs(drag.x - drag.x0) > 4) {
            context.fillStyle = umf.colour("veil");
            context.fillRect(Math.min(drag.x, drag.x0), box.top, Math.abs(drag.x - drag.x0), box.height);
        }
        if (x >= box.left - 1 && x <= box.left + box.width + 1) {
            context.fillStyle = umf.colour("accent");
            context.fillRect(x - 1, box.top - 4, 2, box.height + 4);
            context.beginPath();
            context.arc(x, box.top - 4, 5, 0, 7);
            context.fill();
        }
    }

    function draw() {
        const canvas = umf.element("chart");
        const { context, width, height } = umf.context(canvas);
        const box = { left: LEFT, top: TOP, width: width - LEFT - RIGHT, height: height - TOP - BOTTOM };
        plot = box;
        const series = umf.series();
        const shown = visible(series);
        const most = areas(context, box, shown, series.bins, umf.state.from, umf.state.to);
        grid(context, box, most);
        if (umf.state.what === "live" && umf.state.hidden.size === 0 && most > 0) {
            draw_top(context, box, most);
        }
        draw_sleep(context, box);
        draw_marks(context, box);
        draw_moment(context, box);
        canvas.dataset.areas = shown.length;
        canvas.dataset.box = [box.left, box.top, box.width, box.height].join(" ");
        show_summary(canvas, series);
        draw_overview(series, shown);
    }

    function show_summary(canvas, series) {
        const { moment } = umf.state;
        const bin = umf.bin(series.bins, moment);
        const total = series.list.reduce((all, item) => all + item.values[bin], 0);
        canvas.setAttribute("aria-valuemin", 0);
        canvas.setAttribute("aria-valuemax", Math.round(umf.model.length));
        canvas.setAttribute("aria-valuenow", Math.round(moment));
        canvas.setAttribute("aria-valuetext", umf.time(moment) + ": " + umf.bytes(total));
    }

    function draw_overview(series, shown) {
        const { context, width, height } = umf.context(umf.element("overview"));
        const box = { left: LEFT, top: 0, width: width - LEFT - RIGHT, height };
        const { from, to } = umf.state;
        const length = umf.model.length;
        areas(context, box, shown, series.bins, 0, length);
        context.fillStyle = umf.colour("veil");
        const left = box.left + (from / length) * box.width;
        const right = box.left + (to / length) * box.width;
        context.fillRect(left, 0, right - left, height);
        context.strokeStyle = umf.colour("accent");
        context.lineWidth = 1;
        context.strokeRect(left + 0.5, 0.5, Math.max(2, right - left - 1), height - 1);
    }

    function legend() {
        const list = umf.element("legend");
        const series = umf.series();
        const bin = umf.bin(series.bins, umf.state.moment);
        const at = list.contains(document.activeElement) ? Array.from(list.querySelectorAll("button")).indexOf(document.activeElement) : -1;
        umf.empty(list);
        for (const item of series.list) {
            const button = umf.add(umf.add(list, "li"), "button");
            button.type = "button";
            button.title = item.name;
            button.setAttribute("aria-pressed", String(!umf.state.hidden.has(item.name)));
            umf.add(button, "span", "swatch").style.background = item.colour;
            umf.add(button, "span", "name", item.name);
            umf.add(button, "span", "value", umf.bytes(item.values[bin]));
            button.addEventListener("click", () => toggle(item.name));
        }
        if (at >= 0 && list.querySelectorAll("button")[at]) {
            list.querySelectorAll("button")[at].focus();
        }
    }

    function toggle(name) {
        const hidden = new Set(umf.state.hidden);
        if (!hidden.delete(name)) {
            hidden.add(name);
        }
        umf.change({ hidden });
    }

    umf.zoom = function (factor) {
        const { from, to, moment } = umf.state;
        const length = umf.model.length;
        const span = Math.min(length, Math.max(umf.least_span(), (to - from) * factor));
        const centre = moment >= from && moment <= to ? moment : (from + to) / 2;
        const start = Math.max(0, Math.min(length - span, centre - span * ((centre - from) / (to - from))));
        umf.change({ from: start, to: start + span });
    };

    /* What happened within a few points of `x`. */
    function marks_at(x) {
        return umf.model.marks.filter((mark) => Math.abs(x_of(mark.t) - x) < 5).slice(0, 6).map(mark_text);
    }

    function mark_text(mark) {
        const [sign, word] = KINDS[mark.kind];
        if (mark.kind === "mark") {
            return sign + " " + mark.text;
        }
        const size = mark.kind === "trim" ? mark.size - mark.held : mark.size;
        return sign + " " + word + " " + umf.bytes(size) + ", " + umf.model.name(mark.object);
    }

    function hover(event, x) {
        if (x < LEFT || x > LEFT + plot.width) {
            return umf.tip("");
        }
        const series = umf.series();
        const time = time_of(x);
        const bin = umf.bin(series.bins, time);
        const lines = series.list.filter((item) => item.values[bin] > 0).reverse()
            .map((item) => umf.bytes(item.values[bin]) + "  " + item.name);
        const total = series.list.reduce((all, item) => all + item.values[bin], 0);
        return umf.tip([umf.time(time, (umf.state.to - umf.state.from) / 1000) + ": " + umf.bytes(total)]
            .concat(lines, marks_at(x)).join("\n"), event);
    }

    const point = (event) => event.clientX - event.currentTarget.getBoundingClientRect().left;
    const clamp = (x) => Math.max(LEFT, Math.min(LEFT + plot.width, x));

    function move(event) {
        if (drag) {
            drag.x = clamp(point(event));
            draw();
        }
        hover(event, point(event));
    }

    function release(event) {
        if (!drag) {
            return;
        }
        const { x0 } = drag;
        const x = clamp(point(event));
        drag = null;
        if (Math.abs(x - x0) > 4) {
            umf.change({ from: time_of(Math.min(x, x0)), to: Math.max(time_of(Math.max(x, x0)), time_of(Math.min(x, x0)) + 1) });
        } else {
            umf.choose(time_of(x));
        }
    }

    /* The browser took the drag: on a touch screen it scrolls the page. */
    function cancel() {
        drag = null;
        umf.tip("");
        draw();
    }

    function pan(event) {
        if (event.buttons & 1) {
            const { from, to } = umf.state;
            const length = umf.model.length;
            const middle = ((point(event) - LEFT) / plot.width) * length;
            const start = Math.max(0, Math.min(length - (to - from), middle - (to - from) / 2));
            umf.change({ from: start, to: start + (to - from) });
        }
    }

    function key(event) {
        const { moment, from, to } = umf.state;
        const step = (to - from) / (event.shiftKey ? 10 : 100);
        const actions = {
            ArrowLeft: () => umf.choose(moment - step),
            ArrowRight: () => umf.choose(moment + step),
            Home: () => umf.choose(0),
            End: () => umf.choose(umf.model.length),
            "+": () => umf.zoom(0.5),
            "=": () => umf.zoom(0.5),
            "-": () => umf.zoom(2),
            Escape: () => umf.change({ from: 0, to: umf.model.length }),
        };
        if (actions[event.key]) {
            event.preventDefault();
            actions[event.key]();
        }
    }

    /* For other charts of the same part of the time, below this one. */
    umf.plot = {
        box: (width, height, top, bottom) => ({ left: LEFT, top, width: width - LEFT - RIGHT, height: height - top - bottom }),
        most: (box, list, bins) => columns(list, bins, Math.max(1, Math.floor(box.width)), umf.state.from, umf.state.to).most * 1.06,
        areas: (context, box, list, bins, least) => areas(context, box, list, bins, umf.state.from, umf.state.to, least),
        grid,
        moment: draw_moment,
        time: (x) => time_of(clamp(x)),
    };

    umf.start_timeline = function () {
        const canvas = umf.element("chart");
        canvas.addEventListener("pointerdown", (event) => {
            drag = { kind: "zoom", x0: clamp(point(event)), x: clamp(point(event)) };
            canvas.setPointerCapture(event.pointerId);
        });
        canvas.addEventListener("pointermove", move);
        canvas.addEventListener("pointerup", release);
        canvas.addEventListener("pointercancel", cancel);
        canvas.addEventListener("pointerleave", () => umf.tip(""));
        canvas.addEventListener("dblclick", () => umf.change({ from: 0, to: umf.model.length }));
        canvas.addEventListener("keydown", key);
        const overview = umf.element("overview");
        overview.addEventListener("pointerdown", pan);
        overview.addEventListener("pointermove", pan);
        umf.element("zoom-in").addEventListener("click", () => umf.zoom(0.5));
        umf.element("zoom-out").addEventListener("click", () => umf.zoom(2));
        umf.element("zoom-all").addEventListener("click", () => umf.change({ from: 0, to: umf.model.length }));
        umf.listen((changes) => {
            if (["moment", "from", "by", "what", "hidden"].some((name) => name in changes)) {
                draw();
                legend();
            }
        });
    };
})((window.umf = window.umf || {}));
