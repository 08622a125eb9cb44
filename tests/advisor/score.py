"""score.py FERRY CORPUS FOLDER: precision and recall of each rule of `ferry advise` over the corpus.

Every program runs clean in three sizes and with each plant. A rule finds a plant if it has a
finding in that run; a finding in any other run is false. Estimated savings are compared with those
that --prove measures. Prints a table; exit status 1 unless all is right."""
import concurrent.futures
import json
import os
import subprocess
import sys

RULES = {
    "reload": "FA01", "again": "FA02", "round-trip": "FA03", "host-op": "FA04", "never-read": "FA05",
    "never-used": "FA06", "small-copies": "FA07", "scalar-read": "FA08", "blocking-read": "FA09",
    "device-wait": "FA10", "staged": "FA11", "one-buffer": "FA12", "pin": "FA13", "alloc": "FA14",
    "pinned-idle": "FA15", "chain": "FA16", "host-work": "FA17", "early-write": "FA18",
    "turns": "FA19", "pinned-most": "FA20", "copy-into": "FA21", "slow-copy": "FA22",
    "tiny-ops": "FA23", "late-upload": "FA24", "ragged-ops": "FA25",
}
# Plants that need another device: one that takes longer for each request than its profile says, one
# on which the host needs 6 us to submit an op, and one with a link so slow that ops do not hide copies.
SLOW_LINK = "sim:0?numerics=off&profile={folder}/link.json"
DEVICES = {
    "reload": SLOW_LINK, "never-read": SLOW_LINK, "never-used": SLOW_LINK,
    "slow-copy": "sim:0?numerics=off&faults=slow@1*:70us",
    "tiny-ops": "sim:0?numerics=off&profile={folder}/launch.json",
    "ragged-ops": "sim:0?numerics=off&profile={folder}/launch.json",
}
LAUNCH = {"ferry_profile": 1, "name": "slow-launch", "base": "h200",
          "figures": {"launch_submit_ns": {"value": 6000, "unit": "ns"}, "kernel_ns": {"value": 1000, "unit": "ns"}}}
LINK = {"ferry_profile": 1, "name": "slow-link", "base": "h200",
        "figures": {"pinned_bytes_per_s": {"value": 10000000000, "unit": "bytes/s"},
                    "pageable_bytes_per_s": {"value": 10000000000, "unit": "bytes/s"}}}
UNMEASURED = {"FA13", "FA14", "FA15", "FA18", "FA20", "FA25"}  # no model time, or no mechanical fix
PROGRAMS = ("train", "stream", "infer")
SIZES = (0, 1, 2)
FEWEST = 3  # plants, and clean programs, of each rule
SHARE, OF_RUN = 0.25, 0.005  # an estimate may differ by that share, or that part of the run

ferry, corpus, folder = sys.argv[1:]


def advise(run):
    """The document of one run; as if the host had 160 MiB if most of it is to be page-locked."""
    program, size, plant = run
    path = os.path.join(folder, f"{program}-{size}-{plant}.jsonl")
    device = DEVICES.get(plant, "sim:0?numerics=off").format(folder=folder)
    subprocess.run([corpus, program, str(size), plant, path], check=True, env={**os.environ, "FERRY_CORPUS_DEVICE": device})
    if plant == "pinned-most":
        with open(path) as file:
            lines = file.readlines()
        head = json.loads(lines[0])
        head["memory_bytes"] = 160 << 20
        lines[0] = json.dumps(head, separators=(",", ":")) + "\n"
        with open(path, "w") as file:
            file.writelines(lines)
    result = subprocess.run([ferry, "advise", path, "--prove", "--json"], check=True, capture_output=True)
    os.remove(path)
    return json.loads(result.stdout)


for name, content in (("launch", LAUNCH), ("link", LINK)):
    with open(os.path.join(folder, name + ".json"), "w") as profile:
        json.dump(content, profile)
plants = [line.split()[0] for line in subprocess.check_output([corpus, "--list"], text=True).splitlines()]
listed = subprocess.check_output([ferry, "advise", "--help"], text=True).splitlines()
rules = sorted(line.split()[0] for line in listed if line.startswith("  FA"))
runs = [(program, size, "clean") for program in PROGRAMS for size in SIZES]
runs += [(program, size, plant) for plant in plants for program, size in zip(PROGRAMS, SIZES)]
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    documents = dict(zip(runs, pool.map(advise, runs)))

wrong = [f"no plant for {rule}" for rule in rules if rule not in RULES.values()]
wrong += [f"no rule for '{plant}'" for plant in plants if plant not in RULES]
print(f"{'rule':6}{'plants':>8}{'found':>7}{'recall':>8}{'clean':>7}{'false':>7}{'precision':>11}{'worst estimate':>16}")
for rule in rules:
    planted = [run for run in runs if RULES.get(run[2]) == rule]
    clean = [run for run in runs if run[2] == "clean"]
    fired = [run for run in runs if any(f["id"] == rule for f in documents[run]["findings"])]
    found = [run for run in planted if run in fired]
    false = [run for run in fired if run not in planted]
    worst, outside = None, []
    for run in fired:
        document = documents[run]
        for finding in (f for f in document["findings"] if f["id"] == rule):
            saving, measured = finding["saving_ns"], finding["measured_ns"]
            if (measured is None) != (rule in UNMEASURED):
                wrong.append(f"{rule} in {run}: measured {measured}")
            if measured is None:
                continue
            off = abs(saving - measured)
            if max(saving, measured) > OF_RUN * document["ns"]:
                worst = max(worst or 0, off / max(measured, 1))
            if off > max(SHARE * measured, OF_RUN * document["ns"]):
                outside.append(f"{rule} in {run}: {saving} ns estimated, {measured} measured")
    recall = 100 * len(found) / max(len(planted), 1)
    precision = 100 * len(found) / max(len(found) + len(false), 1)
    estimate = ("not measured" if rule in UNMEASURED else "below 0.5 %") if worst is None else f"{100 * worst:.0f} % off"
    print(f"{rule:6}{len(planted):8}{len(found):7}{recall:6.0f} %{len(clean):7}{len(false):7}{precision:9.0f} %{estimate:>16}")
    wrong += [f"{rule} misses {run}" for run in planted if run not in fired]
    wrong += [f"{rule} fires on {run}" for run in false] + outside
    if len(planted) < FEWEST or len(clean) < FEWEST:
        wrong.append(f"{rule} has {len(planted)} plants and {len(clean)} clean programs")
for line in wrong:
    print(line)
sys.exit(bool(wrong))
