"""The bytes of the Kafka protocol: frames, headers, and messages declared as typed tables.

Pure: nothing here waits, reads a clock or touches a socket.
"""
