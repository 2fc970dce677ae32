from types import ModuleType

import pytest

from tests.records.twins import NAMES, TWINS
from waystation.records import batch


@pytest.fixture(params=TWINS, ids=NAMES)
def codec(request: pytest.FixtureRequest) -> ModuleType:
    """Each twin of the record codec."""
    twin: ModuleType = request.param
    return twin


@pytest.fixture(params=TWINS, ids=NAMES)
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Batches are built and read by each twin in turn."""
    twin: ModuleType = request.param
    monkeypatch.setattr(batch, "record_codec", twin)
    return twin
