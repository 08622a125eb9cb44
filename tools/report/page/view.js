/* The part of the time axis that every chart shows, and how it is moved. */

const view = {
    from: 0,
    until: end
};
const drawers = [];
let isDue = false;

function draw() {
    isDue = false;
    const began = performance.now();
    for (const drawer of drawers) drawer();
    byId("range").textContent =
        time(view.from) + " to " + time(view.until) + " (" + time(view.until - view.from) + ")";
    document.body.dataset.drawMs = (performance.now() - began).toFixed(1);
}

function redraw() {
    if (!isDue) requestAnimationFrame(draw);
    isDue = true;
}

function show(from, until) {
    const length = Math.min(end, Math.max(10, until - from));
    view.from = Math.max(0, Math.min(end - length, from));
    view.until = view.from + length;
    redraw();
}

/* By a factor, around a moment. */
function zoom(factor, around = (view.from + view.until) / 2) {
    show(around - (around - view.from) * factor, around + (view.until - around) * factor);
}

/* By a part of what is visible. */
function pan(part) {
    const by = (view.until - view.from) * part;
    show(view.from + by, view.until + by);
}

/* A chart: a canvas with the view's axis. Its labels are left of it, or above its rows on a phone.
 */
function gutterOf(canvas) { return canvas.clientWidth >= 640 ? 168 : 0; }
function momentAt(canvas, x) {
    const gutter = gutterOf(canvas);
    return view.from + (x - gutter) / (canvas.clientWidth - gutter) * (view.until - view.from);
}

function prepare(canvas, height) {
    const ratio = devicePixelRatio || 1, width = canvas.clientWidth;
    if (canvas.width !== Math.round(width * ratio) ||
        canvas.height !== Math.round(height * ratio)) {
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(height * ratio);
        canvas.style.height = height + "px";
    }
    const g = canvas.getContext("2d");
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.fillStyle = colour("ground");
    g.fillRect(0, 0, width, height);
    g.font = "12px system-ui, 'DejaVu Sans', sans-serif";
    return g;
}

function drawAxis(g, canvas, height) {
    const width = canvas.clientWidth, gutter = gutterOf(canvas);
    const least = (view.until - view.from) / Math.max(3, (width - gutter) / 110);
    const power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map(factor => factor * power).find(value => value >= least);
    g.strokeStyle = colour("line");
    g.fillStyle = colour("dim");
    g.beginPath();
    for (let at = Math.ceil(view.from / step) * step; at < view.until; at += step) {
        const x = gutter + (at - view.from) / (view.until - view.from) * (width - gutter);
        g.moveTo(x, 0);
        g.lineTo(x, height);
        const text = time(at).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ");
        if (x + 3 + g.measureText(text).width <= width) g.fillText(text, x + 3, 12);
    }
    g.stroke();
}

/* Drag, pinch, wheel. `choose` gets a click's place. */
function listen(canvas, choose) {
    const fingers = new Map();
    let moved = 0;
    canvas.addEventListener("wheel", event => {
        if (!event.ctrlKey && !event.metaKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY))
            return;
        event.preventDefault();
        if (event.ctrlKey || event.metaKey)
            zoom(Math.exp(event.deltaY * 0.003), momentAt(canvas, event.offsetX));
        else
            pan(event.deltaX / canvas.clientWidth);
    }, {passive: false});
    canvas.addEventListener("pointerdown", event => {
        fingers.set(event.pointerId, event.offsetX);
        canvas.setPointerCapture(event.pointerId);
        if (fingers.size === 1) moved = 0;
    });
    canvas.addEventListener("pointermove", event => {
        if (!fingers.has(event.pointerId)) return;
        const before = [...fingers.values()];
        fingers.set(event.pointerId, event.offsetX);
        const after = [...fingers.values()];
        moved += Math.abs(event.movementX) + Math.abs(event.movementY);
        if (after.length === 2) {
            const middle = momentAt(canvas, (after[0] + after[1]) / 2);
            zoom(Math.abs(before[0] - before[1]) / Math.max(8, Math.abs(after[0] - after[1])),
                 middle);
        } else
            pan((before[0] - after[0]) / (canvas.clientWidth - gutterOf(canvas)));
    });
    const lift = event => {
        const isClick = event.type === "pointerup" && fingers.size === 1 && moved < 6;
        fingers.delete(event.pointerId);
        if (isClick) choose(event.offsetX, event.offsetY);
    };
    canvas.addEventListener("pointerup", lift);
    canvas.addEventListener("pointercancel", lift);
}
