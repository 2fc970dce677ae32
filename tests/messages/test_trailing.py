from waystation.messages.metadata import MetadataRequest


def test_bytes_behind_a_request_are_ignored() -> None:
    """What librdkafka 2.x sends when it asks for all topics: its count kept four bytes."""
    sent = bytes.fromhex("00000000000001")

    assert MetadataRequest.decode(memoryview(sent), 13).topics is None
