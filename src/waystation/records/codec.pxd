# C types for codec.py, which knows nothing of them: the compiled twin is the same source.
#
# Helpers that take a view are inline although Cython warns of it: a call copies the view's
# descriptor of 208 bytes, and the walk is three times slower for it.
#
# Bounds checks are off because single bytes are read only in `_varlong` and `_varint`, which
# compare the index with 0 and `stop` just before, and cut only where `_length` found them
# all there; `stop` never passes the end of the view for the same reason.  `_number` is asked
# only for fields of a header that lies within the view.

cimport cython

cdef Py_ssize_t _LEAST_RECORD_BYTES
cdef Py_ssize_t _PLACE_FIELDS
cdef Py_ssize_t _BATCH_FIELDS
cdef Py_ssize_t _FRAME_BYTES
cdef Py_ssize_t _HEADER_BYTES
cdef long long _MAGIC
cdef long long _LOG_APPEND_TIME
cdef long long _UINT32
cdef Py_ssize_t _LEAST_HEADER_BYTES
cdef Py_ssize_t _MOST_VARINT_BYTES
cdef long long _INT32_MIN
cdef long long _INT32_MAX
cdef long long _INT64_MIN
cdef long long _INT64_MAX

@cython.locals(
    end=cython.Py_ssize_t, at=cython.Py_ssize_t, stop=cython.Py_ssize_t, index=cython.Py_ssize_t,
    length=cython.longlong, previous=cython.longlong, keyless=cython.Py_ssize_t,
    timestamp_delta=cython.longlong, offset_delta=cython.longlong,
)
cpdef Py_ssize_t check_records(
    const unsigned char[::1] payload, Py_ssize_t count, long long last_offset_delta,
    long long base_timestamp,
) except -1

@cython.locals(end=cython.Py_ssize_t, found=cython.Py_ssize_t)
cpdef locate_records(
    const unsigned char[::1] payload, Py_ssize_t count, long long base_offset,
    long long last_offset_delta, long long base_timestamp, long long[::1] places,
)

@cython.locals(
    index=cython.Py_ssize_t, start=cython.Py_ssize_t, stop=cython.Py_ssize_t,
    body=cython.Py_ssize_t, rest=cython.Py_ssize_t, key_at=cython.Py_ssize_t,
    length=cython.longlong, key_bytes=cython.longlong, value_bytes=cython.longlong,
    previous=cython.longlong, timestamp_delta=cython.longlong, offset_delta=cython.longlong,
)
cdef Py_ssize_t _locate(
    const unsigned char[::1] view, Py_ssize_t at, Py_ssize_t end, Py_ssize_t count,
    long long base_offset, long long last_offset_delta, long long base_timestamp,
    long long[::1] places, Py_ssize_t to,
) noexcept

cpdef Py_ssize_t locate_batches(
    window, Py_ssize_t at, long long[::1] places, long long[::1] batches,
) except -1

@cython.locals(
    found=cython.Py_ssize_t, to=cython.Py_ssize_t, rooms=cython.Py_ssize_t, row=cython.Py_ssize_t,
    stop=cython.longlong, count=cython.longlong, base_offset=cython.longlong,
    last_offset_delta=cython.longlong,
)
cdef Py_ssize_t _locate_batches(
    whole, const unsigned char[::1] view, Py_ssize_t at, Py_ssize_t end, long long[::1] places,
    long long[::1] batches,
) except -1

@cython.locals(value=cython.longlong, place=cython.Py_ssize_t)
cdef inline long long _number(const unsigned char[::1] view, Py_ssize_t at, Py_ssize_t size) noexcept

@cython.locals(raw=bytes)
cpdef bint copy_records(
    payload, long long[::1] places, Py_ssize_t count, long long shift_ms, bytearray out,
) except -1

@cython.locals(
    to=cython.Py_ssize_t, start=cython.Py_ssize_t, stop=cython.Py_ssize_t, _=cython.Py_ssize_t,
)
cdef int _copy_runs(
    const unsigned char* text, Py_ssize_t end, long long[::1] places, Py_ssize_t count,
    bytearray out,
) except -1

@cython.locals(
    to=cython.Py_ssize_t, stop=cython.Py_ssize_t, body=cython.Py_ssize_t, rest=cython.Py_ssize_t,
    before=cython.Py_ssize_t, timestamp_delta=cython.longlong, _=cython.Py_ssize_t,
)
cdef bint _copy_moved(
    const unsigned char* text, Py_ssize_t end, long long[::1] places, Py_ssize_t count,
    long long shift_ms, bytearray out,
) except -1

@cython.locals(raw=bytes)
cpdef list decode_records(
    payload, Py_ssize_t count, long long base_offset, long long last_offset_delta,
    long long base_timestamp, append_time,
)

@cython.locals(
    end=cython.Py_ssize_t, at=cython.Py_ssize_t, stop=cython.Py_ssize_t, index=cython.Py_ssize_t,
    headers_at=cython.Py_ssize_t, timestamp=cython.longlong, appended=cython.longlong, own=cython.bint,
    length=cython.longlong, previous=cython.longlong,
    timestamp_delta=cython.longlong, offset_delta=cython.longlong, rows=list,
)
cdef list _decode(
    const unsigned char* text, const unsigned char[::1] view, Py_ssize_t count,
    long long base_offset, long long last_offset_delta, long long base_timestamp,
    append_time,
)

@cython.locals(
    end=cython.Py_ssize_t, at=cython.Py_ssize_t, start=cython.Py_ssize_t, index=cython.Py_ssize_t,
    length=cython.longlong, sizes=list,
)
cpdef list record_sizes(const unsigned char[::1] payload, Py_ssize_t count)

cdef class RecordWriter:
    cdef public bytearray out
    cdef public Py_ssize_t limit_bytes
    cdef public Py_ssize_t records_count
    cdef public long long base_timestamp
    cdef public long long max_timestamp

    @cython.locals(base=cython.longlong)
    cdef bint _add(self, key, value, headers, long long timestamp) except -1

@cython.locals(length=cython.longlong, start=cython.Py_ssize_t, end=cython.Py_ssize_t)
cdef bint _append_record(
    bytearray out, Py_ssize_t limit_bytes, long long offset_delta, long long timestamp_delta,
    key, value, headers,
) except -1

@cython.locals(raw=cython.ulonglong, byte=cython.ulonglong, shift=cython.int)
cdef inline (long long, Py_ssize_t) _varlong(const unsigned char[::1] view, Py_ssize_t at, Py_ssize_t stop) noexcept

@cython.locals(byte=cython.longlong, raw=cython.longlong, value=cython.longlong, past=cython.Py_ssize_t)
cdef inline (long long, Py_ssize_t) _varint(const unsigned char[::1] view, Py_ssize_t at, Py_ssize_t stop) noexcept

@cython.locals(length=cython.longlong)
cdef inline (long long, Py_ssize_t) _length(const unsigned char[::1] view, Py_ssize_t at, Py_ssize_t stop) noexcept

@cython.locals(length=cython.longlong)
cdef inline Py_ssize_t _skip(const unsigned char[::1] view, Py_ssize_t at, Py_ssize_t stop) noexcept

@cython.locals(count=cython.longlong, length=cython.longlong)
cdef Py_ssize_t _skip_headers(const unsigned char[::1] view, Py_ssize_t at, Py_ssize_t stop) noexcept

@cython.locals(count=cython.longlong, length=cython.longlong, headers=list)
cdef tuple _headers(const unsigned char* text, const unsigned char[::1] view, Py_ssize_t at, Py_ssize_t stop)

cdef inline bint _fits(long long base, long long delta) noexcept

cdef unsigned long long _zigzag(long long value) noexcept

@cython.locals(raw=cython.ulonglong)
cdef Py_ssize_t _varlong_size(long long value) noexcept

@cython.locals(raw=cython.ulonglong)
cdef int _append_varlong(bytearray out, long long value) except -1

cdef Py_ssize_t _field_size(content) except -1

cdef int _append_field(bytearray out, content) except -1
