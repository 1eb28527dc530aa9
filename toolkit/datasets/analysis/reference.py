"""The reference page of the analysis, made from the docstrings and comments of ``result``."""

from __future__ import annotations

import dataclasses
import inspect
import re

from toolkit.datasets.analysis import result

_KEYS = {
    "Analysis": "`toolkit describe --json`, with `measuring_s` for "
    "`seconds` and `failures` for `states`",
    "TaskAnalysis": "each entry of `tasks`",
    "Convergence": "`tasks[].convergence`",
    "Backtest": "`backtest`",
    "StateTime": "`failures[]`; the report also has the state `ok`",
    "Noise": "`noise` and `tasks[].noise`",
    "Spread": "`noise.within`, `noise.between`",
    "Speeds": "`speeds`",
    "KnobEffect": "`tasks[].knobs[]`",
    "SketchKnob": "`knobs[]`",
    "Tuners": "`tuners`",
    "Tuner": "`tuners.tuners[]`",
    "Reached": "`tuners.tuners[].reached[]`",
}


def analysis_page() -> str:
    """Return Markdown with one section per part of the result: its definition and its fields."""
    text = [
        "# Analysis\n",
        "The figures of `toolkit describe` and the report, and their definitions.\n",
        inspect.cleandoc(result.__doc__ or "").partition("\n\n")[2] + "\n",
    ]
    for name, where in _KEYS.items():
        part = getattr(result, name)
        told = _comments(part)
        text += [f"## {name}\n", f"Where: {where}.\n", inspect.cleandoc(part.__doc__) + "\n"]
        if told:
            text += [*(f"- `{field}`: {meaning}" for field, meaning in told.items()), ""]
        rest = [f"`{field.name}`" for field in dataclasses.fields(part) if field.name not in told]
        if rest:
            text.append(f"{'Further fields' if told else 'Fields'}: {', '.join(rest)}.\n")
    return "\n".join(text).replace("``", "`")


def _comments(part: type) -> dict[str, str]:
    """Return the comments above or after the fields of a class, by field."""
    source = inspect.getsource(part)
    found = re.findall(r"^((?:    # .*\n)*)    (\w+): [^#\n]*(?:# (.*))?$", source, flags=re.M)
    told = {field: re.sub(r"\s*# ", " ", above).strip() or behind for above, field, behind in found}
    return {field: meaning for field, meaning in told.items() if meaning}
