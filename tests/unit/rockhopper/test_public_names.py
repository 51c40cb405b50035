"""What `dir` lists of the package: the public names, each of which can be imported."""

import rockhopper
from rockhopper import client


def test_dir_lists_the_public_names() -> None:
    assert {name for name in dir(rockhopper) if name.startswith("_")} == {"__version__"}
    assert set(rockhopper.__all__) < set(dir(rockhopper))
    for name in dir(rockhopper):
        assert getattr(rockhopper, name) is not None
    assert dir(client) == sorted(client.__all__)
