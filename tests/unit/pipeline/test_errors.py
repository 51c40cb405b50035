"""PipelineError: its sentence comes back from a worker."""

import pickle

from rockhopper.pipeline.errors import PipelineError


def test_an_error_survives_the_way_from_a_worker() -> None:
    error = pickle.loads(pickle.dumps(PipelineError("the path is wrong: correct it")))
    assert isinstance(error, PipelineError)
    assert error.sentence == str(error) == "the path is wrong: correct it"
