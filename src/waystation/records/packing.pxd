# C types for packing.py, as codec.pxd has them for codec.py.
#
# Bounds checks are off: a column proves when it is made that it has validity and ends for all its
# rows, `_fill` compares every row with their number, and contents are read only where `_length`
# found them all there.  What is written was counted first and compared with the room there is.

cimport cython

cdef Py_ssize_t _NULL
cdef Py_ssize_t _BROKEN
cdef long long _MICROS
cdef unsigned int _M
cdef unsigned int _SEED
cdef unsigned int _WORD
cdef unsigned int _POSITIVE

@cython.final
cdef class ByteRows:
    cdef const unsigned char[::1] _bits
    cdef const int[::1] _ends
    cdef const unsigned char[::1] _content
    cdef Py_ssize_t _first
    cdef bint _has_nulls

    @cython.locals(at=cython.Py_ssize_t, start=cython.Py_ssize_t, end=cython.Py_ssize_t)
    cdef inline Py_ssize_t _length(self, Py_ssize_t row) noexcept

    cdef inline int _copy(
        self, Py_ssize_t row, Py_ssize_t length, unsigned char[::1] out, Py_ssize_t to,
    ) noexcept

    cdef inline unsigned int _hash(self, Py_ssize_t row, Py_ssize_t length) noexcept

@cython.final
cdef class NumberRows:
    cdef const unsigned char[::1] _bits
    cdef const long long[::1] _numbers
    cdef Py_ssize_t _first
    cdef bint _has_nulls

    @cython.locals(at=cython.Py_ssize_t)
    cdef inline bint _is_null(self, Py_ssize_t row) noexcept

    cdef inline long long _get(self, Py_ssize_t row) noexcept

@cython.final
cdef class HeaderRows:
    cdef const unsigned char[::1] _bits
    cdef const int[::1] _ends
    cdef ByteRows _names
    cdef ByteRows _values
    cdef Py_ssize_t _members
    cdef Py_ssize_t _first
    cdef bint _has_nulls

    @cython.locals(at=cython.Py_ssize_t, start=cython.Py_ssize_t, end=cython.Py_ssize_t)
    cdef inline Py_ssize_t _count(self, Py_ssize_t row) noexcept

    @cython.locals(
        size=cython.Py_ssize_t, start=cython.Py_ssize_t, member=cython.Py_ssize_t,
        name=cython.Py_ssize_t, value=cython.Py_ssize_t,
    )
    cdef Py_ssize_t _size(self, Py_ssize_t row, Py_ssize_t count) noexcept

    @cython.locals(start=cython.Py_ssize_t, member=cython.Py_ssize_t, length=cython.Py_ssize_t)
    cdef Py_ssize_t _write(
        self, Py_ssize_t row, Py_ssize_t count, unsigned char[::1] out, Py_ssize_t to,
    ) noexcept

@cython.final
cdef class Rows:
    cdef public Py_ssize_t count
    cdef long long _now_ms
    cdef ByteRows _keys
    cdef ByteRows _values
    cdef NumberRows _times
    cdef HeaderRows _headers

cdef class RowWriter:
    cdef public bytearray out
    cdef public Py_ssize_t size_bytes
    cdef public Py_ssize_t records_count
    cdef public long long base_timestamp
    cdef public long long max_timestamp
    cdef Py_ssize_t _wanted_bytes

    @cython.locals(room_bytes=cython.Py_ssize_t)
    cpdef Py_ssize_t fill(
        self, Rows rows, const int[::1] order, Py_ssize_t first, Py_ssize_t stop,
        Py_ssize_t limit_bytes,
    ) except -1

    @cython.locals(
        keys=ByteRows, values=ByteRows, times=NumberRows, headers=HeaderRows,
        at=cython.Py_ssize_t, place=cython.Py_ssize_t, row=cython.Py_ssize_t,
        end=cython.Py_ssize_t, length=cython.Py_ssize_t, timestamp=cython.longlong,
        timestamp_delta=cython.longlong, key_bytes=cython.Py_ssize_t,
        value_bytes=cython.Py_ssize_t, header_count=cython.Py_ssize_t,
        header_bytes=cython.Py_ssize_t,
    )
    cdef Py_ssize_t _fill(
        self, Rows rows, const int[::1] order, Py_ssize_t first, Py_ssize_t stop,
        unsigned char[::1] out, Py_ssize_t limit_bytes,
    ) except -1

@cython.locals(
    keys=ByteRows, row=cython.Py_ssize_t, topic=cython.Py_ssize_t, lane=cython.Py_ssize_t,
    count=cython.Py_ssize_t, wanted=cython.longlong, length=cython.Py_ssize_t,
)
cpdef Py_ssize_t lanes_of(
    Rows rows, NumberRows partitions, const int[::1] topics, const int[::1] firsts,
    const int[::1] counts, int[::1] lanes,
) except -1

@cython.locals(
    last=cython.Py_ssize_t, lane=cython.Py_ssize_t, row=cython.Py_ssize_t, total=cython.int,
)
cpdef int in_lanes(
    const int[::1] lanes, Py_ssize_t count, int[::1] order, int[::1] starts,
) except -1

@cython.locals(
    h=cython.uint, k=cython.uint, stop=cython.Py_ssize_t, left=cython.Py_ssize_t,
)
cdef inline unsigned int _murmur2(
    const unsigned char[::1] content, Py_ssize_t at, Py_ssize_t length,
) noexcept

@cython.locals(place=cython.Py_ssize_t)
cdef inline int _copy(
    const unsigned char[::1] content, Py_ssize_t at, Py_ssize_t length, unsigned char[::1] out,
    Py_ssize_t to,
) noexcept

@cython.locals(raw=cython.ulonglong, size=cython.Py_ssize_t)
cdef inline Py_ssize_t _number_size(long long value) noexcept

cdef inline Py_ssize_t _field_size(Py_ssize_t length) noexcept

@cython.locals(raw=cython.ulonglong)
cdef inline Py_ssize_t _put_number(
    unsigned char[::1] out, Py_ssize_t at, long long value,
) noexcept
