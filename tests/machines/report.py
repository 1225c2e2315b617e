# SPDX-License-Identifier: Apache-2.0
"""The table of all kernels: what works on each one, and the reasons for what does not."""
from markdown import Notes, shown, table

INTRODUCTION = """# Kernels

Written by `make kernels`: Debian's kernels, each booted in a virtual machine, where the tracer runs
against programs that know what they allocate. `yes`: every figure was equal, and the kernel logged
no warning. A number leads to the reason below. `–`: the kernel or the image lacks what the test is
about. Kernels before 5.15 lack what a trace needs: on Debian 11's, 5.10, one line says so, and
`leaks`, `heap`, `memory` and `list` work.

The machines had {accelerators}.
"""
EMULATED = "an emulated processor, on which everything takes several times as long"
PROCESSOR_FAILED = """The emulated processor failed (it had flags that no processor has, or met a breakpoint of the kernel's
own that was no longer in the code), and the kernel was booted again for the rest, this often: %s.
"""
STOOD_STILL = """A guest sent nothing for minutes, and the kernel was booted again for the rest. Where it stood:

%s
"""
MARKS = {"yes": "yes", "absent": "–"}
# Title, and the feature whose attach is shown.
ATTACHES = (
    ("stripped", "demo"),
    ("unstripped", "census, unstripped, 1 thread"),
    ("native", "native layer"),
)


def cell(result, name, notes):
    feature = result["features"].get(name)
    if not feature:
        return "not run"
    reason = shown(feature["reason"])
    mark = MARKS.get(feature["status"], "**no**")
    return "%s (%d)" % (mark, notes.number(reason)) if reason else mark


def attach_cell(result, name):
    facts = result["features"].get(name, {}).get("notes", {}).get("attach") or {}
    if "ms" not in facts:
        return "–"
    return "%s probes, %s ms" % (facts.get("probes", "?"), facts["ms"])


def links_cell(result):
    kinds = []
    for _, name in ATTACHES:
        kind = result["features"].get(name, {}).get("notes", {}).get("attach", {}).get("links")
        if kind and kind not in kinds:
            kinds.append(kind)
    return ", ".join(kinds) or "–"


def verifier_cell(result):
    largest = result["features"].get("verifier", {}).get("notes", {}).get("largest")
    if not largest:
        return "–"
    return "`%(name)s`: %(insns)d, stack %(stack)d" % largest


def facts_table(results):
    rows = []
    for series, result in results.items():
        if not result:
            rows.append([series, "no package: untested", "", *[""] * len(ATTACHES), "", ""])
            continue
        attaches = [attach_cell(result, name) for _, name in ATTACHES]
        begin = [series, result["release"] or "did not boot", links_cell(result)]
        rows.append([*begin, *attaches, verifier_cell(result), "%d s" % result["seconds"]])
    titles = ["attach, " + title for title, _ in ATTACHES]
    return table(["series", "kernel", "links", *titles, "largest program", "took"], rows)


def feature_names(results):
    """In the order in which they run; the results of a kernel that ended early are incomplete."""
    order = sorted((r for r in results if r), key=lambda r: -len(r["features"]))
    return list(dict.fromkeys(name for result in order for name in result["features"]))


def text(results):
    """The whole page. results: {series: result or None}."""
    ran = {series: result for series, result in results.items() if result}
    notes = Notes()
    rows = []
    for name in feature_names(results.values()):
        rows.append([name, *(cell(result, name, notes) for result in ran.values())])
    kinds = sorted({result["accelerator"].split("-")[0] for result in ran.values()})
    kinds = [EMULATED if kind == "tcg" else kind.upper() for kind in kinds]
    introduction = INTRODUCTION.format(accelerators=" or ".join(kinds) or "nothing")
    parts = [introduction, facts_table(results), table(["feature", *ran], rows)]
    if notes.numbers:
        parts.append(notes.text())
    failed = [
        "%s, %d" % (s, r["processor_failures"])
        for s, r in ran.items()
        if r.get("processor_failures")
    ]
    if failed:
        parts.append(PROCESSOR_FAILED % "; ".join(failed))
    still = [
        "- %s: %s" % (series, shown(why))
        for series, result in ran.items()
        for why in result.get("stood_still", ())
    ]
    if still:
        parts.append(STOOD_STILL % "\n".join(still))
    boots = []
    for series, result in ran.items():
        lines = dict.fromkeys(result["boot_messages"])
        boots += ["- %s: `%s`\n" % (series, line) for line in lines]
    if boots:
        parts.append("Warnings as they booted, before the tracer ran:\n\n" + "".join(boots))
    return "\n".join(parts)
