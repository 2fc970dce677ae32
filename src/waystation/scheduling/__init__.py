"""Messages that wait for their time: what is due when, and how it gets to where it is read.

A topic ``orders`` whose messages may be scheduled has a companion ``orders.delay``.  Whatever is
produced there says when it is due; the leader of each of its partitions moves what has become
due into ``orders``, once.  The companion's log is the whole truth: messages as data, decisions
as control records among them.  Everything here is replayed from it.

- ``topics``, ``headers``, ``times``, ``cron``: what clients may say, and what it means.
- ``schedule``: the machine; ``index`` and ``wheel`` hold what is pending, on disk and at hand.
- ``mover``: exactly once into other partitions; dead letters and redrive use it too.
"""
