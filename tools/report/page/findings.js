/* The advisor's findings, those that save most first. */

function addFinding(run, finding, list) {
    const saving =
        finding.saving_ns ? "saves " + time(finding.saving_ns) : "saves no time of this run";
    const where = finding.site || finding.scope || "outside any scope";
    const show = element("button", {type: "button", class: "link"}, "Show in the timeline");
    show.addEventListener("click", () => {
        search(finding.scope);
        byId("timeline-" + run.number).scrollIntoView();
    });
    const facts = element("dl", {});
    const add = (key, value) =>
        value && facts.append(element("dt", {}, key), element("dd", {}, value));
    add("where", where + ", scope " + (finding.scope || "(none)"));
    add("what", whole(finding.count) + " " + finding.what + ", " + bytes(finding.bytes));
    add("saving", time(finding.saving_ns) + ": " + finding.saving);
    add("confidence", finding.confidence);
    add("detail", finding.detail);
    add("why", finding.why);
    add("fix", finding.fix);
    list.append(element("details", {},
                        element("summary", {}, element("b", {}, saving),
                                ": " + finding.title + " (" + finding.id + "), " + where),
                        facts, element("pre", {}, finding.code), show));
}

const FINDINGS_SHOWN = 100;
function addFindings() {
    const list = byId("findings");
    for (const run of runs) {
        if (isComparison) list.append(element("h3", {}, run.title));
        if (!run.advice)
            list.append(element(
                "p", {},
                "Not looked for: the recording came through a pipe ('ferry advise FILE')."));
        else if (run.advised)
            list.append(element("p", {}, "In the first " + whole(run.advised) + " of " +
                                whole(run.events) + " events; 'ferry advise FILE' reads all."));
        if (run.advice && !run.advice.findings.length)
            list.append(element("p", {}, "None: no rule of the advisor applies."));
        for (const finding of run.advice ? run.advice.findings.slice(0, FINDINGS_SHOWN) : [])
            addFinding(run, finding, list);
    }
}
