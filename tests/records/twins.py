"""Codec, map of keys, columns and packing: compiled where they were, and as plain Python."""

from importlib.machinery import EXTENSION_SUFFIXES, SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

from waystation.records import codec, columns, keys, packing

FOLDER = Path(codec.__file__).parent


def _pure(name: str) -> ModuleType:
    loader = SourceFileLoader(f"waystation.records.pure_{name}", str(FOLDER / f"{name}.py"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def is_compiled(module: ModuleType) -> bool:
    return str(module.__file__).endswith(tuple(EXTENSION_SUFFIXES))


PURE = _pure("codec")
TWINS = [codec, PURE] if is_compiled(codec) else [PURE]
KEYS_TWINS = [keys, _pure("keys")] if is_compiled(keys) else [_pure("keys")]
COLUMNS_TWINS = [columns, _pure("columns")] if is_compiled(columns) else [_pure("columns")]
PACKING_TWINS = [packing, _pure("packing")] if is_compiled(packing) else [_pure("packing")]
NAMES = ["compiled", "pure"] if is_compiled(codec) else ["pure"]
