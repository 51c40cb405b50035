"""The job ``report``: traffic of topics, producers, and lag of consumers.

``inputs`` finds the messages and distributes them over tasks, ``tallies`` counts them, ``lag``
queries the brokers about groups, ``tables`` writes files, and ``page`` and ``plots`` make the page.
"""
