"use strict";
/* Figures as texts, and elements of the page. Texts from the recording become text nodes only. */

function time(ns) {
    const size = Math.abs(ns);
    if (size >= 1e9) return (ns / 1e9).toFixed(3) + " s";
    if (size >= 1e6) return (ns / 1e6).toFixed(3) + " ms";
    if (size >= 1e3) return (ns / 1e3).toFixed(2) + " \u00b5s";
    return Math.round(ns) + " ns";
}

function bytes(n) {
    const size = Math.abs(n);
    if (size >= 2 ** 30) return (n / 2 ** 30).toFixed(2) + " GiB";
    if (size >= 2 ** 20) return (n / 2 ** 20).toFixed(2) + " MiB";
    if (size >= 2 ** 10) return (n / 2 ** 10).toFixed(1) + " KiB";
    return n + " B";
}

function whole(n) { return Math.round(n).toLocaleString("en"); }

function percent(part, all) {
    return all ? (100 * part / all).toFixed(part / all < 0.1 ? 1 : 0) + " %" : "0 %";
}

/* element("td", { class: "left", dataset... }, "text", child, ...) */
function element(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    made.append(...children);
    return made;
}

function byId(id) { return document.getElementById(id); }

/* A colour of the style sheet, for canvases. */
let colours = {};
function colour(name) {
    return colours[name] ??=
               getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

/* The first index of a sorted list whose value is not below. */
function lowest(list, value) {
    let low = 0, high = list.length;
    while (low < high) {
        const middle = (low + high) >> 1;
        if (list[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
