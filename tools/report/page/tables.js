/* The ledger as a tree of scopes, call sites, facts. A cell's data-value has the figure itself. */

const figureColumns = [
    ["requests", "requests", whole],
    ["uploads", "uploads", whole],
    ["upload_bytes", "bytes up", bytes],
    ["upload_wire_bytes", "wire up", bytes],
    ["upload_copies", "copies up", whole],
    ["upload_blocked_ns", "blocked up", time],
    ["downloads", "downloads", whole],
    ["download_bytes", "bytes down", bytes],
    ["download_wire_bytes", "wire down", bytes],
    ["download_copies", "copies down", whole],
    ["download_blocked_ns", "blocked down", time],
    ["peers", "peers", whole],
    ["peer_bytes", "bytes peer", bytes],
    ["peer_wire_bytes", "wire peer", bytes],
    ["collectives", "calls between ranks", whole],
    ["collective_bytes", "bytes of calls", bytes],
    ["collective_wire_bytes", "sent to ranks", bytes],
    ["collective_copies", "messages", whole],
    ["collective_blocked_ns", "blocked in ranks", time],
    ["syncs", "syncs", whole],
    ["sync_ns", "sync time", time],
    ["device_allocs", "allocations", whole],
    ["throttles", "throttles", whole],
    ["throttle_ns", "throttled", time],
];

function shareBar(sums, name) {
    const all = sums.reduce((a, b) => a + b, 0), bar = element("span", {class: name});
    sums.forEach((sum, i) => {
        if (!sum) return;
        const part = element("span", {class: shares[i]});
        part.style.width = 100 * sum / all + "%";
        bar.append(part);
    });
    return bar;
}

const leftHeadings =
    ["run", "call site", "direction", "path", "tensors", "where the time goes"];

function headings(...texts) {
    const cells = texts.map(text => {
        const side = leftHeadings.includes(text) ? "left" : "";
        return element("th", {scope: "col", class: side}, text);
    });
    return element("thead", {}, element("tr", {}, ...cells));
}

/* The first run's figure; of two runs what it became, and the sign of the difference. */
function figureCell(key, values, format) {
    const cell = element("td", {"data-key": key, "data-value": values.join(" ")});
    const [before, after] = values;
    cell.append(format(before));
    if (!values.some(value => value)) cell.className = "zero";
    if (values.length === 2 && before !== after)
        cell.append(" \u2192 ",
                    element("span", {class: after < before ? "better" : "worse"}, format(after)));
    return cell;
}

function comparePaths(a, b) {
    const x = a.split("/"), y = b.split("/");
    for (let i = 0; i < x.length && i < y.length; i++) {
        const order = x[i].localeCompare(y[i], "en", {numeric: true});
        if (order) return order;
    }
    return x.length - y.length;
}

/* One row for each path of any run: { path, figures: [row or null], times: [time or null] }. */
function ledgerRows() {
    const rows = new Map();
    runs.forEach((run, number) => run.scopes.forEach((figures, i) => {
        const path = i ? figures.scope : "";
        if (!rows.has(path))
            rows.set(path, {path, figures: runs.map(() => null), times: runs.map(() => null)});
        rows.get(path).figures[number] = figures;
        rows.get(path).times[number] = run.times[i];
    }));
    const list = [...rows.values()];
    return isComparison ?
        list.sort((a, b) => a.path ? b.path ? comparePaths(a.path, b.path) : 1 : -1) :
        list;
}

function barCell(row) {
    const cell = element("td", {class: "left"}),
          known = row.times.filter(each => each && each.count);
    for (const each of known) {
        const bar = shareBar(each.shares, "mini"), run = runs[row.times.indexOf(each)],
              all = each.total_ns;
        const text =
            each.shares
                .map((sum, i) => sum ? percent(sum, all) + " " + shareTexts[run.clock][i] : "")
                .filter(Boolean)
                .join(", ");
        bar.setAttribute("role", "img");
        bar.setAttribute("aria-label", text);
        bar.title = text;
        cell.append(bar);
    }
    return cell;
}

function ledgerRow(row, columns, parents) {
    const depth = row.path ? row.path.split("/").length : 0,
          name = row.path ? row.path.split("/").pop() : "everything";
    const hasInner = parents.has(row.path) && depth > 0;
    const head = element("th", {scope: "row"}),
          fold = element("button", {type: "button", class: "fold"});
    head.style.paddingLeft = 6 + Math.max(0, depth - 1) * 16 + "px";
    if (hasInner) {
        fold.setAttribute("aria-label", "Inner scopes of " + row.path);
        fold.addEventListener("click", () => {
            row.isOpen = !row.isOpen;
            fillLedger();
        });
        row.fold = fold;
        head.append(fold);
    } else
        head.append(element("span", {class: "fold"}, "\u00a0"));
    const link =
        element("button", {type: "button", class: "link", title: "Show in the timeline"}, name);
    link.addEventListener("click", () => search(row.path));
    head.append(link);
    row.element =
        element("tr", {"data-scope": row.path || "everything"}, head,
                figureCell("total_ns", row.times.map(each => each ? each.total_ns : 0), timeOrDash),
                figureCell("count", row.times.map(each => each ? each.count : 0),
                           n => n ? whole(n) : "-"),
                barCell(row),
                ...columns.map(
                    ([key, , format]) =>
                        figureCell(key, row.figures.map(each => each ? each[key] : 0), format)));
    row.depth = depth;
}

/* A scope without a time has only inner scopes, or began before the clock did. */
function timeOrDash(ns) { return ns ? time(ns) : "-"; }

let ledger = [];

/* Shows the rows whose parents are all open. */
function fillLedger() {
    const open = new Map([["", true]]);
    for (const row of ledger) {
        const above = row.path.includes("/") ? row.path.slice(0, row.path.lastIndexOf("/")) : "";
        const isShown = open.get(above) !== false;
        row.element.hidden = !isShown && row.depth > 0;
        open.set(row.path, row.depth === 0 || (isShown && row.isOpen));
        if (!row.fold) continue;
        row.fold.textContent = row.isOpen ? "\u25be" : "\u25b8";
        row.fold.setAttribute("aria-expanded", String(Boolean(row.isOpen)));
    }
}

const ROWS_OPEN = 40;
function addLedger() {
    const rows = ledgerRows(),
          used =
              figureColumns.filter(([key]) => runs.some(run => run.scopes.some(row => row[key])));
    const parents = new Set(rows.map(
        row => row.path.includes("/") ? row.path.slice(0, row.path.lastIndexOf("/")) : ""));
    const heads =
        ["scope", "time", "count", "where the time goes", ...used.map(([, text]) => text)];
    for (const row of rows) {
        ledgerRow(row, used, parents);
        row.isOpen = rows.length <= ROWS_OPEN || row.depth < 2;
    }
    ledger = rows;
    byId("ledger").append(headings(...heads),
                          element("tbody", {}, ...rows.map(row => row.element)));
    byId("ledger-hint").textContent =
        (runs[0].clock === "model" ?
             "Times are those of the host's scopes on the model clock; devices may finish later. " :
             "Times are those of the host's scopes. ") +
        "Figures include inner scopes." + (isComparison ? " A \u2192 B." : "");
    fillLedger();
}

const SITES_SHOWN = 100;
function addSites() {
    const heads = ["call site", "direction", "path", "tensors", "count", "bytes", "blocked"];
    if (isComparison) heads.unshift("run");
    const rows = runs.flatMap(run => run.sites.slice(0, SITES_SHOWN).map(site => {
        const cells = [
            element("td", {class: "left"}, site.direction),
            element("td", {class: "left"}, site.path),
            element("td", {class: "left"}, site.tensors), figureCell("count", [site.count], whole),
            figureCell("bytes", [site.bytes], bytes),
            figureCell("blocked_ns", [site.blocked_ns], time)
        ];
        const name = element("th", {scope: "row"}, site.site);
        return element("tr", {}, ...(isComparison ? [element("td", {}, letters[run.number])] : []),
                       name, ...cells);
    }));
    byId("sites").append(headings(...heads), element("tbody", {}, ...rows));
    if (!rows.length)
        byId("sites").replaceChildren(element("caption", {}, "No transfer was recorded."));
}

/* ---- facts ---- */

const headerTexts = {
    version: "version of the event file",
    library: "Ferry that recorded",
    process: "process",
    memory_bytes: "memory of the host",
    start_ns: "",
    unix_ns: "recorded at",
    source: "recorded by",
    command: "command that was recorded",
    profile: "profile of the device",
};

function factsOf(run) {
    const facts = [
        ["file", run.file],
        ["events", whole(run.events) + (run.lost ? ", and " + whole(run.lost) + " lost" : "")]
    ];
    if (!run.whole)
        facts.push(["state", "the recording has no end: figures are of the events before"]);
    for (const [key, value] of Object.entries(run.header)) {
        const text = headerTexts[key] ?? key;
        if (text)
            facts.push([
                text,
                key === "unix_ns"        ? new Date(value / 1e6)
                                               .toISOString()
                                               .replace(/\.\d+Z/, " UTC")
                                               .replace("T", " ") :
                    key === "memory_bytes" ? bytes(Number(value)) :
                                             value
            ]);
    }
    facts.push(
        [
            "clock of this page",
            run.clock === "model" ? "the model clock of the simulated device" : "the wall clock"
        ],
        ["model or run time", time(run.end_ns)], ["wall time", time(run.wall_ns)]);
    for (const [device, text] of Object.entries(run.devices))
        facts.push(["device " + device, text]);
    for (const pool of run.pools)
        facts.push([
            "pool " + pool.pool,
            "peak " + bytes(pool.peak_live_bytes) + " live, " + bytes(pool.peak_reserved_bytes) +
                " reserved; blocks " + whole(pool.blocks) + ", segments " + whole(pool.segments)
        ]);
    facts.push(["waits on devices", whole(run.waits)], ["refusals", whole(run.refusals)],
               ["faults", whole(run.faults)]);
    return facts;
}

function addFacts() {
    const keys = new Map();
    runs.forEach((run, number) => factsOf(run).forEach(([key, value]) => {
        if (!keys.has(key)) keys.set(key, runs.map(() => "-"));
        keys.get(key)[number] = value;
    }));
    const rows =
        [...keys].map(([key, values]) => element("tr", {}, element("th", {scope: "row"}, key),
                                                 ...values.map(value => element("td", {}, value))));
    rows.push(element("tr", {}, element("th", {scope: "row"}, "this page"),
                      element("td", {colspan: String(runs.length)},
                              "ferry " + report.version + ": " + report.command)));
    if (isComparison)
        byId("facts").append(
            element("thead", {},
                    element("tr", {}, element("th", {}, ""),
                            ...letters.map(letter => element("th", {scope: "col"}, letter)))));
    byId("facts").append(element("tbody", {}, ...rows));
}
