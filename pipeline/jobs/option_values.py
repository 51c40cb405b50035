"""Values of options on the command line of jobs."""

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.results import UsageProblem
from rockhopper.pipeline.options import Options


def size_option(name: str, text: str | None) -> int | None:
    """A size such as ``128m``, given for the option *name*. Raises UsageProblem."""
    try:
        return _options(name, text).size_bytes(name, None)
    except PipelineError as error:
        raise UsageProblem(error.sentence) from None


def time_option(name: str, text: str | None) -> int | None:
    """A time in ms since 1970 or as ISO 8601, for the option *name*. Raises UsageProblem."""
    try:
        return _options(name, text).time_ms(name)
    except PipelineError as error:
        raise UsageProblem(error.sentence) from None


def _options(name: str, text: str | None) -> Options:
    return Options("the command line", {name: text or ""}, (name,))
