"""The job ``demo``: everything once, on this machine, with text that comes with Python.

``broker`` starts a broker for the while, ``text`` has what is sent, ``words`` counts it with a
streaming query, ``job`` does one thing after the other, ``page`` shows what came of it.
"""
