"""Numbers for people: three significant digits, units that fit, intervals beside values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

THIN = "\N{NARROW NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"
FIXED = "\N{NO-BREAK SPACE}"


def number(value: float | None, absent: str = "–") -> str:
    """Three significant digits, whole numbers from 100 on, thousands separated."""
    if value is None or not math.isfinite(value):
        return absent
    if value == int(value) and abs(value) < 1e15:
        text = f"{int(value):,}"
    elif abs(value) >= 100:
        text = f"{value:,.0f}"
    elif abs(value) < 1e-3:
        text = f"{value:.3g}"
    else:
        text = f"{value:#.3g}".rstrip(".")
    return text.replace("-", MINUS, 1) if value < 0 else text


def seconds(value: float | None, absent: str = "–") -> str:
    """Turn seconds into the unit that keeps the number between 1 and 1,000."""
    if value is None or not math.isfinite(value):
        return absent
    if value == 0:
        return f"0{THIN}s"
    for scale, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs"), (1e9, "ns")):
        if abs(value) * scale >= 1 or unit == "ns":
            break
    if unit != "s":
        return f"{number(float(f'{value * scale:.4g}'))}{THIN}{unit}"
    if value < 120:
        return f"{number(float(f'{value:.3g}'))}{THIN}s"
    if value < 7200:
        return f"{number(float(f'{value / 60:.3g}'))}{THIN}min"
    return f"{number(float(f'{value / 3600:.3g}'))}{THIN}h"


def percent(value: float | None, digits: int = 1, absent: str = "–") -> str:
    """Turn a share into per cent; 100 % and 0 % are exact, beside them there is a digit more."""
    if value is None or not math.isfinite(value):
        return absent
    value = round(value, 12)  # sums of shares
    if value in (0, 1):
        return f"{100 * value:.0f}{THIN}%"
    text = f"{100 * value:.{digits}f}"
    if float(text) in (0, 100):  # a digit more before it is said in words
        text = f"{100 * value:.{max(digits, 1)}f}"
    # Rounding must not claim that everything, or nothing, was reached.
    if float(text) >= 100 and value < 1:
        return f">{99.9:.{max(digits, 1)}f}{THIN}%"
    if float(text) == 0:
        least = f"{0.1:.{max(digits, 1)}f}{THIN}%"
        return f"<{least}" if value > 0 else f">{MINUS}{least}"
    return f"{text.replace('-', MINUS)}{THIN}%"


def gain(value: float | None, absent: str = "–") -> str:
    """Turn a share that can be negative into per cent, rounded without further ado."""
    if value is None or not math.isfinite(value):
        return absent
    return f"{100 * value:.1f}{THIN}%".replace("-0.0", "0.0").replace("-", MINUS)


def ratio(value: float | None, absent: str = "–") -> str:
    """Three decimals near 1, three digits far from it."""
    if value is None or not math.isfinite(value):
        return absent
    return f"{value:.3f}" if 0.1 <= value < 10 else number(value)


def interval(bounds: Sequence[float | None] | None, form: str = "number") -> str:
    """Bounds in brackets; ``form`` is the name of a function of this module that writes a value."""
    if bounds is None or all(bound is None for bound in bounds):
        return ""
    low, high = (_FORMS[form](bound, absent="∞") for bound in bounds)
    return f"[{low},{FIXED}{high}]"


def bounds(figure: Mapping[str, float | None], form: str = "number") -> str:
    """Bounds ``low`` and ``high`` of a figure in brackets."""
    return interval([figure["low"], figure["high"]], form)


_FORMS: dict[str, Callable[..., str]] = {
    "number": number,
    "seconds": seconds,
    "percent": percent,
    "gain": gain,
    "ratio": ratio,
}


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def cut(text: str, width: int) -> str:
    """Shorten a text to so many characters; what is left out is marked by an ellipsis."""
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def cut_front(text: str, width: int) -> str:
    """Shorten a text to the last of its characters."""
    return text if len(text) <= width else "…" + text[len(text) - width + 1 :].lstrip()


def task_label(name: str, chars: int) -> str:
    """Short label of a task: its workload and the numbers that tell it apart.

    Words among the arguments (layouts, data types), a template's suffix and a batch of one are
    left out, and of a hash all but its beginning. A convolution's stride stands behind its
    workload, where it is not 1. Of what is too long the workload is cut first, then the end.
    """
    workload, _, rest = name.partition("(")
    if ":" in workload:
        # Names given by 'toolkit collect' hold all numbers that matter.
        name, numbers = workload.split(":", 1)
        if len(workload) > chars:
            name = name[: max(6, chars - 1 - len(numbers))].rstrip("_")
        return cut(f"{name} {numbers}", chars)
    arguments = [part for part in rest.rstrip(")").split(",") if part[:1].isdigit()]
    shapes = [part.removeprefix("1x") for part in arguments if "x" in part] or arguments
    workload = workload.removesuffix(".x86").removesuffix(".cuda")
    scalars = [part for part in arguments if "x" not in part]
    if is_hash(workload):
        workload = workload[:8]
        if len(" ".join([workload, *shapes])) > chars:  # It is the loops that tell something.
            workload, shapes = workload[:4], [part for part in shapes if part != "1"]
    # The arguments of fused operators are all tensors: a lone number is the length of one.
    told = "conv" in workload and "+" not in workload and len(scalars) > 1
    strided = f"/{scalars[0]}" if told and scalars[0] != "1" and shapes is not arguments else ""
    text = " ".join([workload + strided, *shapes])
    if len(text) > chars and shapes:
        anchor = main_operator(workload)
        begun = [anchor[:kept].rstrip("_") + strided for kept in (max(6, chars // 3), 6, 4)]
        fits = [one for one in begun if len(" ".join([one, *shapes[:2]])) <= chars]
        text = " ".join([next(iter(fits), begun[1]), *shapes])
    return cut(text, chars)


def is_hash(workload: str) -> bool:
    """Whether a workload's name is a hash: Ansor's are, where it was not given one."""
    return re.fullmatch("[0-9a-f]{32}", workload) is not None


def main_operator(workload: str) -> str:
    """Of the operators that a name joins by ``+`` that for which the others were fused."""
    parts = workload.split("+")
    main = re.compile("conv|matmul|dense|gemm|pool|softmax")
    return next(filter(main.search, parts), parts[0])


def listed(names: Sequence[str]) -> str:
    """Join names as a sentence does."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
