# C types for columns.py, as codec.pxd has them for codec.py.
#
# Bounds checks are off: `begin` and `begin_plain` have every record located, which proves that its
# parts lie in the payload, in the same call that keeps the payload; buffers are lengthened before
# they are filled by as much as `_fitting` counted.

cimport cython

cdef Py_ssize_t _FIELDS
cdef Py_ssize_t _BATCH_FIELDS
cdef Py_ssize_t _KIND
cdef Py_ssize_t _ATTRIBUTES_AT
cdef Py_ssize_t _BASE_TIMESTAMP_AT
cdef int _LOG_APPEND_TIME
cdef Py_ssize_t _OFFSET
cdef Py_ssize_t _TIMESTAMP
cdef Py_ssize_t _KEY_AT
cdef Py_ssize_t _KEY_BYTES
cdef Py_ssize_t _VALUE_BYTES
cdef Py_ssize_t _ROW_BYTES
cdef long long _MICROS
cdef long long _LATEST_MS
cdef long long _EARLIEST_MS

@cython.locals(index=cython.Py_ssize_t, at=cython.Py_ssize_t)
cdef int _date(
    long long[::1] places, Py_ssize_t first, Py_ssize_t count, long long timestamp, bint appended,
) except -1

@cython.locals(
    number=cython.Py_ssize_t, row=cython.Py_ssize_t, at=cython.Py_ssize_t, appended=cython.bint,
    timestamp=cython.longlong,
)
cdef int _date_batches(
    const unsigned char[::1] window, long long[::1] places, long long[::1] batches,
    Py_ssize_t found,
) except -1

@cython.locals(value=cython.longlong, place=cython.int)
cdef inline long long _long(const unsigned char[::1] window, Py_ssize_t at) noexcept

@cython.locals(first=cython.Py_ssize_t, stop=cython.Py_ssize_t)
cdef (Py_ssize_t, Py_ssize_t) _within(
    long long[::1] places, Py_ssize_t count, long long start, long long end,
) noexcept

@cython.locals(
    key_bytes=cython.Py_ssize_t, value_bytes=cython.Py_ssize_t, size_bytes=cython.Py_ssize_t,
    index=cython.Py_ssize_t, at=cython.Py_ssize_t, key=cython.Py_ssize_t, value=cython.Py_ssize_t,
    size=cython.Py_ssize_t,
)
cdef (Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t) _fitting(
    long long[::1] places, Py_ssize_t first, Py_ssize_t stop, Py_ssize_t room_rows,
    Py_ssize_t room_bytes, bint is_empty, bint with_keys, bint with_values, bint with_headers,
) noexcept

@cython.locals(index=cython.Py_ssize_t)
cdef int _fill_offsets(
    long long[::1] places, Py_ssize_t first, Py_ssize_t stop, long long[::1] offsets,
    Py_ssize_t row,
) except -1

@cython.locals(index=cython.Py_ssize_t, time=cython.longlong)
cdef int _fill_times(
    long long[::1] places, Py_ssize_t first, Py_ssize_t stop, long long[::1] times,
    Py_ssize_t row,
) except -1

@cython.locals(index=cython.Py_ssize_t)
cdef int _fill_kinds(
    long long[::1] places, Py_ssize_t first, Py_ssize_t stop, int[::1] kinds, Py_ssize_t row,
) except -1

@cython.locals(
    index=cython.Py_ssize_t, place=cython.Py_ssize_t, length=cython.Py_ssize_t,
    at=cython.Py_ssize_t, nulls=cython.Py_ssize_t,
)
cdef Py_ssize_t _fill_bytes(
    const unsigned char[::1] text, long long[::1] places, Py_ssize_t first, Py_ssize_t stop,
    bint is_key, unsigned char[::1] bits, int[::1] ends, unsigned char[::1] content,
    Py_ssize_t row, Py_ssize_t to,
) except -1

@cython.locals(place=cython.Py_ssize_t)
cdef inline int _copy(
    const unsigned char[::1] text, Py_ssize_t at, Py_ssize_t length, unsigned char[::1] content,
    Py_ssize_t to,
) noexcept

@cython.locals(at=cython.Py_ssize_t)
cdef inline Py_ssize_t _value_at(
    const unsigned char[::1] text, Py_ssize_t key_at, Py_ssize_t key_bytes,
) noexcept

@cython.locals(
    index=cython.Py_ssize_t, place=cython.Py_ssize_t, length=cython.Py_ssize_t,
    count=cython.Py_ssize_t, at=cython.Py_ssize_t, nulls=cython.Py_ssize_t, _=cython.Py_ssize_t,
)
cdef Py_ssize_t _fill_headers(
    const unsigned char* text, const unsigned char[::1] view, long long[::1] places,
    Py_ssize_t first, Py_ssize_t stop, unsigned char[::1] bits, ends, names, values,
    Py_ssize_t row,
) except -1

@cython.locals(raw=cython.ulonglong, byte=cython.ulonglong, shift=cython.int)
cdef inline (Py_ssize_t, Py_ssize_t) _number(const unsigned char[::1] view, Py_ssize_t at) noexcept
