"""Numbers for display: three significant digits, fitting units, intervals."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

THIN = "\N{NARROW NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"
FIXED = "\N{NO-BREAK SPACE}"


def number(value: float | None, absent: str = "–") -> str:
    """Format a number: three significant digits, whole numbers from 100 on, thousands separated."""
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
    """Format seconds in a unit that fits, from ns to h."""
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
    """Format a share in per cent; 0 % and 100 % are shown only for exact values."""
    if value is None or not math.isfinite(value):
        return absent
    value = round(value, 12)  # sums of shares have rounding errors
    if value in (0, 1):
        return f"{100 * value:.0f}{THIN}%"
    text = f"{100 * value:.{digits}f}"
    if float(text) in (0, 100):  # try one more digit before '<' or '>'
        text = f"{100 * value:.{max(digits, 1)}f}"
    # Rounding must not claim that everything, or nothing, was reached.
    if float(text) >= 100 and value < 1:
        return f">{99.9:.{max(digits, 1)}f}{THIN}%"
    if float(text) == 0:
        least = f"{0.1:.{max(digits, 1)}f}{THIN}%"
        return f"<{least}" if value > 0 else f">{MINUS}{least}"
    return f"{text.replace('-', MINUS)}{THIN}%"


def gain(value: float | None, absent: str = "–") -> str:
    """Format a share that can be negative in per cent, rounded to one decimal."""
    if value is None or not math.isfinite(value):
        return absent
    return f"{100 * value:.1f}{THIN}%".replace("-0.0", "0.0").replace("-", MINUS)


def ratio(value: float | None, absent: str = "–") -> str:
    """Format a ratio: three decimals from 0.1 to 10, else three significant digits."""
    if value is None or not math.isfinite(value):
        return absent
    return f"{value:.3f}" if 0.1 <= value < 10 else number(value)


def interval(bounds: Sequence[float | None] | None, form: str = "number") -> str:
    """Format bounds in brackets; ``form`` is the name of this module's function for each bound."""
    if bounds is None or all(bound is None for bound in bounds):
        return ""
    low, high = (_FORMS[form](bound, absent="∞") for bound in bounds)
    return f"[{low},{FIXED}{high}]"


def bounds(figure: Mapping[str, float | None], form: str = "number") -> str:
    """Format the bounds ``low`` and ``high`` of a figure in brackets."""
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
    """Shorten a text to ``width`` characters; it then ends with an ellipsis."""
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def cut_front(text: str, width: int) -> str:
    """Shorten a text to its last ``width`` characters; it then begins with an ellipsis."""
    return text if len(text) <= width else "…" + text[len(text) - width + 1 :].lstrip()


def task_label(name: str, chars: int) -> str:
    """Return a short label of a task: its workload and the numbers that identify it.

    Words among the arguments (layouts, data types), a template's suffix and a batch of one are
    left out. A hash is shortened to its beginning. A convolution's stride follows its workload if
    it is not 1. If the label is too long, the workload is cut first, then the end.
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
        if len(" ".join([workload, *shapes])) > chars:  # The loops say more than the hash.
            workload, shapes = workload[:4], [part for part in shapes if part != "1"]
    # The arguments of fused operators are all tensors: a single number is the length of one.
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
    """Whether a workload's name is a hash, as Ansor gives it to unnamed workloads."""
    return re.fullmatch("[0-9a-f]{32}", workload) is not None


def main_operator(workload: str) -> str:
    """Return the main operator of a fused name, which joins operators by ``+``."""
    parts = workload.split("+")
    main = re.compile("conv|matmul|dense|gemm|pool|softmax")
    return next(filter(main.search, parts), parts[0])


def listed(names: Sequence[str]) -> str:
    """Join names as in a sentence: ``a, b and c``."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
