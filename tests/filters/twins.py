"""Picking: compiled where it was, and as plain Python."""

from importlib.machinery import EXTENSION_SUFFIXES, SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

from waystation.filters import picking, values


def _pure() -> ModuleType:
    source = Path(values.__file__).parent / "picking.py"
    loader = SourceFileLoader("waystation.filters.pure_picking", str(source))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def is_compiled(module: ModuleType) -> bool:
    return str(module.__file__).endswith(tuple(EXTENSION_SUFFIXES))


PURE = _pure()
TWINS = [picking, PURE] if is_compiled(picking) else [PURE]
NAMES = ["compiled", "pure"] if is_compiled(picking) else ["pure"]
