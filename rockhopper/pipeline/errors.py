"""What goes wrong in the pipeline, as one sentence for the person at the notebook."""


class PipelineError(Exception):
    """One sentence that says what is wrong, with values, and names the remedy.

    Survives pickling: Spark carries it from its workers to the driver.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence
