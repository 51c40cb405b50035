"""The error of the pipeline: one sentence for the user."""


class PipelineError(Exception):
    """An error with one sentence that states the problem, with values, and the remedy.

    It survives pickling: Spark sends it from the workers to the driver.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence
