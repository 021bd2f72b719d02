/*
 * Numbers, sizes and times as text, and the little that all views need of the document. Everything
 * from a file reaches the document as text (textContent), never as markup.
 */
(function (umf) {
    "use strict";

    const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

    /* Three digits that matter, without zeros after the point. */
    function digits(value) {
        const places = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
        return String(Number(value.toFixed(places)));
    }

    umf.bytes = function (value) {
        if (value === null || !isFinite(value)) {
            return "unknown";
        }
        let size = Math.abs(value);
        let unit = 0;
        while (size >= 1023.5 && unit < UNITS.length - 1) {
            size /= 1024;
            unit++;
        }
        return (value < 0 ? "\u2212" : "") + (unit ? digits(size) : size) + " " + UNITS[unit];
    };

    umf.count = function (value) {
        return value === null ? "unknown" : Math.round(value).toLocaleString("en-US");
    };

    umf.amount = function (value, unit) {
        return unit === "bytes" ? umf.bytes(value) : umf.count(value);
    };

    umf.percent = function (part, whole) {
        return whole > 0 ? digits((100 * part) / whole) + " %" : "0 %";
    };

    umf.plural = function (count, word) {
        return umf.count(count) + " " + word + (Math.round(count) === 1 ? "" : "s");
    };

    /* `ns` as people read it; `step` is the smallest difference to show. */
    umf.time = function (ns, step) {
        const size = Math.abs(ns);
        const grain = step || size / 1000;
        const fixed = (value, one) =>
            value.toFixed(Math.max(0, Math.min(6, Math.ceil(-Math.log10(grain / one) - 1e-9))));
        if (size < 1000 && !step) {
            return Math.round(ns) + " ns";
        } else if (size < 1e6 && grain < 1e5) {
            return fixed(ns / 1e3, 1e3) + " \u00b5s";
        } else if (size < 1e9 && grain < 1e8) {
            return fixed(ns / 1e6, 1e6) + " ms";
        } else if (size < 120e9) {
            return fixed(ns / 1e9, 1e9) + " s";
        }
        const seconds = Math.round(ns / 1e9);
        const minutes = Math.floor(seconds / 60);
        const rest = minutes < 60 ? " min " + (seconds % 60) + " s" : " h " + (minutes % 60) + " min";
        return (minutes < 60 ? minutes : Math.floor(minutes / 60)) + rest;
    };

    umf.element = function (id) {
        return document.getElementById(id);
    };

    /* A new element with a class and a text, at the end of `parent`. */
    umf.add = function (parent, tag, name, text) {
        const element = document.createElement(tag);
        if (name) {
            element.className = name;
        }
        if (text !== undefined) {
            element.textContent = text;
        }
        parent.appendChild(element);
        return element;
    };

    umf.empty = function (element) {
        while (element.firstChild) {
            element.removeChild(element.firstChild);
        }
    };

    /* A colour of picture.css. */
    umf.colour = function (name) {
        return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
    };

    /* Areas next to each other; the last is for all that is left. */
    umf.PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442"];
    umf.REST = "#8a8f98";

    /* The canvas's context, in points of the page, cleared. */
    umf.context = function (canvas, height) {
        const ratio = window.devicePixelRatio || 1;
        const width = canvas.clientWidth;
        if (height) {
            canvas.style.height = height + "px";
        }
        const points = height || canvas.clientHeight;
        canvas.width = Math.max(1, Math.round(width * ratio));
        canvas.height = Math.max(1, Math.round(points * ratio));
        const context = canvas.getContext("2d");
        context.setTransform(ratio, 0, 0, ratio, 0, 0);
        context.font = "12px " + getComputedStyle(document.body).fontFamily;
        return { context, width, height: points };
    };

    /* Text that fits into `width`, with an ellipsis where something is left out. */
    umf.fit = function (context, text, width) {
        if (context.measureText(text).width <= width) {
            return text;
        }
        let low = 0;
        let high = text.length;
        while (low < high) {
            const middle = (low + high + 1) >> 1;
            if (context.measureText(text.slice(0, middle) + "\u2026").width <= width) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        return low ? text.slice(0, low) + "\u2026" : "";
    };

    /* The text next to the pointer; "" hides it. */
    umf.tip = function (text, event) {
        const tip = umf.element("tip");
        tip.hidden = !text;
        if (text) {
            tip.textContent = text;
            const box = tip.getBoundingClientRect();
            const x = event.clientX + 16;
            const left = x + box.width > window.innerWidth - 8 ? event.clientX - box.width - 16 : x;
            const top = Math.min(event.clientY + 14, window.innerHeight - box.height - 8);
            tip.style.left = Math.max(4, left) + "px";
            tip.style.top = Math.max(4, top) + "px";
        }
    };
})((window.umf = window.umf || {}));
