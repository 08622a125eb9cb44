"""The binary interface of a library, as text.

    interface.py record LIBRARY FILE [OTHER...]  writes the interface to FILE
    interface.py check LIBRARY FILE [OTHER...]   prints the changes that break old programs

A line is one fact, "KEY: VALUE". FILE lacks the types that the OTHER files have, those of the
libraries below. Types are read from left to right ("char const *"). Typedefs and names of parameters
are left out; of a private type only the name is known.
    function NAME@@VERSION: RESULT(TYPE, ...)    variable NAME@@VERSION: TYPE
    struct NAME: N bytes                         struct NAME.FIELD: TYPE at BYTE
    enum NAME: N bytes                           enum NAME.ENUMERATOR: NUMBER
"""

import subprocess
import sys
import xml.etree.ElementTree as xml

# Not abidw's suppressions: libabigail 2.6 drops parameters that point to a suppressed type.
ABIDW = "abidw --no-corpus-path --no-comp-dir-path --no-elf-needed --drop-undefined-syms".split()
KINDS = {"class-decl": "struct", "union-decl": "union", "enum-decl": "enum"}


class Corpus:
    """The types and symbols of a library, from abidw's text about it."""

    def __init__(self, text):
        self.root = xml.fromstring(text)
        self.types = {node.get("id"): node for node in self.root.iter() if node.get("id")}
        self.named = []  # structs, unions and enums to which type_of came

    def type_of(self, node):
        """The type that a parameter, a field, a pointer or a typedef refers to."""
        if node.get("is-variadic"):
            return "..."
        of = self.types[node.get("type-id")]
        if of.tag == "typedef-decl":
            return self.type_of(of)
        if of.tag == "qualified-type-def":
            return self.type_of(of) + (" const" if of.get("const") else "")
        if of.tag == "pointer-type-def":
            return self.type_of(of) + " *"
        if of.tag == "array-type-def":
            return self.type_of(of) + "".join(f"[{n.get('length')}]" for n in of.iter("subrange"))
        if of.tag == "function-type":
            return self.function(of)
        if of.tag not in KINDS:
            return of.get("name")
        if of.get("is-anonymous"):
            members = "; ".join(f"{name}: {value}" for name, value in self.members(of))
            return f"{KINDS[of.tag]} {{{members}}}"
        self.named.append(f"{KINDS[of.tag]} {of.get('name')}")
        return self.named[-1]

    def function(self, node):
        parameters = ", ".join(self.type_of(parameter) for parameter in node.iter("parameter"))
        return f"{self.type_of(node.find('return'))}({parameters})"

    def members(self, node):
        for enumerator in node.iter("enumerator"):
            yield enumerator.get("name"), enumerator.get("value")
        for member in node.iter("data-member"):
            field, at = member.find("var-decl"), int(member.get("layout-offset-in-bits", 0)) / 8
            yield field.get("name") or f"({at:g})", f"{self.type_of(field)} at {at:g}"

    def symbols(self):
        by_symbol = {node.get("elf-symbol-id"): node for node in self.root.iter()}
        for kind, of in (("function", self.function), ("variable", self.type_of)):
            for symbol in self.root.findall(f"elf-{kind}-symbols/elf-symbol"):
                name, version = symbol.get("name"), symbol.get("version")
                if version:
                    name += ("@@" if symbol.get("is-default-version") else "@") + version
                node = by_symbol.get(name)
                yield f"{kind} {name}", "?" if node is None else of(node)

    def facts(self):
        """{key: value}, in the order of the text."""
        public = {
            f"{KINDS[node.tag]} {node.get('name')}": node
            for node in self.root.iter()
            if node.tag in KINDS and "include/ferry/" in node.get("filepath", "") and len(node)
        }
        parts = {key: {key: value} for key, value in self.symbols()}
        for variable in self.root.findall("abi-instr/var-decl"):
            self.type_of(variable)  # adds to self.named: fy_host_api, which plugins get
        for name in self.named:
            if name in parts or name not in public:
                continue
            sized = public[name].find("underlying-type")
            sized = public[name] if sized is None else self.types[sized.get("type-id")]
            parts[name] = {name: f"{int(sized.get('size-in-bits')) // 8} bytes"}
            for member, value in self.members(public[name]):
                parts[name][f"{name}.{member}"] = value
        facts = {key: self.root.get(key) for key in ("architecture", "soname")}
        for _, part in sorted(parts.items()):
            facts.update(part)
        return facts


def facts_of(library):
    return Corpus(subprocess.check_output(ABIDW + [library])).facts()


def changes(old, new):
    """Lines about the changes that break programs built with the old facts. Const breaks none."""
    for key, was in old.items():
        now = new.get(key)
        may_grow = f"{key}.struct_size" in old or (key[:5] == "enum " and key.endswith("_COUNT"))
        if now is None:
            yield f"{key}: is gone"
        elif not may_grow and was.replace(" const", "") != now.replace(" const", ""):
            is_size = key.startswith("struct ") and was.endswith(" bytes")
            yield f"{key}: was {was}, is {now}" + ("; it has no struct_size" if is_size else "")
    for key, now in new.items():
        size, at = old.get(key.split(".")[0], "").split(), now.split(" at ")[-1]
        if key not in old and key.startswith("struct ") and size and float(at) < int(size[0]):
            yield (
                f"{key}: begins at byte {at}, inside the old {size[0]} bytes: an old program's "
                "padding would be read as this field"
            )


def read(path):
    with open(path, encoding="utf-8") as file:
        return dict(line.rstrip("\n").split(": ", 1) for line in file)


def main():
    command, library, path, *others = sys.argv[1:]
    new, shared = facts_of(library), {}
    for other in others:
        shared.update(read(other))
    if command == "record":
        whole = {key.split(".")[0] for key, value in new.items() if shared.get(key) != value}
        own = {key: value for key, value in new.items() if key.split(".")[0] in whole}
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{key}: {value}\n" for key, value in own.items())
        return 0
    old = {key: value for key, value in shared.items() if key in new} | read(path)
    lines = list(changes(old, new))
    for line in lines:
        print(line)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
