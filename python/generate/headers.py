"""Reads Ferry's public headers: functions, structs, enumerators, callbacks, constants.

The C preprocessor expands the X-macro lists; a small parser reads the declarations that remain.
Comments come from the headers as they are. `python3 headers.py` is not a program: c_module.py and
ops_module.py use it.
"""

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Parameter:
    type: str  # "const fy_tensor_t *"
    name: str
    length: str = ""  # of an array field: "8"


@dataclass
class Function:
    name: str
    result: str
    parameters: list
    header: str  # "tensor.h", "train/model.h"
    comment: str = ""
    is_variadic: bool = False


@dataclass
class Struct:
    name: str
    fields: list  # Parameter, or (Struct, name, length) of a nested struct


@dataclass
class Api:
    functions: list = field(default_factory=list)
    structs: list = field(default_factory=list)
    enumerators: dict = field(default_factory=dict)
    enums: dict = field(default_factory=dict)  # type name: names of its enumerators
    opaque: set = field(default_factory=set)
    callbacks: dict = field(default_factory=dict)  # type name: (result, [Parameter])
    aliases: dict = field(default_factory=dict)
    constants: dict = field(default_factory=dict)


def all_headers(include):
    """Every public header but backend.h: the interface of plugins declares what they export."""
    found = sorted((include / "ferry").glob("*.h")) + sorted((include / "ferry/train").glob("*.h"))
    return [path.relative_to(include / "ferry") for path in found if path.name != "backend.h"]


def preprocessed(include, compiler):
    """The declarations of the headers, expanded, as (header, text) pieces in order."""
    source = "".join(f"#include <ferry/{path}>\n" for path in all_headers(include))
    command = [compiler, "-E", "-I", str(include), "-D__attribute__(x)=", "-x", "c", "-"]
    text = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    root = str(include / "ferry") + "/"
    header, lines = None, []
    for line in text.splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            name = marker.group(1)
            header = name[len(root) :] if name.startswith(root) else None
        elif header and header != "backend.h":
            lines.append((header, line))
    return lines


def statements(lines):
    """(header, text) of each declaration at file level."""
    depth, text, start = 0, "", None
    for header, line in lines:
        for character in line + " ":
            if not text.strip():
                start = header
            text += character
            depth += (character == "{") - (character == "}")
            if character == ";" and depth == 0:
                yield start, re.sub(r"\s+", " ", text).strip()
                text = ""


def split_top(text, separator):
    """Splits at separators outside of parentheses, brackets and braces."""
    depth, part, parts = 0, "", []
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == separator and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += character
    return parts + [part.strip()]


def parse_declarator(text):
    """Parameter of "const fy_tensor_t *src", "int64_t dims[8]" or "int (*fn)(void *user)"."""
    text = text.strip()
    callback = parse_callback(text)
    if callback:
        return Parameter(callback[1:], callback[0])
    array = re.search(r"\[([^\]]*)\]$", text)
    if array:
        text = text[: array.start()].strip()
    name = re.search(r"(\w+)$", text)
    length = array.group(1).strip() if array else ""
    c_type = re.sub(r"\s*\*\s*", " * ", text[: name.start()]).strip()
    return Parameter(c_type, name.group(1), length)


def parse_callback(text):
    """(name, result, parameters) of "int (*fn)(void *user)"."""
    match = re.match(r"(.*?)\(\s*\*\s*(\w+)\s*\)\s*\((.*)\)$", text)
    if not match:
        return None
    return match.group(2), match.group(1).strip(), parse_parameters(match.group(3))[0]


def parse_parameters(text):
    if text.strip() in ("void", ""):
        return [], False
    parts = split_top(text, ",")
    variadic = parts[-1] == "..."
    parameters = []
    for part in parts[: len(parts) - variadic]:
        parameter = parse_declarator(part)
        if parameter.length or part.endswith("[]"):
            parameter = Parameter(parameter.type + " *", parameter.name)
        parameters.append(parameter)
    return parameters, variadic


class Parser:
    def __init__(self):
        self.api = Api()

    def enum(self, body, name):
        value, names = -1, []
        for part in split_top(body, ","):
            if not part:
                continue
            key, _, expression = part.partition("=")
            value = self.number(expression) if expression else value + 1
            self.api.enumerators[key.strip()] = value
            names.append(key.strip())
        if name:
            self.api.enums[name] = names

    def number(self, expression):
        text = re.sub(r"(?<=[0-9a-fA-F])[uUlL]+", "", expression.strip())
        return eval(text, {"__builtins__": {}}, self.api.enumerators)  # "1 << 2", "FY_X - 1"

    def struct(self, body, name):
        fields = []
        for part in split_top(body, ";"):
            if not part:
                continue
            nested = re.match(r"struct \{(.*)\} (\w+)(?:\[(.*)\])?$", part)
            if nested:
                inner = self.struct(nested.group(1), f"{name}_{nested.group(2)}")
                fields.append(Parameter(inner.name, nested.group(2), nested.group(3) or ""))
                continue
            first, *others = split_top(part, ",")
            fields.append(parse_declarator(first))
            for other in others:
                fields.append(parse_declarator(f"{fields[-1].type.rstrip('* ')} {other}"))
        self.api.structs.append(Struct(name, fields))
        return self.api.structs[-1]

    def statement(self, header, text):
        text = re.sub(r"^extern ", "", text.rstrip(";").strip())
        typedef = text.startswith("typedef ")
        text = text.removeprefix("typedef ")
        body = re.match(r"(enum|struct)\s*(\w*)\s*\{(.*)\}\s*(\w*)$", text)
        if body:
            kind, tag, inside, alias = body.groups()
            getattr(self, kind)(inside, alias or tag)
            return
        if not typedef and re.match(r"(struct|enum) \w+$", text):
            return
        opaque = re.match(r"struct (\w+) (\w+)$", text)
        if typedef and opaque:
            self.api.opaque.add(opaque.group(2))
            return
        if typedef:
            callback = parse_callback(text)
            if callback:
                self.api.callbacks[callback[0]] = callback[1:]
                return
            alias = re.match(r"(\w+) (\w+)$", text)
            if alias:
                self.api.aliases[alias.group(2)] = alias.group(1)
                return
        function = re.match(r"(.*?)\b(fy_\w+) ?\((.*)\)$", text)
        if function:
            result, name, inside = function.groups()
            parameters, variadic = parse_parameters(inside)
            found = Function(name, result.strip(), parameters, header, "", variadic)
            self.api.functions.append(found)
            return
        raise ValueError(f"{header}: cannot read: {text}")


def comments(include):
    """The comment of each function: above it, and behind it. One with neither has that above the
    first declaration of its group, which an empty line or another comment ends."""
    found = {}
    for path in all_headers(include):
        text = (include / "ferry" / path).read_text()
        group, above = "", ""
        for part in re.finditer(
            r"(?P<comment>^[ \t]*/\*.*?\*/)|(?P<empty>^[ \t]*$)"
            r"|^FY_API.*?\b(?P<name>fy_\w+)\([^;]*;(?P<behind>[ \t]*/\*.*?\*/)?",
            text,
            re.S | re.M,
        ):
            if part["name"]:
                own = "\n".join(filter(None, (above, plain(part["behind"] or ""))))
                found[part["name"]] = own or group
                above = ""
            else:
                group = above = plain(part["comment"] or "")
                group = above = "" if above.startswith("----") else above
    return found


def plain(comment):
    """The text of a comment."""
    return "\n".join(re.sub(r"^\s*(/\*|\*(?!/))\s?|\s*\*/$", "", line) for line in comment.splitlines())


def constants(include, compiler):
    """Numeric #defines of the headers."""
    source = "".join(f"#include <ferry/{path}>\n" for path in all_headers(include))
    command = [compiler, "-E", "-dM", "-I", str(include), "-x", "c", "-"]
    text = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    found = {"FY_FOREVER": 2**64 - 1, "FY_UNLIMITED": 2**64 - 1}
    for name, value in re.findall(
        r"#define (FY_\w+|FERRY_VERSION_\w+) \(?(-?\d+)[uUlL]*\)?$", text, re.M
    ):
        found[name] = int(value)
    return found


def read_api(include, compiler="cc"):
    include = Path(include).resolve()
    parser = Parser()
    for header, text in statements(preprocessed(include, compiler)):
        parser.statement(header, text)
    api, texts = parser.api, comments(include)
    for function in api.functions:
        function.comment = texts.get(function.name, "")
    api.opaque -= {struct.name for struct in api.structs}
    api.constants = constants(include, compiler)
    return api
