"""The four import names are ours alone: nothing that we depend on may install them too."""

from importlib.metadata import packages_distributions

import pytest


@pytest.mark.parametrize("package", ["protocol", "broker", "client", "pipeline"])
def test_no_dependency_installs_our_import_names(package: str) -> None:
    assert set(packages_distributions().get(package, [])) <= {"rockhopper-mq"}
