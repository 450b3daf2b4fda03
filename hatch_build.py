"""Build hook: generates our messages from protos/, and puts them into the wheel as the package `koguma`.

The page for browsers is put into wheels and source distributions, where it was built or can be (record 0089).
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class GenerateMessages(BuildHookInterface[Any]):
    """Runs for every kind of distribution. One of the sources has the .proto files instead of our messages."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name == "sdist":
            self._build_page()
            return
        protos = Path(self.root, "protos")
        subprocess.run([sys.executable, str(protos / "generate.py")], check=True)
        if version == "standard":
            build_data["force_include"][str(protos / "generated" / "koguma")] = "koguma"
            self._build_page()

    def _build_page(self) -> None:
        """A distribution without the page is as good for all but browsers, so that it can be built without node."""
        subprocess.run([sys.executable, str(Path(self.root, "gui", "build.py"))], check=True)
        if not Path(self.root, "cp", "gui", "index.html").is_file():
            self.app.display_warning(
                f"the {self.target_name} is without the page for browsers: build it first with `make page`"
            )
