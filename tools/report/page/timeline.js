/* The timeline of a run: one row a lane. Slices thinner than a pixel are drawn together, as high as
 * the part of the pixel that they cover. */

let chosen = null;  /* { run, lane, slice } */
let matches = null; /* by run, by number of a text: whether the text is searched for */

function rowHeight(canvas, lane) {
    if (lane.depth > 1) return 18;
    return gutterOf(canvas) ? (lane.depth ? 22 : 28) : 42;
}

function layOut(run, canvas) {
    let y = 18;
    const rows = run.shown.map(lane => {
        const height = rowHeight(canvas, lane), label = gutterOf(canvas) || lane.depth > 1 ? 0 : 15;
        const row = {lane, y: y + label, height: height - label - 3};
        y += height;
        return row;
    });
    return {rows, height: y + 4};
}

function isMatch(run, lane, i) {
    const found = matches[run.number];
    return found[lane.text[i]] || found[lane.scope[i]] || found[lane.site[i]];
}

function drawSlice(g, run, row, i, x, width, left) {
    const lane = row.lane, isDim = matches && !isMatch(run, lane, i);
    const name = run.texts[lane.text[i]], visible = Math.max(x, left);
    const part = lane.length[i] ? lane.busy[i] / lane.length[i] : 1;
    const high = Math.max(2, row.height * Math.min(1, part));
    g.globalAlpha = isDim ? 0.2 : 1;
    g.fillStyle = colour(colourOf(lane, i));
    g.fillRect(visible, row.y + row.height - high, Math.max(1, x + width - visible - 0.6), high);
    g.globalAlpha = 1;
    if (x + width - visible < 34) return;
    g.save();
    g.beginPath();
    g.rect(visible, row.y, x + width - visible - 3, row.height);
    g.clip();
    g.fillStyle = lane.kind[i] >= 4 && lane.kind[i] !== 5 ? colour("text") : "#101214";
    g.fillText(lane.merged[i] > 1 ? whole(lane.merged[i]) + " " + name : name, visible + 4,
               row.y + row.height / 2 + 4.5);
    g.restore();
}

/* Covered parts of pixels, by colour. */
function drawThin(g, row, cover, left) {
    for (const [kind, columns] of cover) {
        g.fillStyle = colour(kind);
        for (let x = 0; x < columns.length; x++) {
            if (!columns[x]) continue;
            const high = Math.max(2, row.height * Math.min(1, columns[x]));
            g.fillRect(left + x, row.y + row.height - high, 1, high);
        }
    }
}

function drawRow(g, run, row, width, left) {
    const lane = row.lane, scale = (width - left) / (view.until - view.from), cover = new Map();
    for (let i = lowest(lane.reach, view.from); i < lane.count && lane.start[i] < view.until; i++) {
        const x = left + (lane.start[i] - view.from) * scale, w = lane.length[i] * scale;
        if (x + w < left) continue;
        if (w >= 1.5) {
            drawSlice(g, run, row, i, x, Math.min(w, width - x), left);
            continue;
        }
        const kind = matches && !isMatch(run, lane, i) ? "line" :
            matches                                    ? "chosen" :
                                                         colourOf(lane, i);
        if (!cover.has(kind)) cover.set(kind, new Float32Array(width - left + 2));
        cover.get(kind)[Math.max(0, Math.floor(x - left))] +=
            Math.max(w, 1e-6) * (lane.busy[i] / (lane.length[i] || 1) || 1);
    }
    drawThin(g, row, cover, left);
}

function drawLabel(g, canvas, row) {
    const gutter = gutterOf(canvas);
    g.fillStyle = colour("ground");
    if (gutter) g.fillRect(0, row.y - 2, gutter - 1, row.height + 4);
    g.fillStyle = colour("text");
    if (!row.lane.label) return;
    if (gutter)
        g.fillText(row.lane.label, 6, row.y + row.height / 2 + 4.5, gutter - 10);
    else
        g.fillText(row.lane.label, 2, row.y - 3);
}

/* Where slices were merged. */
function drawMerged(g, run, canvas, height) {
    if (run.thin.until_ns <= run.thin.from_ns) return;
    const left = gutterOf(canvas), scale = (canvas.clientWidth - left) / (view.until - view.from);
    const from = Math.max(left, left + (run.thin.from_ns - view.from) * scale);
    const until = left + (run.thin.until_ns - view.from) * scale;
    g.fillStyle = colour("panel");
    if (until > from) g.fillRect(from, 0, until - from, height);
}

function drawChosen(g, run, canvas, layout) {
    if (!chosen || chosen.run !== run) return;
    const left = gutterOf(canvas), scale = (canvas.clientWidth - left) / (view.until - view.from);
    const boxOf = (lane, i) => {
        const row = layout.rows.find(each => each.lane === lane);
        return row && {
            x: left + (lane.start[i] - view.from) * scale,
            w: lane.length[i] * scale,
            y: row.y,
            h: row.height
        };
    };
    const box = boxOf(chosen.lane, chosen.slice);
    g.strokeStyle = g.fillStyle = colour("chosen");
    g.save();
    g.beginPath();
    g.rect(left, 0, canvas.clientWidth - left, layout.height);
    g.clip();
    g.lineWidth = 2;
    g.strokeRect(box.x, box.y - 1, Math.max(box.w, 2), box.h + 2);
    g.lineWidth = 1.5;
    for (const cause of causesOf(chosen)) {
        const from = cause.isArrow && boxOf(cause.lane, cause.slice);
        if (!from) continue;
        g.beginPath();
        g.moveTo(from.x + from.w, from.y + from.h / 2);
        g.lineTo(box.x, box.y + box.h / 2);
        g.stroke();
        g.beginPath();
        g.arc(box.x, box.y + box.h / 2, 3.5, 0, 7);
        g.fill();
    }
    g.restore();
}

function drawTimeline(run, canvas) {
    const layout = layOut(run, canvas), g = prepare(canvas, layout.height);
    drawMerged(g, run, canvas, layout.height);
    drawAxis(g, canvas, layout.height);
    for (const row of layout.rows) drawRow(g, run, row, canvas.clientWidth, gutterOf(canvas));
    drawChosen(g, run, canvas, layout);
    for (const row of layout.rows) drawLabel(g, canvas, row);
}

/* The slice at a place, or the nearest one within some pixels; null: there is none. */
function sliceAt(run, canvas, x, y) {
    const row =
        layOut(run, canvas).rows.find(each => y >= each.y - 2 && y <= each.y + each.height + 2);
    if (!row || x < gutterOf(canvas)) return null;
    const lane = row.lane, at = momentAt(canvas, x), near = 6 * (momentAt(canvas, x + 1) - at);
    let best = null, least = near;
    for (let i = lowest(lane.reach, at - near); i < lane.count && lane.start[i] <= at + near; i++) {
        const distance = Math.max(0, lane.start[i] - at, at - lane.end[i]);
        if (distance < least || (distance === 0 && least === 0)) {
            best = {run, lane, slice: i};
            least = distance;
        }
    }
    return best;
}

function addTimeline(run) {
    const canvas = element("canvas", {
        tabindex: "0",
        role: "application",
        "aria-roledescription": "timeline",
        "aria-label": "Timeline of " + run.title,
        "aria-describedby": "timeline-help",
        id: "timeline-" + run.number,
    });
    if (isComparison) byId("timelines").append(element("h3", {}, run.title));
    byId("timelines").append(canvas);
    listen(canvas, (x, y) => {
        canvas.focus({preventScroll: true});
        choose(sliceAt(run, canvas, x, y));
    });
    canvas.addEventListener("keydown", event => takeKey(event, run));
    drawers.push(() => drawTimeline(run, canvas));
}

function showStep() {
    const run = chosen ? chosen.run : runs[0], step = run.step;
    if (!step) return;
    const lane = run.shown.find(each => each.depth &&
                                    [...each.scope].some(scope => run.texts[scope] === step.path));
    const steps = [];
    for (let i = 0; lane && i < lane.count; i++)
        if (run.texts[lane.scope[i]] === step.path && lane.merged[i] === 1) steps.push(i);
    if (!steps.length) return;
    const i = steps[Math.min(steps.length - 1, Math.floor(steps.length / 2))],
          margin = lane.length[i] * 0.1;
    show(lane.start[i] - margin, lane.end[i] + margin);
}

const keys = {
    "+": () => zoom(0.5),
    "=": () => zoom(0.5),
    "-": () => zoom(2),
    "0": () => show(0, end),
    "Home": () => show(0, end),
    "ArrowLeft": () => pan(-0.2),
    "ArrowRight": () => pan(0.2),
    "s": showStep,
    "n": run => chooseNext(run, 1),
    "p": run => chooseNext(run, -1),
    "ArrowDown": run => chooseLane(run, 1),
    "ArrowUp": run => chooseLane(run, -1),
    "w": () => chosen && chooseCause(),
    "Enter": () => chosen && showChosen(),
    "Escape": () => choose(null),
};

function takeKey(event, run) {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key](run);
}
