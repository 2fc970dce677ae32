import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[2]

USE = """
import sys

sys.modules["cython"] = sys.modules["Cython"] = None  # as where it is not installed
from waystation.records import codec
from waystation.records.batch import BatchBuilder, records_of

builder = BatchBuilder()
builder.append(b"key", b"value", [("header", None)], timestamp=1)
print(codec.__file__)
print(*records_of(builder.build())[0])
"""


def test_without_a_compiler_the_same_package_installs_and_runs(tmp_path: Path) -> None:
    sources, wheels, installed = (tmp_path / name for name in ("sources", "wheels", "installed"))
    _copy_package(sources)
    environment = os.environ | {"CC": "false", "CXX": "false"}
    wheel = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(sources)]
    subprocess.run([sys.executable, *wheel], env=environment, check=True)

    with ZipFile(next(wheels.glob("*.whl"))) as archive:
        names = [Path(name).name for name in archive.namelist() if "/records/" in name]
        archive.extractall(installed)
    assert {"codec.py", "codec.pxd"} <= set(names)
    assert not [name for name in names if name.endswith((".so", ".pyd", ".c"))]

    environment["PYTHONPATH"] = str(installed)
    used = subprocess.run(
        [sys.executable, "-c", USE], env=environment, check=True, capture_output=True, text=True
    )
    assert used.stdout.splitlines() == [
        str(installed / "waystation" / "records" / "codec.py"),
        "0 1 b'key' b'value' (('header', None),)",
    ]


def _copy_package(target: Path) -> None:
    """Only what the codec needs, so that nothing else can fail here."""
    package = Path("src", "waystation")
    (target / package).mkdir(parents=True)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target / name)
    for name in ("__init__.py", "version.py", "py.typed"):
        shutil.copy(ROOT / package / name, target / package / name)
    for name in ("model", "records"):
        built = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
        shutil.copytree(ROOT / package / name, target / package / name, ignore=built)
