/* The chosen slice: its figures, and what it waited for. */

/* What had to end before a slice could begin: sources of its arrows, the slice before it on its
 * stream. The last to end comes first. */
function causesOf({run, lane, slice}) {
    const causes = [], arrows = run.arrows;
    for (let i = 0; i < arrows.length; i += 5) {
        if (arrows[i + 2] !== lane.index || arrows[i + 3] !== slice) continue;
        causes.push({
            run,
            lane: run.lanes[arrows[i]],
            slice: arrows[i + 1],
            isArrow: true,
            why: run.texts[arrows[i + 4]]
        });
    }
    if (lane.kind[slice] <= 3 && slice > 0)
        causes.push({run, lane, slice: slice - 1, why: "before it on the stream"});
    for (const cause of causes) cause.end = cause.lane.end[cause.slice];
    return causes.sort((a, b) => b.end - a.end);
}

function nameOf({run, lane, slice}) {
    const name = run.texts[lane.text[slice]], merged = lane.merged[slice];
    return merged > 1 ? whole(merged) + " merged slices (" + name + ")" : name;
}

/* The reason of an arrow as a text. */
function reasonOf(why) {
    if (why === "data") return "its result is read";
    if (why === "arrived") return "the host waited for its bytes";
    if (why.startsWith("wait: ")) return "a wait on the device, " + why.slice(6);
    return why;
}

function causeItem(cause) {
    const jump = element("button", {type: "button", class: "link"},
                         nameOf(cause) + " on " + (cause.lane.label || "the same lane"));
    jump.addEventListener("click", () => choose(cause, true));
    return element("li", {}, jump, ", ended at " + time(cause.end) + ": " + reasonOf(cause.why));
}

/* One sentence: why the slice began when it did. */
function explain(it, causes) {
    const {lane, slice} = it, start = lane.start[slice], last = causes[0];
    if (lane.merged[slice] > 1)
        return "Zoom in on the first or the last steps: slices here are merged.";
    if (lane.kind[slice] === 6) return "The program was in this scope.";
    if (isOfRanks(lane))
        return "The thread waited for other ranks, and exchanged data with them.";
    if (lane.kind[slice] === 5)
        return last ? "The host waited for " + nameOf(last) + "." :
                      "The host waited until all requests before were done.";
    if (lane.kind[slice] === 4) return "The host was in this call.";
    if (!last) return "It waited for nothing but the host's request.";
    const gap = start - last.end;
    if (gap <= Math.max(2, lane.length[slice] * 0.01))
        return last.isArrow ? "It began when " + nameOf(last) + " ended." :
                              "It began when the stream was free.";
    return "It waited for the host: everything that it needs had ended " + time(gap) + " before.";
}

function figuresOf({run, lane, slice}) {
    const length = lane.length[slice], texts = run.texts, figures = [
        [
            "time",
            time(length) + ", from " + time(lane.start[slice]) + " to " + time(lane.end[slice])
        ],
        ["lane", lane.label || run.texts[lane.name]],
    ];
    if (lane.merged[slice] > 1) figures.push(["busy", time(lane.busy[slice])]);
    if (lane.scope[slice]) figures.push(["scope", texts[lane.scope[slice]]]);
    if (lane.bytes[slice])
        figures.push([
            "bytes",
            whole(lane.bytes[slice]) +
                (length ? ", " + (lane.bytes[slice] / length).toFixed(2) + " GB/s" : "")
        ]);
    if (lane.flops[slice])
        figures.push([
            "flops",
            whole(lane.flops[slice]) +
                (length ? ", " + (lane.flops[slice] / length).toFixed(1) + " GFLOP/s" : "")
        ]);
    if (lane.path[slice])
        figures.push([lane.kind[slice] ? "path" : "shapes", texts[lane.path[slice]]]);
    if (lane.tensors[slice]) figures.push(["tensors", texts[lane.tensors[slice]]]);
    if (lane.site[slice]) figures.push(["call site", texts[lane.site[slice]]]);
    return figures;
}

function choose(it, isShown) {
    const panel = byId("selection");
    chosen = it;
    panel.replaceChildren();
    if (it) {
        const causes = causesOf(it), kind = kinds[it.lane.kind[it.slice]], list = element("dl", {});
        for (const [key, value] of figuresOf(it))
            list.append(element("dt", {}, key), element("dd", {}, value));
        panel.append(element("h3", {}, nameOf(it) + (kind === nameOf(it) ? "" : " (" + kind + ")")),
                     element("p", {id: "why"}, explain(it, causes)), list);
        if (causes.length)
            panel.append(element("p", {}, "What it waited for:"),
                         element("ul", {}, ...causes.slice(0, 12).map(causeItem)));
        if (isShown) reveal(it);
    }
    redraw();
}

/* Moves the view if the slice is outside. */
function reveal({lane, slice}) {
    const length = view.until - view.from, start = lane.start[slice];
    if (start < view.from || lane.end[slice] > view.until)
        show(start - length / 2, start + length / 2);
}

function showChosen() {
    const {lane, slice} = chosen, margin = Math.max(10, lane.length[slice]);
    show(lane.start[slice] - margin, lane.end[slice] + margin);
}

function chooseCause() {
    const last = causesOf(chosen)[0];
    if (last) choose(last, true);
}

/* The first lane of a device comes first, if there is one. */
function firstLane(run) { return run.shown.find(lane => lane.process >= 10) || run.shown[0]; }

function chooseNext(run, step) {
    if (!run.shown.length) return;
    if (!chosen || chosen.run !== run) {
        const lane = firstLane(run);
        choose({run, lane, slice: Math.min(lane.count - 1, lowest(lane.start, view.from))}, true);
        return;
    }
    const slice = chosen.slice + step;
    if (slice >= 0 && slice < chosen.lane.count) choose({run, lane: chosen.lane, slice}, true);
}

function chooseLane(run, step) {
    if (!chosen || chosen.run !== run) {
        chooseNext(run, 1);
        return;
    }
    const lane = run.shown[run.shown.indexOf(chosen.lane) + step];
    if (!lane) return;
    const slice =
        Math.max(0, Math.min(lane.count - 1, lowest(lane.reach, chosen.lane.start[chosen.slice])));
    choose({run, lane, slice}, true);
}
