"""The software bill of materials of a release, in CycloneDX's JSON: the same facts, the same bytes.

    tools/bin/python bill_of_materials.py facts.json >rockhopper_mq-1.2.3.cdx.json

It is run with the pinned tools of a release and stands alone there, beside nothing else of ours.
"""

import json
import sys
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cyclonedx.contrib.hash.factories import HashTypeFactory
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, Property, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SCHEMA = SchemaVersion.V1_6
OURS = "rockhopper:"
"""What properties are called that CycloneDX has no name for."""


def package(name: str, version: str | None, licence: str = "", **more: Any) -> Component:
    """The component of a package of the index."""
    name = canonicalize_name(name)
    purl = PackageURL("pypi", name=name, version=version)
    licences = [LicenseFactory().make_from_string(licence)] if licence else []
    of_its_own = {"type": ComponentType.LIBRARY, "bom_ref": str(purl), "purl": purl}
    return Component(name=name, version=version, licenses=licences, **{**of_its_own, **more})


def file_of(facts: dict[str, Any]) -> Component:
    """The component of an sdist or a wheel: its checksum, and what it was built with."""
    built_with = {name: str(facts[name]) for name in facts.keys() & {"python", "compiler"}}
    return Component(
        name=facts["name"],
        type=ComponentType.FILE,
        bom_ref=facts["name"],
        hashes=[HashTypeFactory().from_hashlib_alg("sha256", facts["sha256"])],
        properties=properties(built_with),
    )


def properties(named: dict[str, str]) -> list[Property]:
    """Properties of ours."""
    return [Property(name=OURS + name, value=value) for name, value in named.items()]


def optional_packages(extras: dict[str, list[str]], known: set[str]) -> list[Component]:
    """The direct requirements of the extras that are not installed; they have no version yet."""
    asked: dict[str, dict[str, str]] = {}
    for extra, requirements in extras.items():
        for text in requirements:
            name = str(canonicalize_name(Requirement(text).name))
            if name not in known:
                asked.setdefault(name, {})[f"extra:{extra}"] = text
    return [
        package(name, None, scope=ComponentScope.OPTIONAL, properties=properties(found))
        for name, found in asked.items()
    ]


def needed(requires: Iterable[str]) -> set[str]:
    """The names of packages that requirements ask for without an extra."""
    parsed = [Requirement(text) for text in requires]
    return {
        str(canonicalize_name(each.name))
        for each in parsed
        if each.marker is None or each.marker.evaluate({"extra": ""})
    }


def compose(facts: dict[str, Any]) -> str:
    """The document of the *facts* that tests/release/__main__.py gathers, checked by its schema."""
    installed = {str(canonicalize_name(each["name"])): each for each in facts["installed"]}
    ours = installed.pop(facts["name"])
    source = ExternalReference(
        type=ExternalReferenceType.VCS, url=XsUri(facts["source"]), comment=facts["commit"]
    )
    root = package(
        *(ours["name"], ours["version"], ours["licence"]),
        type=ComponentType.APPLICATION,
        external_references=[source],
        components=[file_of(each) for each in facts["files"]],
    )
    resolved = {
        name: package(name, each["version"], each["licence"], scope=ComponentScope.REQUIRED)
        for name, each in installed.items()
    }
    bom = Bom(
        # A new number for each document is what makes two of one release differ.
        serial_number=uuid.uuid5(
            uuid.NAMESPACE_URL,
            "@".join(
                (facts["source"], facts["commit"], *(each["sha256"] for each in facts["files"]))
            ),
        ),
        components=[*resolved.values(), *optional_packages(facts["extras"], {*installed})],
        metadata=BomMetaData(
            timestamp=datetime.fromtimestamp(facts["time_s"], UTC),
            component=root,
            tools=ToolRepository(
                components=[package(each["name"], each["version"]) for each in facts["tools"]]
            ),
        ),
    )
    for name, each in {facts["name"]: ours, **installed}.items():
        names = needed(each["requires"]) & {*resolved}
        bom.register_dependency(resolved.get(name, root), [resolved[name] for name in names])
    text = make_outputter(bom, OutputFormat.JSON, SCHEMA).output_as_string(indent=2) + "\n"
    if wrong := JsonStrictValidator(SCHEMA).validate_str(text):
        raise ValueError(f"the bill of materials is not as CycloneDX wants it: {wrong}")
    return text


if __name__ == "__main__":
    sys.stdout.write(compose(json.loads(Path(sys.argv[1]).read_text())))
