/*
 * Sentences: why a pool found no memory, the unknowns, and the figures of the moment.
 */
(function (umf) {
    "use strict";

    /* Whether the recording has all live allocations. */
    function knows_all() {
        const { file } = umf.model;
        return file.dropped === 0 && file.unknown_frees === 0 && file.rate <= 1 && file.min_size === 0 && file.max_size === 0;
    }

    /* Why the pool could not serve it, as far as known. */
    function cause(refusal) {
        const free = Math.max(0, refusal.held - refusal.live);
        if (!knows_all()) {
            return "Allocations before the first event are not known.";
        }
        if (free < refusal.wanted) {
            return "Its free memory was too little, and its provider gave no more.";
        }
        if (refusal.largest !== null && refusal.largest < refusal.wanted) {
            return "There was enough free memory, but in pieces too small: it is fragmented.";
        }
        return "There was enough free memory, but not in a place that the pool could use for this size: caches of other " +
            "sizes, threads or queues had it, or it was fragmented.";
    }

    function of_pool(refusal) {
        const free = Math.max(0, refusal.held - refusal.live);
        const largest = refusal.largest === null ? "" : ", the largest free piece " + umf.bytes(refusal.largest);
        return "It held " + umf.bytes(refusal.held) + ": " + (knows_all() ? "" : "at least ") + umf.bytes(refusal.live) + " were live in " +
            umf.plural(refusal.count, "allocation") + ", " + (knows_all() ? "" : "at most ") + umf.bytes(free) + " free or cached" +
            largest + ". " + cause(refusal);
    }

    /* What held the most at that time: pools if there are several, and the first stacks. */
    function holders(refusal) {
        const { model } = umf;
        const total = refusal.total;
        const say = (bytes) => umf.bytes(bytes) + " (" + umf.percent(bytes, total) + ")";
        const pools = refusal.pools.filter((pool) => pool[1] > 0).slice(0, 3);
        const sites = refusal.sites.filter((site) => site[1] >= 0).slice(0, 3);
        let text = "";
        if (pools.length > 1) {
            text += " The pools with the most: " + pools.map(([object, live]) => model.name(object) + " with " + say(live)).join(", ") + ".";
        }
        if (sites.length > 0) {
            text += " The stacks that held the most: " + sites.map(([, stack, bytes]) => model.stack_title(stack) + " with " + say(bytes)).join("; ") + ".";
        }
        return text;
    }

    umf.explain = function (refusal) {
        const { model } = umf;
        const who = refusal.by === "pool"
            ? "pool " + model.name(refusal.object) + " found no memory for " + umf.bytes(refusal.wanted) + "."
            : (model.objects.has(refusal.object) && model.objects.get(refusal.object).kind === 1 ? "the provider of pool " : "provider ") +
                model.name(refusal.object) + " refused " + umf.bytes(refusal.wanted) + ".";
        const inside = refusal.by === "pool" ? " " + of_pool(refusal) : "";
        return "At " + umf.time(refusal.t) + " " + who + inside + holders(refusal);
    };

    function show_refusal() {
        const { refusal } = umf.state;
        umf.element("refusal-list").querySelectorAll("button").forEach((button, index) => {
            button.setAttribute("aria-pressed", String(index === refusal));
        });
        umf.element("refusal-text").textContent = umf.explain(umf.model.refusals[refusal]);
    }

    function draw_refusals() {
        const { refusals, refusals_left } = umf.model;
        umf.element("refusals").hidden = refusals.length === 0;
        const list = umf.element("refusal-list");
        refusals.forEach((refusal, index) => {
            const button = umf.add(list, "button", "", umf.time(refusal.t) + ": " + umf.bytes(refusal.wanted));
            button.type = "button";
            button.addEventListener("click", () => {
                umf.change({ refusal: index });
                umf.choose(refusal.t);
            });
        });
        if (refusals_left > 0) {
            umf.add(list, "span", "soft", "and " + umf.count(refusals_left) + " more, between these");
        }
    }

    /* Facts that the file does not have. */
    umf.unknowns = function (model) {
        const { file } = model;
        const notes = [];
        const note = (condition, text) => condition && notes.push(text);
        note(file.dropped > 0, umf.plural(file.dropped, "event") + " of " + umf.count(file.dropped + file.events) +
            " are lost, the oldest: the recording had no room. Allocations in them that were freed later are missing here. Times count from the first event that is left.");
        note(file.live_dropped > 0, umf.plural(file.live_dropped, "allocation") + " found no room in the live table.");
        note(file.unknown_frees > 0, umf.plural(file.unknown_frees, "free") + " of memory that was allocated before the recording: " +
            "that memory is not in the picture.");
        note(file.rate > 1, "Only one allocation of about " + umf.count(file.rate) + " was recorded: sizes and counts are of these.");
        note(file.min_size > 0, "Allocations below " + umf.bytes(file.min_size) + " were not recorded.");
        note(file.max_size > 0, "Allocations above " + umf.bytes(file.max_size) + " were not recorded.");
        note(file.kind === "recording" && !file.ended, "The recording has no end: the process runs on, or it died.");
        note(model.marks_left > 0, umf.plural(model.marks_left, "mark") + " and other incidents are not drawn.");
        file.notes.forEach((text) => notes.push(text));
        return notes;
    };

    function figure(list, name, value) {
        const box = umf.add(list, "div");
        umf.add(box, "dt", "", name);
        umf.add(box, "dd", "", value);
    }

    function at(list, key, bin) {
        return list.reduce((sum, item) => sum + item[key][bin], 0);
    }

    function draw_figures() {
        const { model, state } = umf;
        const { pools, sites } = model;
        const list = umf.element("figures");
        const bin = umf.bin(pools.bins, state.moment);
        const site_bin = umf.bin(sites.bins, state.moment);
        umf.empty(list);
        const live = at(pools.list, "live", bin);
        const held = at(pools.list, "held", bin);
        figure(list, model.has_time ? "live at " + umf.time(state.moment) : "live", umf.bytes(live));
        const knows_held = held >= live && held > 0;
        figure(list, "held by pools", knows_held ? umf.bytes(held) : "unknown");
        figure(list, "not live", knows_held ? umf.percent(held - live, held) : "unknown");
        figure(list, "allocations", umf.count(model.has_time ? at(sites.list, "count", site_bin) + sites.rest.count[site_bin] : model.file.live_count));
        if (model.has_time) {
            figure(list, "peak at " + umf.time(model.file.peak_t), umf.bytes(model.file.peak));
            figure(list, "out of memory", umf.count(model.refusals.length + model.refusals_left));
        }
    }

    umf.start_explain = function () {
        draw_refusals();
        for (const text of umf.unknowns(umf.model)) {
            umf.add(umf.element("notes"), "li", "", text);
        }
        umf.listen((changes) => {
            if ("moment" in changes) {
                draw_figures();
            }
            if ("refusal" in changes && umf.model.refusals.length > 0) {
                show_refusal();
            }
        });
    };
})((window.umf = window.umf || {}));
