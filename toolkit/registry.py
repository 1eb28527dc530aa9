"""Registries of plug-ins by name; a plug-in is imported on first use.

A plug-in is an attribute ``"module:attr"``. Packages add their own under the entry point group
``tvm_tuning_toolkit.<role>``; they cannot replace the toolkit's own names.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from toolkit.errors import ToolkitError, UnknownNameError, did_you_mean


class Registry:
    """The plug-ins of one role (``strategy``, ``reader``, ``extractor``, ``model``, ...)."""

    def __init__(self, role: str, builtin: dict[str, str]) -> None:
        self.role = role
        self.builtin = frozenset(builtin)
        """The toolkit's own names."""
        self._paths = dict(builtin)
        self.added: set[str] = set()
        """Names added with ``add``: other processes do not know them."""
        self._scanned = False

    def _scan(self) -> None:
        if self._scanned:
            return
        self._scanned = True
        # Imported and scanned only when a name is not the toolkit's own.
        from importlib.metadata import entry_points

        for point in entry_points(group=f"tvm_tuning_toolkit.{self.role}"):
            self._paths.setdefault(point.name, point.value)

    def add(self, name: str, path: str) -> None:
        """Register ``module:attr`` under a name (for tests and notebooks)."""
        self._paths[name] = path
        self.added.add(name)

    def names(self) -> list[str]:
        """All known names, sorted."""
        self._scan()
        return sorted(self._paths)

    def get(self, name: str) -> Any:
        """Import and return the plug-in.

        Raises
        ------
        UnknownNameError
            When no plug-in has this name; the error suggests similar names.
        ToolkitError
            When another package's plug-in cannot be imported.
        """
        if name not in self._paths:
            self._scan()
        if name not in self._paths:
            raise UnknownNameError(
                f"no {self.role} is called {name!r}", cure=did_you_mean(name, self._paths)
            )
        module, _, attribute = self._paths[name].partition(":")
        try:
            return getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            if name in self.builtin:
                raise
            raise ToolkitError(
                f"the {self.role} {name!r} ({self._paths[name]}) cannot be imported: {error}",
                cure="repair or uninstall the package that provides it",
            ) from error
