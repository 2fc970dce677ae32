"""The options of storage that are not a topic's own."""

from dataclasses import dataclass

from waystation.model.settings import option

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    """How a data directory is opened and looked after."""

    num_recovery_threads_per_data_dir: int = option(
        2,
        at_least=1,
        at_most=64,
        doc="Threads that verify logs after a crash, per data directory.",
    )
    producer_id_expiration_ms: int = option(
        _DAY_MS,
        at_least=1,
        live=True,
        doc="Forget an idempotent producer that has been quiet for this long. Its repeated "
        "batches are no longer recognised afterwards.",
    )
    open_files_max: int = option(
        512,
        at_least=16,
        doc="How many closed segments of a data directory are kept open for readers. More "
        "spare readers of old data the opening; each costs a file descriptor.",
    )
    disk_reserve_bytes: int = option(
        4 << 20,
        at_least=0,
        doc="Space that each data directory keeps for the freeing of space: a full disk refuses "
        "batches while old ones can still be deleted. 0 keeps none, and a disk without a byte "
        "left must then be helped by hand.",
    )
    recovery_bytes_max: int = option(
        64 << 20,
        at_least=0,
        doc="About how many bytes of all logs of a data directory a crash may leave to be "
        "verified. Fewer make restarts quicker and checkpoints, five syncs each, more frequent.",
    )
