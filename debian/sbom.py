"""Writes the bill of materials of an environment (CycloneDX 1.6, as JSON): what is installed, in which version.

It is a script that needs nothing but Python, so that the image can run it: `python sbom.py > sbom.cdx.json`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from typing import Any, Final

_SUBJECT: Final = "koguma"


def document(installed: Iterable[Distribution]) -> dict[str, Any]:
    """The bill of materials of some distributions, of which Koguma is one. It is the same for the same ones."""
    components = sorted(map(_component, installed), key=lambda component: str(component["bom-ref"]))
    subject = next(component for component in components if component["name"] == _SUBJECT)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**subject, "type": "application"}},
        "components": [component for component in components if component is not subject],
    }


def _component(distribution: Distribution) -> dict[str, Any]:
    name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()
    url = f"pkg:pypi/{name}@{distribution.version}"
    licenses = list(_licenses(distribution))
    return {
        "type": "library",
        "bom-ref": url,
        "name": name,
        "version": distribution.version,
        "purl": url,
        **({"licenses": licenses} if licenses else {}),
    }


def _licenses(distribution: Distribution) -> Iterator[dict[str, Any]]:
    for expression in distribution.metadata.get_all("License-Expression") or ():
        yield {"expression": expression}
        return
    for classifier in distribution.metadata.get_all("Classifier") or ():
        if classifier.startswith("License :: OSI Approved :: "):
            yield {"license": {"name": classifier.rpartition(" :: ")[2]}}


def main() -> None:
    json.dump(document(distributions()), sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
