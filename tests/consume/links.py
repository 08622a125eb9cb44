"""links.py FOLDER: prints links of installed pages to files that are not installed; exit status 1 if there is one.
Links to programs of the sources are allowed: an installation has none."""

import os
import re
import sys

dead = []
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        if not name.endswith(".md"):
            continue
        with open(os.path.join(folder, name)) as file:
            text = re.sub(r"```.*?```", "", file.read(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            is_address = re.match(r"[a-z]+:", target)
            if not is_address and not target.endswith(".py") and not os.path.exists(os.path.join(folder, target)):
                dead.append(f"{os.path.join(folder, name)}: {target}")
print("\n".join(dead) or "no dead link")
sys.exit(bool(dead))
