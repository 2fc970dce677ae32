from waystation.wire.versions import SPOKEN, ApiKey, Versions


def test_ranges_are_spelled_as_kafka_spells_them() -> None:
    assert Versions.parse("4-18") == (4, 18)
    assert Versions.parse("7") == (7, 7)
    assert Versions.parse("3+").include(3)
    assert Versions.parse("3+").include(32767)
    assert not Versions.parse("3+").include(2)


def test_every_spoken_range_is_one() -> None:
    for key, spoken in SPOKEN.items():
        assert isinstance(key, ApiKey)
        assert 0 <= spoken.versions.low <= spoken.versions.high, key
