# C types for picking.py, as codec.pxd has them for codec.py.
#
# Bounds checks are off: `_check` compares every row with the places, bytes are read in `_value_at`
# and `_number` behind a comparison with the end, in `_same` where `_header` found room for a name,
# and cut where `_check_range` found them all there.

cimport cython

cdef Py_ssize_t _FIELDS
cdef Py_ssize_t _BATCH_FIELDS
cdef Py_ssize_t _ATTRIBUTES_AT
cdef Py_ssize_t _BASE_TIMESTAMP_AT
cdef unsigned char _LOG_APPEND_TIME
cdef bytes _ESCAPE
cdef Py_ssize_t _STOP
cdef Py_ssize_t _OFFSET
cdef Py_ssize_t _TIMESTAMP
cdef Py_ssize_t _KEY_AT
cdef Py_ssize_t _KEY_BYTES
cdef Py_ssize_t _VALUE_BYTES

@cython.locals(row=cython.Py_ssize_t, at=cython.Py_ssize_t)
cpdef int date(
    long long[::1] places, Py_ssize_t first, Py_ssize_t stop, long long base, long long append_time,
) except -1

@cython.locals(
    end=cython.Py_ssize_t, number=cython.Py_ssize_t, row=cython.Py_ssize_t, at=cython.Py_ssize_t,
    appended=cython.longlong, base=cython.longlong,
)
cpdef date_batches(bytes text, long long[::1] places, long long[::1] batches, Py_ssize_t found)

@cython.locals(row=cython.Py_ssize_t, found=list)
cpdef list offsets(long long[::1] places, rows)

@cython.locals(row=cython.Py_ssize_t, number=cython.longlong, found=list)
cpdef list times(long long[::1] places, rows)

@cython.locals(row=cython.Py_ssize_t, found=list)
cpdef list have_keys(long long[::1] places, rows)

@cython.locals(row=cython.Py_ssize_t, found=list)
cpdef list have_values(long long[::1] places, rows)

@cython.locals(row=cython.Py_ssize_t, at=cython.Py_ssize_t, end=cython.Py_ssize_t, found=list)
cpdef list keys(bytes text, long long[::1] places, rows)

@cython.locals(row=cython.Py_ssize_t, at=cython.Py_ssize_t, end=cython.Py_ssize_t, found=list)
cpdef list values(bytes text, long long[::1] places, rows)

@cython.locals(
    row=cython.Py_ssize_t, at=cython.Py_ssize_t, start=cython.Py_ssize_t, size=cython.Py_ssize_t,
    end=cython.Py_ssize_t, found=list,
)
cpdef list contents(bytes text, long long[::1] places, rows)

@cython.locals(
    row=cython.Py_ssize_t, start=cython.Py_ssize_t, size=cython.Py_ssize_t, end=cython.Py_ssize_t,
    wanted=cython.Py_ssize_t, found=list,
)
cpdef list headers(bytes text, long long[::1] places, rows, bytes name)

@cython.locals(
    row=cython.Py_ssize_t, _=cython.Py_ssize_t, size=cython.Py_ssize_t, end=cython.Py_ssize_t,
    wanted=cython.Py_ssize_t, found=list,
)
cpdef list have_headers(bytes text, long long[::1] places, rows, bytes name)

@cython.locals(
    row=cython.Py_ssize_t, at=cython.Py_ssize_t, start=cython.Py_ssize_t, stop=cython.Py_ssize_t,
    here=cython.Py_ssize_t, there=cython.Py_ssize_t, end=cython.Py_ssize_t,
    size=cython.Py_ssize_t, found=list,
)
cpdef list holding(bytes text, long long[::1] places, rows, bytes needle)

@cython.locals(
    row=cython.Py_ssize_t, at=cython.Py_ssize_t, field=cython.Py_ssize_t, latest=cython.longlong,
    first=cython.bint,
)
cpdef long long bring_forward(long long[::1] places, rows, Py_ssize_t to) except? -1

@cython.locals(row=cython.Py_ssize_t, most=cython.Py_ssize_t)
cdef int _check(long long[::1] places, rows) except -1

cdef inline unsigned char _byte(const unsigned char* text, Py_ssize_t at) noexcept

@cython.locals(value=cython.longlong, place=cython.Py_ssize_t)
cdef inline long long _signed(const unsigned char* text, Py_ssize_t at) noexcept

cdef inline int _check_range(Py_ssize_t end, Py_ssize_t at, Py_ssize_t size) except -1

cdef inline _text(const unsigned char* text, Py_ssize_t end, Py_ssize_t at, Py_ssize_t size)

@cython.locals(at=cython.Py_ssize_t)
cdef inline Py_ssize_t _value_at(
    const unsigned char* text, Py_ssize_t end, long long[::1] places, Py_ssize_t place,
) noexcept

@cython.locals(
    at=cython.Py_ssize_t, stop=cython.Py_ssize_t, start=cython.Py_ssize_t, size=cython.Py_ssize_t,
    count=cython.longlong, length=cython.longlong, is_it=cython.bint, _=cython.longlong,
)
cdef inline (Py_ssize_t, Py_ssize_t) _header(
    const unsigned char* text, Py_ssize_t end, long long[::1] places, Py_ssize_t place,
    const unsigned char* name, Py_ssize_t wanted,
) except *

@cython.locals(index=cython.Py_ssize_t)
cdef inline bint _same(
    const unsigned char* text, Py_ssize_t at, const unsigned char* name, Py_ssize_t size,
) noexcept

@cython.locals(raw=cython.ulonglong, byte=cython.ulonglong, shift=cython.int)
cdef inline (long long, Py_ssize_t) _number(
    const unsigned char* text, Py_ssize_t at, Py_ssize_t stop,
) noexcept
