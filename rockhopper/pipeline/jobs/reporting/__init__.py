"""The job ``report``: what went through topics, from whom, and how far behind consumers are.

``inputs`` finds the messages and shares them out over tasks, ``tallies`` counts in the tasks,
``lag`` asks brokers about groups, ``tables`` writes files, ``page`` and ``plots`` make the page.
"""
