/* The recorded runs, from the document that tools/report/recording_page.c writes. */

const report = JSON.parse(byId("data").textContent);
const runs = report.runs;
const isComparison = runs.length === 2;
const letters = ["A", "B"];
const shares = ["compute", "upload", "download", "peer", "ranks", "wait", "call", "host-op", "host"];
const kinds = ["op", "upload", "download", "peer", "call", "wait", "scope"];
const kindColours = ["compute", "upload", "download", "peer", "call", "wait", "scope"];
const shareTexts = {
    model: [
        "computes", "waits for uploads", "waits for downloads", "waits for copies between devices",
        "waits for other ranks", "waits", "waits for the host's transfer calls", "waits for ops on the host",
        "waits for the host"
    ],
    wall: [
        "computes", "blocks in uploads", "blocks in downloads", "blocks in copies between devices",
        "blocks in calls between ranks", "blocks in other waits", "runs transfer calls", "runs ops on the host", "runs host code"
    ],
};

function sumUp(differences) {
    const sums = new Float64Array(differences.length);
    let sum = 0;
    for (let i = 0; i < sums.length; i++) sums[i] = sum += differences[i];
    return sums;
}

/* Columns of a lane as typed lists; `reach` is the latest end so far, which search needs. */
function decodeLane(lane, index) {
    const n = lane.count, zeros = new Uint8Array(n);
    lane.index = index;
    lane.start = sumUp(lane.start);
    lane.end = new Float64Array(n);
    lane.reach = new Float64Array(n);
    for (let i = 0, reach = 0; i < n; i++) {
        lane.end[i] = lane.start[i] + lane.length[i];
        lane.reach[i] = reach = Math.max(reach, lane.end[i]);
    }
    lane.busy ??= lane.length;
    for (const key of ["text", "kind", "scope", "bytes", "flops", "site", "path", "tensors"])
        lane[key] ??= zeros;
    lane.merged ??= new Uint8Array(n).fill(1);
}

/* Scopes of a thread above its calls, streams behind the host. */
function compareLanes(a, b) {
    return a.process - b.process || a.thread - b.thread || (a.depth || 99) - (b.depth || 99);
}

/* A lane of calls between ranks: TRACKS_RANKS of tools/timeline/tracks.h. */
function isOfRanks(lane) {
    return lane.process <= 2 && lane.thread > 1 << 21;
}

function colourOf(lane, i) {
    return isOfRanks(lane) ? "ranks" : kindColours[lane.kind[i]];
}

function nameLane(run, lane) {
    const process =
        run.processes[lane.process].replace(" (model clock)", "").replace(" (wall clock)", "");
    const name = run.texts[lane.name];
    if (isOfRanks(lane)) return name.replace("host thread", "thread");
    if (process === "host")
        return lane.depth ? (lane.depth === 1 ? name : "") :
                            (lane.process === 1 ? name + ": calls" : name + ": waits");
    return process + " " + name;
}

runs.forEach((run, number) => {
    run.number = number;
    run.lanes.forEach(decodeLane);
    run.shown = run.lanes.filter(lane => lane.count).sort(compareLanes);
    run.shown.forEach(lane => {
        lane.label = nameLane(run, lane);
    });
    run.memory.forEach(pool => {
        pool.at = sumUp(pool.at);
    });
    run.title = isComparison ? letters[number] + ": " + run.file : run.file;
});
const end = Math.max(1, ...runs.map(run => run.end_ns));
