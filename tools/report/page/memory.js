/* Memory over time: a chart for each pool, stacked by category. */

/* The numbers of an owner, in their order: scope, category, bytes, blocks, name of the tensor. */
const OWNER_NUMBERS = 5;

function categoryColour(i) { return "c" + Math.min(i, 5); }

function ownersTable(run, pool) {
    const rows = [];
    for (let i = 0; i < pool.owners.length; i += OWNER_NUMBERS) {
        const [scope, category, size, count, name] = pool.owners.slice(i, i + OWNER_NUMBERS);
        rows.push(element("tr", {},
                          element("th", {scope: "row"}, run.texts[scope] || "(outside any scope)"),
                          element("td", {class: "left"}, run.categories[category]),
                          element("td", {class: "left"}, run.texts[name]),
                          element("td", {}, bytes(size)),
                          element("td", {}, percent(size, pool.peak)),
                          element("td", {}, whole(count))));
    }
    const head =
        element("tr", {},
                ...["scope", "category", "tensor", "bytes", "of the peak", "blocks"].map(
                    (text, i) => element(
                        "th", {scope: "col", class: i === 1 || i === 2 ? "left" : ""}, text)));
    const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
    return element("div", {
        class: "scroll",
        tabindex: "0",
        role: "region",
        "aria-label": "Owners of the peak of " + pool.pool
    },
                   table);
}

function textAt(run, pool, at) {
    const i = Math.max(0, lowest(pool.at, at) - 1);
    const parts = run.categories.map((name, category) => [pool.by_category[category][i], name])
                      .filter(([size]) => size);
    parts.sort((a, b) => b[0] - a[0]);
    return "At " + time(pool.at[i]) + ": " + bytes(pool.total[i]) +
        (parts.length ?
             " (" + parts.map(([size, name]) => name + " " + bytes(size)).join(", ") + ")" :
             "") +
        ".";
}

function showOwners(run, pool, panel, at) {
    const lines = [element("p", {},
                           "Peak of " + pool.pool + ": " + bytes(pool.peak) + " at " +
                               time(pool.peak_ns) + ", owned by:")];
    if (at !== null) lines.unshift(element("p", {}, textAt(run, pool, at)));
    if (pool.before)
        lines.push(element("p", {},
                           bytes(pool.before) +
                               " were live before the recording began; their owners are unknown."));
    lines.push(ownersTable(run, pool));
    const shown = pool.owners.length / OWNER_NUMBERS;
    if (pool.owners_in_all > shown)
        lines.push(element("p", {class: "hint"},
                           whole(pool.owners_in_all - shown) + " more with fewer bytes."));
    panel.replaceChildren(...lines);
}

function drawMemory(run, pool, canvas, most) {
    const height = 120, g = prepare(canvas, height), left = gutterOf(canvas),
          width = canvas.clientWidth;
    const top = left ? 18 : 36, scale = (height - top - 4) / most, n = pool.at.length;
    drawAxis(g, canvas, height);
    const xOf = at => left + (at - view.from) / (view.until - view.from) * (width - left);
    const first = Math.max(0, lowest(pool.at, view.from) - 1),
          last = Math.min(n, lowest(pool.at, view.until) + 1);
    g.save();
    g.beginPath();
    g.rect(left, 0, width - left, height);
    g.clip();
    const base = new Float64Array(last - first);
    pool.by_category.forEach((sizes, category) => {
        g.fillStyle = colour(categoryColour(category));
        g.beginPath();
        for (let i = first; i < last; i++) {
            const x = xOf(pool.at[i]), y = height - 2 - (base[i - first] + sizes[i]) * scale;
            g.lineTo(x, y);
            g.lineTo(i + 1 < n ? xOf(pool.at[i + 1]) : width, y);
        }
        for (let i = last - 1; i >= first; i--) {
            const y = height - 2 - base[i - first] * scale;
            g.lineTo(i + 1 < n ? xOf(pool.at[i + 1]) : width, y);
            g.lineTo(xOf(pool.at[i]), y);
            base[i - first] += sizes[i];
        }
        g.fill();
    });
    const x = xOf(pool.peak_ns), y = height - 2 - pool.peak * scale;
    g.strokeStyle = colour("chosen");
    g.lineWidth = 1.5;
    g.strokeRect(x - 3, y - 3, 6, 6);
    g.restore();
    g.fillStyle = colour("ground");
    if (left) g.fillRect(0, 0, left - 1, height);
    g.fillStyle = colour("text");
    const text = "peak " + bytes(pool.peak);
    if (left) {
        g.fillText(pool.pool, 6, 34, left - 10);
        g.fillText(text, 6, 52);
    } else
        g.fillText(pool.pool + ", " + text, 4, 28, width - 8);
}

function addMemory(run, pool, most) {
    const name = (isComparison ? letters[run.number] + ": " : "") + pool.pool;
    const canvas = element("canvas", {
        tabindex: "0",
        role: "button",
        "aria-label": "Memory of " + name + ", peak " + bytes(pool.peak) + ". Show its owners"
    });
    const panel = element("div", {class: "owners", role: "status", "aria-live": "polite"});
    if (isComparison) byId("memories").append(element("h3", {}, name));
    byId("memories").append(canvas, panel);
    listen(canvas, x => showOwners(run, pool, panel, momentAt(canvas, x)));
    canvas.addEventListener("keydown", event => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        showOwners(run, pool, panel, null);
    });
    drawers.push(() => drawMemory(run, pool, canvas, most));
}

/* Pools of the same name have the same scale. */
function addMemories() {
    const used =
        runs.flatMap(run => run.memory.filter(pool => pool.peak).map(pool => ({run, pool})));
    used.sort((a, b) => isComparison ?
                  a.pool.pool.localeCompare(b.pool.pool) || a.run.number - b.run.number :
                  b.pool.peak - a.pool.peak);
    for (const {run, pool} of used)
        addMemory(run, pool,
                  Math.max(...used.filter(each => each.pool.pool === pool.pool)
                               .map(each => each.pool.peak)));
    const categories = element("ul", {class: "legend", "aria-label": "Colours of the categories"});
    runs[0].categories.forEach(
        (name, i) =>
            categories.append(element("li", {}, element("i", {class: categoryColour(i)}), name)));
    if (used.length)
        byId("memories").prepend(categories);
    else
        byId("memories").append("No pool was used.");
}
