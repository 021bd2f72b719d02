/*
 * The model of the page, out of the JSON that picture.c writes (picture.h describes it), and the
 * state that views share: the moment, the part of the time that is shown, the measure, the search.
 */
(function (umf) {
    "use strict";

    const SERIES = 7; /* that have a colour of their own */

    /* Numbers out of their differences; [n] stands for n differences of 0. */
    function series(packed, bins) {
        const values = new Float64Array(bins);
        let value = 0;
        let bin = 0;
        for (const item of packed) {
            const zeros = Array.isArray(item) ? item[0] : 0;
            value += zeros ? 0 : item;
            const end = Math.min(bins, bin + (zeros || 1));
            values.fill(value, bin, end);
            bin = end;
        }
        values.fill(value, bin);
        return values;
    }

    /* Levels of cells, 0 to 15, out of letters with how often each comes. */
    umf.levels = function (packed, count) {
        const levels = new Uint8Array(count);
        const pattern = /([a-p])(\d*)/g;
        let cell = 0;
        for (let match = pattern.exec(packed); match; match = pattern.exec(packed)) {
            const end = Math.min(count, cell + (match[2] ? Number(match[2]) : 1));
            levels.fill(match[1].charCodeAt(0) - 97, cell, end);
            cell = end;
        }
        return levels;
    };

    function sum(list, bins) {
        const total = new Float64Array(bins);
        for (const values of list) {
            for (let bin = 0; bin < bins; bin++) {
                total[bin] += values[bin];
            }
        }
        return total;
    }

    function largest(values) {
        return values.reduce((most, value) => Math.max(most, value), 0);
    }

    function pool_series(data, model) {
        const line = data.timeline;
        const list = line.pools.map((pool) => ({
            name: pool.object < 0 ? "other pools" : model.name(pool.object),
            object: pool.object,
            live: series(pool.live, line.bins),
            held: series(pool.held, line.bins),
        })).filter((pool) => pool.object >= 0 || largest(pool.live) > 0 || largest(pool.held) > 0);
        return { bins: line.bins, list, top: series(line.top, line.bins) };
    }

    /* Pages of pools, in bins as theirs. */
    function arena_list(data, model) {
        const line = data.timeline;
        return line.arenas.map((arena) => {
            const pool = line.pools[arena.pool];
            const all = { name: model.name(pool.object), live: series(pool.live, line.bins) };
            ["reserved", "spare", "stale", "donated"].forEach((name) => (all[name] = series(arena[name], line.bins)));
            return all;
        });
    }

    function site_list(data) {
        const line = data.timeline;
        const sites = data.sites.map((site, index) => ({
            object: site[0],
            stack: site[1],
            bytes: series(line.site_bytes[index], line.site_bins),
            count: series(line.site_counts[index], line.site_bins),
        }));
        const rest = {
            object: -1,
            stack: -1,
            bytes: series(line.rest_bytes, line.site_bins),
            count: series(line.rest_counts, line.site_bins),
        };
        return { bins: line.site_bins, list: sites, rest, left: line.sites_left };
    }

    /* Functions of the allocator itself say nothing about its caller. */
    function is_plumbing([name, module]) {
        return /^libumf(_proxy)?\.so/.test(module) || /^(umf[A-Z_]|malloc$|calloc$|realloc$|operator new|_Zn[wa]|aligned_alloc$|posix_memalign$)/.test(name);
    }

    /* Nor do those that every thread begins in. */
    function is_start([name]) {
        return /^(_start|__libc_start_(call_)?main(_impl)?|start_thread|(__)?clone3?)$/.test(name);
    }

    /* Without what compilers and linkers append for parts, copies and versions. */
    /* Of a frame: the function, the module, and the source line, "" if it is not known. */
    function short_name([name, module, line]) {
        const short = name.replace(/(\.(constprop|isra|part|cold|lto_priv)(\.\d+)?)+$/, "").replace(/@@?GLIBC_.*$/, "");
        return [short, module, line || ""];
    }

    /* Indices of the frames that matter, the innermost first. */
    function own_frames(model, stack) {
        const frames = stack < 0 ? [] : model.stacks[stack];
        let first = 0;
        let end = frames.length;
        while (first < end - 1 && is_plumbing(model.frames[frames[first]])) {
            first++;
        }
        while (end > first + 1 && is_start(model.frames[frames[end - 1]])) {
            end--;
        }
        return frames.slice(first, end);
    }

    /* One series for each stack, whatever its pools, the largest first. */
    function stack_series(model) {
        const by_stack = new Map();
        for (const site of model.sites.list) {
            const known = by_stack.get(site.stack);
            by_stack.set(site.stack, known ? known.concat([site.bytes]) : [site.bytes]);
        }
        const bins = model.sites.bins;
        const list = Array.from(by_stack, ([stack, parts]) => ({
            name: model.stack_title(stack),
            stack,
            live: sum(parts, bins),
        })).filter((item) => largest(item.live) > 0);
        list.sort((a, b) => largest(b.live) - largest(a.live));
        return list;
    }

    function with_rest(list, bins, key, name, rest) {
        const shown = list.slice(0, SERIES).map((item, index) => ({
            name: item.name,
            object: item.object,
            values: item[key],
            colour: umf.PALETTE[index],
        }));
        const others = list.slice(SERIES).map((item) => item[key]).concat(rest ? [rest] : []);
        const values = sum(others, bins);
        if (largest(values) > 0) {
            shown.push({ name, values, colour: umf.REST });
        }
        return { bins, list: shown };
    }

    function prepare_series(model) {
        const pools = model.pools;
        const stacks = stack_series(model);
        return {
            pool_live: with_rest(pools.list, pools.bins, "live", "other pools"),
            pool_held: with_rest(pools.list, pools.bins, "held", "other pools"),
            stack: with_rest(stacks, model.sites.bins, "live", "other stacks", model.sites.rest.bytes),
        };
    }

    umf.read = function (data) {
        const objects = new Map(data.objects.map((object) => [object.id, object]));
        const model = {
            file: data.file,
            objects,
            frames: data.frames.map(short_name),
            stacks: data.stacks,
            marks: data.marks,
            marks_left: data.marks_left,
            refusals: data.refusals,
            refusals_left: data.refusals_left,
            maps: data.maps,
            allocs: data.allocs,
            allocs_left: data.allocs_left,
            length: Math.max(1, data.file.duration),
            has_time: data.file.kind === "recording" && data.file.events > 0,
        };
        model.name = (id) => (objects.has(id) ? objects.get(id).name : "an unknown object");
        model.own_frames = (stack) => own_frames(model, stack);
        model.stack_title = function (stack) {
            const names = own_frames(model, stack).map((frame) => model.frames[frame][0]);
            return names.length ? names.slice(0, 4).join(" \u2190 ") : "no stack recorded";
        };
        model.pools = pool_series(data, model);
        model.arenas = arena_list(data, model);
        model.sites = site_list(data);
        model.series = prepare_series(model);
        return model;
    };

    /* The bin of a moment. */
    umf.bin = function (bins, moment) {
        return Math.max(0, Math.min(bins - 1, Math.ceil((moment / umf.model.length) * bins) - 1));
    };

    /* The series of the timeline, now or in another state. */
    umf.series = function (other) {
        const state = other || umf.state;
        const all = umf.model.series;
        return state.by === "stack" ? all.stack : state.what === "held" ? all.pool_held : all.pool_live;
    };

    umf.TABS = ["flame", "map", "sites", "allocs"];

    /* `arena`: the index of that whose pages are shown; `pool`: the object of the address map, null for the first; `zoomed`: the keys from the root of the flame graph to
       the bar that fills the width; `refusal`: the index of the one that is explained. */
    umf.state = { moment: 0, from: 0, to: 1, by: "pool", what: "live", unit: "bytes", search: "", tab: "flame", hidden: new Set(),
        arena: 0, pool: null, zoomed: [], refusal: 0 };

    /* The shortest part of the time that is shown. */
    umf.least_span = () => Math.max(umf.model.length / 1e6, 1);

    const listeners = [];

    /* `draw` is called with the changes. */
    umf.listen = function (draw) {
        listeners.push(draw);
    };

    umf.change = function (changes) {
        Object.assign(umf.state, changes);
        for (const draw of listeners) {
            draw(changes);
        }
    };

    umf.choose = function (moment) {
        const state = umf.state;
        const within = Math.max(0, Math.min(umf.model.length, moment));
        const changes = { moment: within };
        if (within < state.from || within > state.to) {
            const span = state.to - state.from;
            changes.from = Math.max(0, Math.min(umf.model.length - span, within - span / 2));
            changes.to = changes.from + span;
        }
        umf.change(changes);
    };
})((window.umf = window.umf || {}));
