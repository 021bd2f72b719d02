/*
 * The view in the address of the page: what differs from the page as it opens stands after the "#", so that a view can
 * be sent, and the back button shows the view before. The text there may be anybody's: each value is compared with those
 * that this page could have written, and others are ignored.
 */
(function (umf) {
    "use strict";

    const CHOICES = { tab: umf.TABS, by: ["pool", "stack"], what: ["live", "held"], unit: ["bytes", "count"] };
    const LONGEST = 8192; /* characters that are read, and written */
    const SEARCH = 200; /* as in page.html */
    const PAUSE = 250; /* milliseconds after the last change: what moves in between is one step back */

    let first = null; /* the state as the page opens */
    let written = ""; /* the text of the state that the address has */
    let timer = 0;

    function time(words, name, otherwise) {
        const text = words.get(name) || "";
        return /^\d{1,20}(\.\d{1,3})?$/.test(text) ? Math.min(umf.model.length, Number(text)) : otherwise;
    }

    function read_times(words, state) {
        const [from, to] = [time(words, "from", first.from), time(words, "to", first.to)];
        state.moment = time(words, "moment", first.moment);
        if (to - from >= umf.least_span()) {
            Object.assign(state, { from, to });
        }
    }

    function read_objects(words, state) {
        const { arenas, maps, refusals } = umf.model;
        const map = maps.find((one) => String(one.object) === words.get("pool"));
        const hidden = (words.get("hidden") || "").split(",");
        state.pool = map ? map.object : first.pool;
        state.arena = Math.max(0, arenas.findIndex((one, index) => String(index) === words.get("arena")));
        state.refusal = Math.max(0, refusals.findIndex((one, index) => String(index) === words.get("refusal")));
        state.zoomed = words.getAll("bar"); /* drawn as far as there are such bars */
        state.hidden = new Set(umf.series(state).list.filter((item, index) => hidden.includes(String(index))).map((item) => item.name));
    }

    function read(text) {
        const words = new URLSearchParams(text.length <= LONGEST ? text : "");
        const state = Object.assign({}, first);
        for (const name of Object.keys(CHOICES)) {
            state[name] = CHOICES[name].find((choice) => choice === words.get(name)) || first[name];
        }
        state.search = (words.get("search") || "").slice(0, SEARCH).trim().toLowerCase();
        if (umf.model.has_time) {
            read_times(words, state);
        }
        read_objects(words, state);
        return state;
    }

    function write(state) {
        const words = new URLSearchParams();
        const put = (name, text) => state[name] !== first[name] && words.set(name, text);
        Object.keys(CHOICES).concat(["search", "arena", "pool", "refusal"]).forEach((name) => put(name, state[name]));
        ["moment", "from", "to"].forEach((name) => put(name, Number(state[name].toFixed(3))));
        const hidden = umf.series(state).list.map((item, index) => (state.hidden.has(item.name) ? index : -1)).filter((index) => index >= 0);
        if (hidden.length > 0) {
            words.set("hidden", hidden.join(","));
        }
        state.zoomed.forEach((key) => words.append("bar", key));
        if (words.toString().length > LONGEST) {
            words.delete("bar");
        }
        return words.toString();
    }

    function keep() {
        const text = write(umf.state);
        if (text === written) {
            return;
        }
        written = text;
        try {
            history.pushState(null, "", "#" + text);
        } catch (error) {
            /* A frame in another page may have no address of its own. */
        }
    }

    function follow() {
        umf.change(read(location.hash.slice(1)));
        written = write(umf.state);
    }

    /* Draws the page for the first time, as the address says. `start`: what depends on the model. */
    umf.start_address = function (start) {
        first = Object.assign({}, umf.state, start);
        follow();
        window.addEventListener("hashchange", follow);
        umf.listen(() => {
            clearTimeout(timer);
            timer = setTimeout(keep, PAUSE);
        });
    };
})((window.umf = window.umf || {}));
