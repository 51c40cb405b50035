"""The job ``demo``: all features once, on this machine, with text that comes with Python.

``broker`` starts a temporary broker, ``text`` provides the text, ``words`` counts it with a
streaming query, ``job`` runs the steps, and ``page`` shows the result.
"""
