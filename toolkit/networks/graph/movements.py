"""The effect of a chain of transposes and reshapes: it reads the source in another order.

The order is a list of factors of the source's extents, each with its stride.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from toolkit.networks.graph.functions import extents, named

TRANSPOSE, CONCATENATE = "relax.permute_dims", "relax.concat"
SLICE = "relax.strided_slice"

Factor = tuple[int, int]
"""Extent and stride, in elements of the source."""


@dataclass(frozen=True)
class Movement:
    """The extents ``before`` and ``after``, and the source's factors in each axis of the result.

    The factors of an axis are listed outermost first.
    """

    before: list[int]
    after: list[int]
    axes: list[list[Factor]]

    def factors(self) -> list[Factor]:
        """Return all factors, in the result's order."""
        return _merged([one for axis in self.axes for one in axis])

    def order(self) -> list[int]:
        """Return the positions in the result of the source's factors, in the source's order."""
        factors = self.factors()
        return sorted(range(len(factors)), key=lambda at: -factors[at][1])

    def transposes(self) -> bool:
        """Return whether any factor moved; if not, the chain is a reshape."""
        return self.order() != list(range(len(self.factors())))

    def apart(self) -> tuple[Movement, list[int]]:
        """Return a movement with axes in the source's order, and the transpose to do after it."""
        innermost, keys = max(self.before, default=1) * _stride([*self.before, 1], 0) + 1, []
        for axis in self.axes:
            innermost = min((stride for _, stride in axis), default=innermost)
            keys.append(innermost)
        order = sorted(range(len(keys)), key=lambda at: -keys[at])
        inner = [self.after[at] for at in order], [self.axes[at] for at in order]
        return Movement(self.before, *inner), inverse(order)

    def as_transpose(self) -> list[int] | None:
        """Return the axes of a single transpose that does the same; ``None`` if there is none."""
        strides = {_stride(self.before, at): at for at, one in enumerate(self.before) if one > 1}
        ones, axes = [at for at, extent in enumerate(self.before) if extent == 1], []
        for extent, axis in zip(self.after, self.axes, strict=True):
            if not axis and ones:
                axes.append(ones.pop(0))
                continue
            at = strides.get(axis[0][1]) if len(axis) == 1 else None
            if at is None or self.before[at] != extent:
                return None
            axes.append(at)
        return axes if sorted(axes) == list(range(len(self.before))) else None

    def steps(self) -> list[tuple[Any, list[int]]]:
        """Return operators that do the same, with their arguments; at most one is a transpose."""
        if not self.transposes():
            return [] if self.before == self.after else [(relax.op.reshape, self.after)]
        whole = self.as_transpose()
        if whole is not None:
            return [(relax.op.permute_dims, whole)]
        steps: list[tuple[Any, list[int]]] = []
        order, moved = self.order(), [extent for extent, _ in self.factors()]
        grouped = [moved[at] for at in order]
        axes = inverse(order)
        if grouped == [one for one in self.before if one > 1]:
            ones = [at for at, one in enumerate(self.before) if one == 1]
            others = [at for at, one in enumerate(self.before) if one > 1]
            axes, moved = [*ones, *(others[at] for at in axes)], [1] * len(ones) + moved
        else:
            steps.append((relax.op.reshape, grouped))
        steps.append((relax.op.permute_dims, axes))
        if moved != self.after:
            steps.append((relax.op.reshape, self.after))
        return steps

    def pieces(self) -> list[list[tuple[int, int, int]]]:
        """Return the factors of each axis of the result, each within one axis of the source.

        A piece is the source's axis, its extent, and its stride there, outermost first.
        """
        return [[piece for one in axis for piece in self._within(one)] for axis in self.axes]

    def _within(self, factor: Factor) -> list[tuple[int, int, int]]:
        extent, stride = factor
        pieces = []
        for axis, whole in enumerate(self.before):
            inner = _stride(self.before, axis)
            low, high = max(stride, inner), min(extent * stride, whole * inner)
            if low < high:
                pieces.append((axis, high // low, low // inner))
        return pieces

    def undone(self, array: Any) -> Any:
        """Return the array, which broadcasts to the result, as it is before the movement."""
        whole = np.broadcast_to(array, self.after)
        if not prod(self.before):
            return whole.reshape(self.before)
        moved = [extent for extent, _ in self.factors()]
        source = whole.reshape(moved).transpose(self.order()).reshape(self.before)
        for axis in range(source.ndim):
            first = source.take([0], axis)
            if np.array_equal(np.broadcast_to(first, source.shape), source):
                source = first
        return source


def axes_of(call: Any) -> list[int]:
    """Return the axes of a transpose; reversed order if it names none."""
    axes = call.attrs.axes
    return list(range(call.ty.ndim))[::-1] if axes is None else [int(one) for one in axes]


def inverse(axes: Sequence[int]) -> list[int]:
    """Return the transpose that undoes ``axes``."""
    return sorted(range(len(axes)), key=lambda at: axes[at])


def _stride(shape: list[int], axis: int) -> int:
    return prod(shape[axis + 1 :])


def movement_of(before: list[int], chain: Sequence[Any]) -> Movement | None:
    """Return the effect of calls one after another; ``None`` if extents do not align."""
    axes = [[(one, _stride(before, at))] if one > 1 else [] for at, one in enumerate(before)]
    after = before
    for call in chain:
        after = extents(call)
        if named(call) == TRANSPOSE:
            axes = [axes[axis] for axis in axes_of(call)]
            continue
        grouped = _grouped([one for axis in axes for one in axis], after)
        if grouped is None:
            return None
        axes = grouped
    return Movement(before, after, [_merged(axis) for axis in axes])


def _grouped(factors: list[Factor], shape: Sequence[int]) -> list[list[Factor]] | None:
    """Group factors by the axes of a new shape; split a factor that crosses the end of an axis."""
    left, axes = factors[::-1], []
    for extent in shape:
        axis: list[Factor] = []
        while (lacking := extent // prod(one for one, _ in axis)) > 1:
            if not left:
                return None
            whole, stride = left.pop()
            if lacking % whole == 0:
                axis.append((whole, stride))
            elif whole % lacking == 0:
                axis.append((lacking, stride * (whole // lacking)))
                left.append((whole // lacking, stride))
            else:
                return None
        axes.append(axis)
    return None if left else axes


def _merged(factors: list[Factor]) -> list[Factor]:
    merged = factors[:1]
    for inner in factors[1:]:
        outer = merged[-1]
        if outer[1] == inner[0] * inner[1]:
            merged[-1] = (outer[0] * inner[0], inner[1])
        else:
            merged.append(inner)
    return merged


Window = list[tuple[int, int, int]]
"""Begin, end and step (at least 1) of the part that is kept along each axis."""


def whole(shape: Sequence[int]) -> Window:
    """Return the window that keeps everything."""
    return [(0, extent, 1) for extent in shape]


def window_of(call: Any) -> Window | None:
    """Return the window that a slice keeps; ``None`` if it goes backwards."""
    shape = extents(call.args[0])
    axes, begins, ends, *rest = ([int(one.value) for one in each.fields] for each in call.args[1:])
    window = whole(shape)
    for axis, low, high, step in zip(axes, begins, ends, *rest or [[1] * len(axes)], strict=True):
        if step < 1:
            return None
        extent = shape[axis]
        low, high = (min(max(one + extent * (one < 0), 0), extent) for one in (low, high))
        window[axis] = low, high, step
    return window


@dataclass(frozen=True)
class Box:
    """A box that is read from a tensor: its start and steps there, and its place in the result.

    ``at`` is begin and end along each axis of the tensor that contains the box.
    """

    source: Any
    begin: list[int]
    step: list[int]
    at: list[tuple[int, int]]

    def moved(self, axis: int, offset: int) -> Box:
        """Return the same box, moved along an axis."""
        at = list(self.at)
        at[axis] = at[axis][0] + offset, at[axis][1] + offset
        return Box(self.source, self.begin, self.step, at)

    def cut(self, window: Window) -> Box | None:
        """Return the part that a window keeps, placed within the window; ``None`` if empty."""
        begin, step, at = [], [], []
        for old, stride, (first, last), (low, high, by) in zip(
            self.begin, self.step, self.at, window, strict=True
        ):
            kept = max(-((low - first) // by), 0), -((low - min(last, high)) // by)
            if kept[0] >= kept[1]:
                return None
            begin.append(old + (low + kept[0] * by - first) * stride)
            step.append(stride * by)
            at.append(kept)
        return Box(self.source, begin, step, at)


def box_of(tensor: Any) -> Box:
    """Return the box that is all of a tensor."""
    shape = extents(tensor)
    at = [(0, extent) for extent in shape]
    return Box(tensor, [0] * len(shape), [1] * len(shape), at)


Index = tuple[int, list[tuple[int, int]]]
"""Position along an axis: an offset, and the loops that add to it, each with its step."""


@dataclass(frozen=True)
class Copy:
    """A loop nest that copies one input: extents of the loops, and where it reads and writes.

    Each axis of the input and of the output has an index.
    """

    source: Any
    loops: list[int]
    read: list[Index]
    write: list[Index]


def copies_of(boxes: Sequence[Box], movement: Movement, window: Window) -> list[Copy] | None:
    """Return copies for the part of a movement that a window keeps; its source consists of boxes.

    ``None`` if a box or the window ends within a factor, or if the window has steps.
    """
    if any(step > 1 for *_, step in window):
        return None
    copies = [_copy_of(one, movement, [(low, high) for low, high, _ in window]) for one in boxes]
    return None if None in copies else [one for one in copies if one and min(one.loops, default=1)]


def _copy_of(box: Box, movement: Movement, window: list[tuple[int, int]]) -> Copy | None:
    """Return the copy of a box, with a loop of no steps if it is outside the window."""
    reads: list[Index] = [(begin, []) for begin in box.begin]
    writes: list[Index] = []
    loops: list[int] = []
    for (low, high), pieces in zip(window, movement.pieces(), strict=True):
        step, index, offset = prod(extent for _, extent, _ in pieces), [], -low
        for place, (of, extent, stride) in enumerate(pieces):
            step //= extent
            bounds = [(0, extent, 1)]
            if place == 0:
                bounds.append((low, high, step))
            is_outermost = extent * stride == movement.before[of]
            if is_outermost:
                bounds.append((*box.at[of], stride))
            if any(begin % unit or end % unit for begin, end, unit in bounds):
                return None
            first = max(begin // unit for begin, _, unit in bounds)
            last = min(end // unit for _, end, unit in bounds)
            by = box.step[of]
            ahead = first * stride - is_outermost * box.at[of][0]
            reads[of] = reads[of][0] + ahead * by, reads[of][1]
            offset += first * step
            if last - first != 1:
                reads[of][1].append((len(loops), stride * by))
                index.append((len(loops), step))
                loops.append(max(last - first, 0))
        writes.append((offset, index))
    return Copy(box.source, loops, reads, writes)
