# C types for keys.py, as codec.pxd has them for codec.py.
#
# Bounds checks are off: `_check_range` compares every key with the payload before one is read,
# a slot is found modulo their number, and the counts were compared with the lengths of arrays.

cimport cython

cdef Py_ssize_t _FIELDS
cdef Py_ssize_t _BATCH_FIELDS
cdef Py_ssize_t _OFFSET
cdef Py_ssize_t _TIMESTAMP
cdef Py_ssize_t _KEY_AT
cdef Py_ssize_t _KEY_BYTES
cdef Py_ssize_t _VALUE_BYTES
cdef unsigned long long _WORD
cdef unsigned long long _HALF
cdef Py_ssize_t _PILES
cdef unsigned long long _PILE_MASK
cdef unsigned long long _A
cdef unsigned long long _B
cdef unsigned long long _C
cdef unsigned long long _D

cdef class KeyMap:
    cdef unsigned long long _slots
    cdef unsigned long long[::1] _table
    cdef unsigned long long[::1] _hashes
    cdef unsigned long long _first_secret
    cdef unsigned long long _second_secret
    cdef public Py_ssize_t count
    cdef public Py_ssize_t limit

    @cython.locals(
        at=cython.Py_ssize_t, index=cython.Py_ssize_t, slot=cython.Py_ssize_t,
        offset=cython.longlong, low=cython.ulonglong, high=cython.ulonglong,
    )
    cpdef Py_ssize_t note(
        self, const unsigned char[::1] payload, long long[::1] places, Py_ssize_t count,
        long long since,
    ) except -1

    @cython.locals(
        at=cython.Py_ssize_t, to=cython.Py_ssize_t, field=cython.Py_ssize_t,
        index=cython.Py_ssize_t, slot=cython.Py_ssize_t, offset=cython.longlong,
        kept=cython.Py_ssize_t, tombstones=cython.Py_ssize_t, newest=cython.longlong,
        stays=cython.bint, is_tombstone=cython.bint,
    )
    cpdef tuple sift(
        self, const unsigned char[::1] payload, long long[::1] places, Py_ssize_t count,
        long long upto, bint drop_tombstones,
    )

    @cython.locals(
        number=cython.Py_ssize_t, row=cython.Py_ssize_t, at=cython.Py_ssize_t,
        stop=cython.Py_ssize_t, to=cython.Py_ssize_t, field=cython.Py_ssize_t,
        kept=cython.bint, gone=cython.bint,
    )
    cpdef Py_ssize_t judge(
        self, const unsigned char[::1] window, long long[::1] places, long long[::1] batches,
        Py_ssize_t count, long long upto, long long end, dict last_of,
    ) except -1

    @cython.locals(low=cython.ulonglong, high=cython.ulonglong)
    cdef inline bint _is_last(
        self, const unsigned char[::1] payload, long long[::1] places, Py_ssize_t at,
    ) noexcept

    @cython.locals(
        at=cython.Py_ssize_t, index=cython.Py_ssize_t, low=cython.ulonglong, high=cython.ulonglong,
    )
    cdef int _hash_all(
        self, const unsigned char[::1] payload, long long[::1] places, Py_ssize_t count,
    ) except -1

    @cython.locals(slot=cython.ulonglong, end=cython.ulonglong)
    cdef Py_ssize_t _find(self, unsigned long long low, unsigned long long high) noexcept

@cython.locals(first=cython.ulonglong, second=cython.ulonglong)
cpdef Py_ssize_t note_records(
    const unsigned char[::1] payload, long long[::1] places, Py_ssize_t count,
    unsigned long long position, tuple secret, unsigned long long[::1] entries, Py_ssize_t to,
) except -1

@cython.locals(
    first=cython.ulonglong, second=cython.ulonglong, number=cython.Py_ssize_t,
    row=cython.Py_ssize_t, at=cython.Py_ssize_t, stop=cython.Py_ssize_t,
)
cpdef Py_ssize_t note_batches(
    const unsigned char[::1] window, long long[::1] places, long long[::1] batches,
    Py_ssize_t count, unsigned long long position, tuple secret,
    unsigned long long[::1] entries, Py_ssize_t to,
) except -1

@cython.locals(low=cython.ulonglong)
cdef Py_ssize_t _note_entries(
    const unsigned char[::1] view, long long[::1] places, Py_ssize_t at, Py_ssize_t stop,
    unsigned long long position, unsigned long long first, unsigned long long second,
    unsigned long long[::1] entries, Py_ssize_t to,
) noexcept

cpdef sort_pass(
    unsigned long long[::1] source, unsigned long long[::1] target, Py_ssize_t count, int shift,
)

@cython.locals(
    index=cython.Py_ssize_t, pile=cython.Py_ssize_t, start=cython.longlong, size=cython.longlong,
)
cdef int _sort_pass(
    unsigned long long[::1] source, unsigned long long[::1] target, Py_ssize_t count, int shift,
    long long[::1] starts,
) noexcept

@cython.locals(
    shift=cython.int, bucket=cython.ulonglong, wanted=cython.ulonglong, index=cython.Py_ssize_t,
)
cpdef count_buckets(
    unsigned long long[::1] entries, Py_ssize_t count, int bits, unsigned int[::1] ends,
)

@cython.locals(index=cython.Py_ssize_t, entry=cython.ulonglong, found=list)
cpdef list scan_entries(
    unsigned long long[::1] entries, Py_ssize_t count, unsigned long long wanted,
    unsigned long long since,
)

cdef int _check_range(
    long long[::1] places, Py_ssize_t at, Py_ssize_t stop, Py_ssize_t payload_bytes,
) except -1

@cython.locals(
    a=cython.ulonglong, b=cython.ulonglong, c=cython.ulonglong, d=cython.ulonglong,
    word=cython.ulonglong, byte=cython.ulonglong, low=cython.ulonglong, shift=cython.int,
    end=cython.Py_ssize_t, _=cython.int,
)
cdef inline (unsigned long long, unsigned long long) _hash(
    unsigned long long first, unsigned long long second, const unsigned char[::1] view,
    Py_ssize_t at, Py_ssize_t length,
) noexcept

@cython.locals(
    a=cython.ulonglong, b=cython.ulonglong, c=cython.ulonglong, d=cython.ulonglong,
    word=cython.ulonglong, byte=cython.ulonglong, shift=cython.int, end=cython.Py_ssize_t,
    _=cython.int,
)
cdef inline unsigned long long _brief_hash(
    unsigned long long first, unsigned long long second, const unsigned char[::1] view,
    Py_ssize_t at, Py_ssize_t length,
) noexcept

cdef inline (unsigned long long, unsigned long long, unsigned long long, unsigned long long) _round(
    unsigned long long a, unsigned long long b, unsigned long long c, unsigned long long d,
) noexcept

cdef inline unsigned long long _turned(unsigned long long word, int by) noexcept

@cython.locals(word=cython.ulonglong, byte=cython.ulonglong, place=cython.int)
cdef inline unsigned long long _word(const unsigned char[::1] view, Py_ssize_t at) noexcept
