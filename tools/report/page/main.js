/* Puts the page together. */

function addSummary() {
    byId("summary").textContent = report.summary;
    byId("kind").textContent = "Ferry report: " + runs.map(run => run.title).join(" and ");
    document.title = "Ferry report: " + runs.map(run => run.file).join(", ");
}

/* Shares of the steps: of two runs on one scale. */
function addShares() {
    const lengthOf = run => run.step ? run.part_ns / run.step.count : run.part_ns;
    const isPerStep = runs.every(run => run.step),
          longest = Math.max(...runs.map(run => isPerStep ? lengthOf(run) : run.part_ns));
    const used = new Set();
    for (const run of runs) {
        const bar = shareBar(run.shares, "shares"), texts = [];
        [...bar.children].forEach(part => {
            const i = shares.indexOf(part.className);
            const text = percent(run.shares[i], run.part_ns);
            used.add(i);
            texts.push(text + " " + shareTexts[run.clock][i]);
            const width = run.shares[i] / run.part_ns * byId("where").clientWidth;
            part.textContent = width > 50 ? text : "";
            part.title = text + " " + shareTexts[run.clock][i];
        });
        bar.setAttribute("role", "img");
        bar.setAttribute("aria-label", texts.join(", "));
        bar.id = "shares-" + run.number;
        const row = element("div", {class: "share-row"}, bar),
              length = isPerStep ? lengthOf(run) : run.part_ns;
        if (isComparison) {
            row.prepend(
                element("span", {class: "share-name"}, letters[run.number] + ": " + time(length)));
            bar.style.maxWidth = Math.max(2, 92 * length / longest) + "%";
        }
        byId("where").append(row);
    }
    for (const i of [...used].sort()) {
        const figures = runs.map(run => percent(run.shares[i], run.part_ns) + ", " +
                                     time(run.shares[i] / (isPerStep ? run.step.count : 1)));
        byId("legend").append(element("li", {}, element("i", {class: shares[i]}),
                                      shareTexts[runs[0].clock][i],
                                      element("b", {}, " " + figures.join(" \u2192 "))));
    }
    byId("where-hint").textContent =
        (isPerStep ? "The mean step. " : "The whole run. ") +
        (runs[0].clock === "model" ?
             "A moment counts as computing if the device computes, else by what the device waits for." :
             "A moment counts by what the host's thread does.");
}

function card(name, ...values) {
    const figure = element("b", {}, values[0]);
    if (values.length === 2 && values[0] !== values[1]) figure.append(" \u2192 " + values[1]);
    byId("cards").append(element("div", {class: "card"}, name, figure));
}

/* The part of a share's time that another share covers. */
function hidden(run, i) {
    const whole_ns = run.times[0].shares[i];
    return run.busy[i] ? percent(run.busy[i] - whole_ns, run.busy[i]) : "-";
}

function addCards() {
    const totals = runs.map(run => run.scopes[0]),
          isModel = runs.every(run => run.clock === "model");
    const pools =
        new Set(runs.flatMap(run => run.memory.filter(pool => pool.peak).map(pool => pool.pool)));
    card(isModel ? "model time of the run" : "time of the run",
         ...runs.map(run => time(run.end_ns)));
    card("requests", ...totals.map(row => whole(row.requests)));
    card("uploads", ...totals.map(row => whole(row.uploads) + ", " + bytes(row.upload_bytes)));
    card("downloads",
         ...totals.map(row => whole(row.downloads) + ", " + bytes(row.download_bytes)));
    if (isModel && runs.some(run => run.busy[1]))
        card("upload time hidden by computing", ...runs.map(run => hidden(run, 1)));
    if (totals.some(row => row.collectives))
        card("calls between ranks",
             ...totals.map(row => whole(row.collectives) + ", " + bytes(row.collective_wire_bytes)));
    const ranks = shares.indexOf("ranks");
    if (!isModel && runs.some(run => run.busy[ranks]))
        card("calls between ranks beside other work", ...runs.map(run => hidden(run, ranks)));
    card("waits of the host", ...totals.map(row => whole(row.syncs)));
    for (const name of pools)
        card("peak of " + name,
             ...runs.map(run => bytes(run.memory.find(pool => pool.pool === name)?.peak ?? 0)));
}

function search(text) {
    byId("find").value = text;
    const wanted = text.toLowerCase();
    matches =
        wanted ? runs.map(run => run.texts.map(each => each.toLowerCase().includes(wanted))) : null;
    let count = 0;
    for (const run of matches ? runs : [])
        for (const lane of run.shown)
            for (let i = 0; i < lane.count; i++)
                if (isMatch(run, lane, i)) count += lane.merged[i];
    byId("found").textContent = matches ? whole(count) + " slices" : "";
    redraw();
}

function addTools() {
    byId("zoom-in").addEventListener("click", () => zoom(0.5));
    byId("zoom-out").addEventListener("click", () => zoom(2));
    byId("pan-left").addEventListener("click", () => pan(-0.3));
    byId("pan-right").addEventListener("click", () => pan(0.3));
    byId("whole").addEventListener("click", () => show(0, end));
    byId("one-step").addEventListener("click", showStep);
    byId("one-step").hidden = !runs[0].step;
    byId("find").addEventListener("input", event => search(event.target.value));
    addEventListener("resize", redraw);
    for (const query of ["(prefers-color-scheme: dark)", "(prefers-color-scheme: light)"])
        matchMedia(query).addEventListener("change", () => {
            colours = {};
            redraw();
        });
    const thin = runs.filter(run => run.thin.until_ns > run.thin.from_ns);
    byId("thin").textContent =
        thin.map(run => "Of " + whole(run.thin.before) + " slices" +
                     (isComparison ? " of " + letters[run.number] : "") + ", those from " +
                     time(run.thin.from_ns) + " to " + time(run.thin.until_ns) +
                     " (shaded) are merged with neighbours. All other figures are of all events.")
            .join(" ");
}

addSummary();
addShares();
addCards();
addTools();
runs.forEach(addTimeline);
addFindings();
addLedger();
addMemories();
addSites();
addFacts();
draw();
document.body.dataset.ready = Math.round(performance.now());
