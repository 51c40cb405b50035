"""The bill of materials has what is released, what that needs, and the same bytes each time."""

import json
from typing import Any

from tests.release.bill_of_materials import compose

FACTS = {
    "name": "rockhopper-mq",
    "source": "https://example.org/rockhopper",
    "commit": "c0ffee",
    "time_s": 1_700_000_000,
    "files": [
        {"name": "rockhopper_mq-1.2.3.tar.gz", "sha256": "a" * 64},
        {"name": "one.whl", "sha256": "b" * 64, "python": "3.13.5", "compiler": "gcc 14.2.0"},
    ],
    "installed": [
        {
            "name": "rockhopper-mq",
            "version": "1.2.3",
            "licence": "Apache-2.0",
            "requires": ["Jinja2>=3", 'pydantic>=2; extra == "pydantic"'],
        },
        {"name": "Jinja2", "version": "3.1", "licence": "BSD-3-Clause", "requires": ["MarkupSafe"]},
        {"name": "MarkupSafe", "version": "3.0", "licence": "Some Licence", "requires": []},
    ],
    "extras": {"pydantic": ["pydantic>=2"], "more": ["jinja2>=3", "pydantic>=2.5"]},
    "tools": [{"name": "build", "version": "1.6"}],
}


def composed() -> dict[str, Any]:
    return dict(json.loads(compose(FACTS)))


def test_the_same_facts_give_the_same_bytes() -> None:
    assert compose(FACTS) == compose(FACTS)
    assert composed()["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"


def test_files_have_their_checksums_and_what_built_them() -> None:
    files = {each["name"]: each for each in composed()["metadata"]["component"]["components"]}
    wheel = files["one.whl"]
    assert wheel["hashes"] == [{"alg": "SHA-256", "content": "b" * 64}]
    built_with = {each["name"]: each["value"] for each in wheel["properties"]}
    assert built_with == {"rockhopper:python": "3.13.5", "rockhopper:compiler": "gcc 14.2.0"}
    assert "properties" not in files["rockhopper_mq-1.2.3.tar.gz"]


def test_packages_that_are_needed_have_version_licence_and_address() -> None:
    needed = {each["name"]: each for each in composed()["components"]}
    jinja = needed["jinja2"]
    assert (jinja["version"], jinja["purl"]) == ("3.1", "pkg:pypi/jinja2@3.1")
    assert jinja["licenses"] == [{"license": {"id": "BSD-3-Clause"}}]
    assert needed["markupsafe"]["licenses"] == [{"license": {"name": "Some Licence"}}]
    graph = {each["ref"]: each.get("dependsOn", []) for each in composed()["dependencies"]}
    assert graph["pkg:pypi/rockhopper-mq@1.2.3"] == ["pkg:pypi/jinja2@3.1"]
    assert graph["pkg:pypi/jinja2@3.1"] == ["pkg:pypi/markupsafe@3.0"]


def test_packages_of_extras_are_optional() -> None:
    optional = [each for each in composed()["components"] if each["scope"] == "optional"]
    (pydantic,) = optional
    assert pydantic["purl"] == "pkg:pypi/pydantic"
    assert {each["name"]: each["value"] for each in pydantic["properties"]} == {
        "rockhopper:extra:pydantic": "pydantic>=2",
        "rockhopper:extra:more": "pydantic>=2.5",
    }
