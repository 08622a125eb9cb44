"""Drives a page that `ferry report` wrote in headless Chromium. Run by test_report_page.sh.

Usage: check_page.py REPORT.html LEDGER.json...
The cells of the ledger are the figures of `ferry ledger --json`; zoom, pan, keys, search and
selection work; nothing is written to the console or requested; roles and names are there, texts
have contrast (WCAG 2.1, 4.5 to 1), and nothing is wider than a phone.
"""

import json
import sys

from playwright.sync_api import sync_playwright

CONTRAST = """() => {
    const light = text => {
        const parts = text.match(/[\\d.]+/g).map(Number).slice(0, 3).map(value => {
            const part = value / 255;
            return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
    };
    const groundOf = element => {
        for (; element; element = element.parentElement) {
            const ground = getComputedStyle(element).backgroundColor;
            if (!/, 0\\)$/.test(ground)) return ground;
        }
        return "rgb(255, 255, 255)";
    };
    const poor = [];
    for (const element of document.querySelectorAll("body *")) {
        const hasText = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
        if (!hasText || !element.getClientRects().length || element.tagName === "SCRIPT") continue;
        const [a, b] = [light(getComputedStyle(element).color), light(groundOf(element))].sort((x, y) => y - x);
        const contrast = (a + 0.05) / (b + 0.05);
        if (contrast < 4.5) poor.push(element.tagName + "." + element.className + " " + element.textContent.slice(0, 30) + ": " + contrast.toFixed(2));
    }
    return poor;
}"""

UNNAMED = """() => [...document.querySelectorAll("button, input, canvas, table, [role=region], [role=img]")].filter(element =>
    !(element.getAttribute("aria-label") || element.getAttribute("aria-labelledby") || element.textContent.trim() ||
      element.closest("label") || element.closest("[role=region]"))).map(element => element.outerHTML.slice(0, 80))"""

KEYS = ("requests", "uploads", "upload_bytes", "upload_wire_bytes", "upload_copies", "upload_blocked_ns", "downloads",
        "download_bytes", "download_wire_bytes", "download_copies", "download_blocked_ns", "peers", "peer_bytes",
        "peer_wire_bytes", "syncs", "sync_ns", "device_allocs", "throttles", "throttle_ns")


def check_figures(page, ledgers):
    """Every figure of every scope: on the page, or 0 everywhere and left out."""
    rows = page.evaluate("""() => [...document.querySelectorAll("#ledger tbody tr")].map(row =>
        [row.dataset.scope, Object.fromEntries([...row.querySelectorAll("[data-key]")].map(cell => [cell.dataset.key, cell.dataset.value]))])""")
    shown = dict(rows)
    assert len(shown) == len(rows), "a scope has two rows"
    scopes = [{scope["scope"]: scope for scope in ledger["scopes"]} for ledger in ledgers]
    assert set(shown) == {name for each in scopes for name in each}, "other scopes than ferry ledger"
    for name, figures in shown.items():
        for key in KEYS:
            expected = [each.get(name, {}).get(key, 0) for each in scopes]
            if key in figures:
                assert [int(value) for value in figures[key].split(" ")] == expected, f"{key} of {name}: {figures[key]}, not {expected}"
            else:
                assert not any(expected), f"{key} of {name} is not on the page"
    return len(rows)


def view_of(page):
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page.evaluate("() => [view.from, view.until]")


def check_view(page):
    canvas = page.locator("#timeline-0")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    whole = view_of(page)
    page.click("#zoom-in")
    zoomed = view_of(page)
    assert abs((zoomed[1] - zoomed[0]) * 2 - (whole[1] - whole[0])) < 1, "the button does not zoom"
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 - 100, box["y"] + 30, steps=4)
    page.mouse.up()
    assert view_of(page)[0] > zoomed[0], "dragging does not move"
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    wheeled = view_of(page)
    assert wheeled[1] - wheeled[0] < zoomed[1] - zoomed[0], "the wheel does not zoom"
    canvas.focus()
    page.keyboard.press("ArrowLeft")
    assert view_of(page)[0] < wheeled[0], "the left arrow does not move"
    page.keyboard.press("-")
    assert view_of(page)[1] - view_of(page)[0] > wheeled[1] - wheeled[0], "the minus key does not zoom"
    page.keyboard.press("0")
    assert view_of(page) == whole, "0 does not show the whole run"
    page.set_viewport_size({"width": 900, "height": 900})
    assert view_of(page) == whole
    page.set_viewport_size({"width": 1280, "height": 900})
    view_of(page)


def check_selection(page):
    """A click on each device's first lane, and on along the keys; a slice that waited for another one names it."""
    found = page.evaluate("""() => {
        const run = runs[0], lane = firstLane(run), layout = layOut(run, byId("timeline-0"));
        const row = layout.rows.find(each => each.lane === lane);
        const slice = lane.length.indexOf(Math.max(...lane.length)), canvas = byId("timeline-0"), left = gutterOf(canvas);
        show(lane.start[slice] - lane.length[slice], lane.end[slice] + lane.length[slice]);
        return { slice, y: row.y + row.height / 2, x: left + (canvas.clientWidth - left) / 2, name: run.texts[lane.text[slice]] };
    }""")
    view_of(page)
    canvas = page.locator("#timeline-0")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.click(box["x"] + found["x"], box["y"] + found["y"])
    text = page.inner_text("#selection")
    assert text.startswith(found["name"]), f"a click on {found['name']} selects: {text[:60]!r}"
    assert page.inner_text("#why"), "no reason"
    before = page.evaluate("() => chosen.slice")
    page.keyboard.press("n")
    if page.evaluate("() => chosen.slice + 1 < chosen.lane.count"):
        assert page.evaluate("() => chosen.slice") == before + 1, "n does not select the next slice"
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Escape")
    assert page.inner_text("#selection") == "", "Escape does not clear the selection"


def check_causes(page):
    """Each arrow's end lists its source. Returns the number of arrows that were looked at."""
    wrong = page.evaluate("""() => {
        const wrong = [];
        let count = 0;
        for (const run of runs)
            for (let i = 0; i < run.arrows.length && count < 500; i += 5, count++) {
                const [fromLane, from, toLane, to] = run.arrows.slice(i, i + 4);
                const it = { run, lane: run.lanes[toLane], slice: to };
                choose(it);
                if (!causesOf(it).some(cause => cause.lane === run.lanes[fromLane] && cause.slice === from)) wrong.push(i);
                if (run.lanes[fromLane].start[from] > run.lanes[toLane].end[to]) wrong.push("into the past: " + i);
                if (byId("selection").querySelectorAll("li button").length < 1) wrong.push("no item: " + i);
            }
        choose(null);
        return { wrong, count };
    }""")
    assert not wrong["wrong"], wrong["wrong"][:3]
    return wrong["count"]


def check_rest(page):
    page.fill("#find", "matmul")
    assert "slices" in page.inner_text("#found")
    page.fill("#find", "")
    fold = page.locator("#ledger .fold[aria-expanded]").first
    shown = page.locator("#ledger tbody tr:visible").count()
    fold.focus()
    page.keyboard.press("Enter")
    assert page.locator("#ledger tbody tr:visible").count() != shown, "a scope does not fold"
    page.keyboard.press("Enter")
    chart = page.locator("#memories canvas").first
    chart.focus()
    page.keyboard.press("Enter")
    assert "owned by" in page.inner_text("#memories .owners >> nth=0"), "no owners of the peak"
    chart.click(position={"x": 400, "y": 60})
    assert "At " in page.inner_text("#memories .owners >> nth=0"), "no figures of the moment"


def open_page(browser, path, logs, **options):
    page = browser.new_page(**options)
    page.on("console", lambda message: logs.append(message.text))
    page.on("pageerror", lambda error: logs.append(str(error)))
    page.on("request", lambda request: logs.append("request: " + request.url) if not request.url.startswith("file:") else None)
    page.on("dialog", lambda dialog: (logs.append("dialog: " + dialog.message), dialog.dismiss()))
    page.goto("file://" + path)
    page.wait_for_selector("body[data-ready]", timeout=600000)
    return page


def main():
    path = sys.argv[1]
    ledgers = []
    for name in sys.argv[2:]:
        with open(name, encoding="utf-8") as file:
            ledgers.append(json.load(file))
    logs = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"])
        for scheme in ("light", "dark"):
            page = open_page(browser, path, logs, viewport={"width": 1280, "height": 900}, color_scheme=scheme)
            poor = page.evaluate(CONTRAST)
            assert not poor, f"{scheme}: too little contrast: {poor[:3]}"
        rows = check_figures(page, ledgers)
        unnamed = page.evaluate(UNNAMED)
        assert not unnamed, f"without a name: {unnamed[:3]}"
        check_view(page)
        check_selection(page)
        arrows = check_causes(page)
        check_rest(page)
        phone = open_page(browser, path, logs, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
        wide = phone.evaluate("() => document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"on a phone the page is {wide} pixels too wide"
        browser.close()
    assert not logs, logs[:3]
    print(f"{rows} scopes, {arrows} arrows")


main()
