from types import ModuleType

import pytest

from tests.filters.twins import NAMES, TWINS
from waystation.filters import narrowing, selecting


@pytest.fixture(params=TWINS, ids=NAMES)
def picking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Filters pick by each twin in turn."""
    twin: ModuleType = request.param
    monkeypatch.setattr(selecting, "picking", twin)
    monkeypatch.setattr(narrowing, "picking", twin)
    return twin
