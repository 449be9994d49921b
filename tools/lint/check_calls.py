#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Banned calls, found in the C sources with comments and strings taken out.

Each rule names calls, where they are banned, and what to use. Exceptions are lines of
tools/lint/allow: `calls FILE:CALL reason`.
"""
import re
import subprocess
import sys

# calls, regular expression of the files where they are fine, files they apply to, advice
RULES = [
    ("strcpy strcat sprintf vsprintf strtok gets tmpnam alloca", None, "",
     "unbounded: use snprintf, td_buf or base/utf8.h"),
    ("atoi atol atoll atof", None, "", "no error: use strtoll, strtod or base/conf.h"),
    ("malloc calloc realloc free strdup strndup aligned_alloc posix_memalign",
     r"^src/base/mem\.c$", "src/", "use base/mem.h"),
    ("printf puts putchar vprintf perror", r"^src/cmd/", "src/",
     "only src/cmd prints: fill struct td_error or write an event"),
    ("exit _exit _Exit quick_exit abort", None, "src/",
     "no library exit: return a status"),
]
PRINT_TO_STREAM = re.compile(r"\b(fprintf|vfprintf|fputs|fputc|fwrite)\s*\(")


def strip(text):
    """The text with comments and literals blanked, line numbers kept."""
    token = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'",
                       re.S)
    return token.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def arguments(text, start):
    """What stands between the parenthesis at `start` and its partner."""
    depth = 0
    for i in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return text[start:i]
    return ""


def main():
    allowed = set()
    with open("tools/lint/allow", encoding="utf-8") as lines:
        for line in lines:
            words = line.split()
            if words[:1] == ["calls"]:
                allowed.add(words[1])
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "src/*.[ch]",
                            "tools/*.[ch]", "tests/*.[ch]"],
                           capture_output=True, text=True, check=True).stdout.split()
    bad = 0
    for path in files:
        with open(path, encoding="utf-8") as f:
            text = strip(f.read())
        found = []
        for calls, fine, prefix, advice in RULES:
            if not path.startswith(prefix) or fine and re.search(fine, path):
                continue
            pattern = r"(?<![\w.>])(" + "|".join(calls.split()) + r")\s*\("
            found += [(m.start(), m.group(1), advice) for m in re.finditer(pattern, text)]
        if path.startswith("src/") and not path.startswith("src/cmd/"):
            for m in PRINT_TO_STREAM.finditer(text):
                if re.search(r"\b(stdout|stderr)\b", arguments(text, m.end() - 1)):
                    found.append((m.start(), m.group(1), "only src/cmd prints"))
        for start, call, advice in sorted(found):
            if f"{path}:{call}" in allowed:
                continue
            line = text.count("\n", 0, start) + 1
            print(f"{path}:{line}: {call}() is banned here: {advice}")
            bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main())
