"""The record codec, compiled where it was compiled, and always as plain Python."""

from importlib.machinery import EXTENSION_SUFFIXES, SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

from waystation.records import codec

FOLDER = Path(codec.__file__).parent


def _pure() -> ModuleType:
    loader = SourceFileLoader("waystation.records.pure_codec", str(FOLDER / "codec.py"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def is_compiled(module: ModuleType) -> bool:
    return str(module.__file__).endswith(tuple(EXTENSION_SUFFIXES))


PURE = _pure()
TWINS = [codec, PURE] if is_compiled(codec) else [PURE]
NAMES = ["compiled", "pure"] if is_compiled(codec) else ["pure"]
