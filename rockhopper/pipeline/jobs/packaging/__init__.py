"""The job ``package``: the pipeline as a zip for ``spark-submit --py-files``."""
