"""What ``import waystation`` gives, and what it does not cost."""

import subprocess
import sys

import pytest

import waystation


def test_every_public_name_is_there() -> None:
    for name in waystation.__all__:
        assert getattr(waystation, name) is not None


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Broker"):
        _ = waystation.Broker  # type: ignore[attr-defined]


def test_importing_the_package_imports_nothing_else() -> None:
    script = (
        "import sys; before = set(sys.modules); import waystation; "
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "['waystation', 'waystation.version']"
