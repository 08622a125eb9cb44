"""Compares the structs of two files of abidw. A struct that begins with struct_size may have new
fields behind its old size; every old field stays where it was. Another struct has its old size.
Usage: growth.py OLD NEW"""

import sys
import xml.etree.ElementTree as xml


def structs(path):
    """{name: (size in bits, {field: offset in bits})} of the public structs."""
    found = {}
    for struct in xml.parse(path).getroot().iter("class-decl"):
        name = struct.get("name", "")
        if not name.startswith("fy_") or struct.get("is-declaration-only") == "yes":
            continue
        fields = {}
        for member in struct.findall("data-member"):
            variable = member.find("var-decl")
            fields[variable.get("name")] = int(member.get("layout-offset-in-bits", "0"))
        found[name] = (int(struct.get("size-in-bits", "0")), fields)
    return found


old, new = structs(sys.argv[1]), structs(sys.argv[2])
bad = []
for name, (size, fields) in sorted(old.items()):
    if name not in new:
        bad.append(f"{name}: is gone")
        continue
    new_size, new_fields = new[name]
    if "struct_size" not in fields and new_size != size:
        bad.append(f"{name}: has no struct_size and grew from {size // 8} to {new_size // 8} bytes")
    for field, offset in fields.items():
        if new_fields.get(field) != offset:
            bad.append(f"{name}.{field}: was at byte {offset // 8} and is not there now")
    for field, offset in new_fields.items():
        if field not in fields and offset < size:
            bad.append(
                f"{name}.{field}: begins at byte {offset // 8}, inside the old {size // 8} bytes: "
                "an old program's padding would be read as this field"
            )
for line in bad:
    print(line)
sys.exit(1 if bad else 0)
