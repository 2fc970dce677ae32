"""A thread that does one thing after the other."""

from waystation.storage.worker import Worker


def test_everything_given_before_the_end_is_done_in_order() -> None:
    done: list[int] = []
    worker = Worker("test")
    for number in range(100):
        worker.submit(lambda number=number: done.append(number))
    worker.close()

    assert done == list(range(100))


def test_what_comes_after_the_end_is_left_undone() -> None:
    done: list[int] = []
    worker = Worker("test")
    worker.close()
    worker.submit(lambda: done.append(1))
    worker.close()

    assert done == []
