// A button at each block of code that copies it.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
    for (const block of document.querySelectorAll("div.highlight")) {
        const button = document.createElement("button");
        button.type = "button";
        button.className = "copy";
        button.textContent = "Copy";
        button.addEventListener("click", () => {
            const text = block.querySelector("pre").textContent;
            copied(text).then(() => "Copied", () => "Not copied").then(answer => {
                button.textContent = answer;
                setTimeout(() => { button.textContent = "Copy"; }, 1500);
            });
        });
        block.append(button);
    }
});

// Pages from a folder or without TLS may lack the clipboard of newer browsers.
function copied(text) {
    if (navigator.clipboard) {
        return navigator.clipboard.writeText(text);
    }
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done ? Promise.resolve() : Promise.reject(new Error("copy"));
}
