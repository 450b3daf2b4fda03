"""Build hook: generates our messages from protos/ and puts them into the wheel as the package `koguma`."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class GenerateMessages(BuildHookInterface[Any]):
    """Runs for wheels and editable installs; a source distribution holds the .proto files instead."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        protos = Path(self.root, "protos")
        subprocess.run([sys.executable, str(protos / "generate.py")], check=True)
        if version == "standard":
            build_data["force_include"][str(protos / "generated" / "koguma")] = "koguma"
