"""Compiles what works record by record, where a C compiler is at hand.

Everything else about the package is in ``pyproject.toml``.  Each source listed here also
runs uncompiled, so a machine without a compiler installs the same package, only slower:
``cythonize()`` drops ``optional=True``, hence it is set on the result.  CFLAGS, where given, win.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import setup

COMPILED = [f"src/waystation/records/{name}.py" for name in ("codec", "columns", "keys", "packing")]
COMPILED += ["src/waystation/filters/picking.py"]

extensions = cythonize(
    [source for source in COMPILED if Path(source).exists()],
    language_level=3,
    build_dir="build",
)
for extension in extensions:
    extension.optional = True
    extension.extra_compile_args = [] if "CFLAGS" in os.environ else ["-O3", "-g0"]

setup(ext_modules=extensions)
