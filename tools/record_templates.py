#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what jinja2, set up as transformers does it, makes of the template cases.

    python tools/record_templates.py [--check]

Needs `transformers` (see tools/reference_venv.sh). Works on tests/cases/template:

    syntax.json, ...     {"cases": [{"template", "context", and what is recorded}]}
    conversations.json   {NAME: context}
    *.jinja              whole templates; each, and models/lexicon's, is rendered on all
                         conversations into NAME.renders.json: {"template": PATH,
                         "renders": {CONVERSATION: what is recorded}}

Recorded is {"output": text}, or {"error": exception, "message": its text, "line": where
the template's source is invalid}. To add a case write its template and context and run
this; --check writes nothing and fails if anything recorded is not what jinja2 gives.
"""
import json
import pathlib
import sys

from transformers.utils.chat_template_utils import _compile_jinja_template

ROOT = pathlib.Path(__file__).resolve().parent.parent
CASES = ROOT / "tests/cases/template"
LEXICON = ROOT / "models/lexicon/chat_template.jinja"


def render(template, context):
    try:
        return {"output": _compile_jinja_template(template).render(**context)}
    except RecursionError:
        return {"error": "RecursionError", "message": ""}
    except Exception as e:  # whatever Python raises is what the case expects
        record = {"error": type(e).__name__, "message": str(e)}
        if type(e).__name__ in ("TemplateSyntaxError", "TemplateAssertionError"):
            record["message"] = e.message
            record["line"] = e.lineno
        return record


def dump(value):
    return json.dumps(value, ensure_ascii=False)


def micro(path):
    """The file with its cases recorded anew, one case a line."""
    data = json.loads(path.read_text(encoding="utf-8"))
    lines = []
    for case in data["cases"]:
        inputs = {k: case[k] for k in ("template", "context") if k in case}
        inputs.update(render(case["template"], case.get("context", {})))
        lines.append("  " + dump(inputs))
    return '{"cases": [\n' + ",\n".join(lines) + "\n]}\n"


def whole(path, conversations):
    source = path.read_text(encoding="utf-8")
    lines = [f"  {dump(name)}: {dump(render(source, context))}"
             for name, context in conversations.items()]
    shown = path.relative_to(ROOT).as_posix()
    return f'{{"template": {dump(shown)}, "renders": {{\n' + ",\n".join(lines) + "\n}}\n"


def main():
    check = sys.argv[1:] == ["--check"]
    conversations = json.loads((CASES / "conversations.json").read_text(encoding="utf-8"))
    results = {}
    for path in sorted(CASES.glob("*.json")):
        if path.name != "conversations.json" and not path.name.endswith(".renders.json"):
            results[path] = micro(path)
    for path in sorted(CASES.glob("*.jinja")) + [LEXICON]:
        name = "lexicon" if path == LEXICON else path.stem
        results[CASES / f"{name}.renders.json"] = whole(path, conversations)
    bad = 0
    for path, text in results.items():
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        if old != text and check:
            print(f"{path.relative_to(ROOT)}: not what jinja2 gives")
            bad = 1
        elif old != text:
            path.write_text(text, encoding="utf-8")
    return bad


if __name__ == "__main__":
    sys.exit(main())
