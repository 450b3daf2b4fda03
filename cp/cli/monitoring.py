"""`koguma generate monitoring`: dashboards, alerts and an example for Prometheus, of this version."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cp.cli.options import TextFormat, TextOutput
from cp.cli.output import reply
from cp.client.problem import Problem
from cp.monitoring.files import PAGES, files

Into = Annotated[Path, typer.Option("--into", metavar="FOLDER", help="The folder; made if it is not there.")]
Pages = Annotated[str, typer.Option("--pages", metavar="URL", help="Where this documentation is, for links of alerts.")]


def monitoring(*, into: Into, pages: Pages = PAGES, output: TextOutput = TextFormat.TEXT) -> None:
    """Write dashboards for Grafana, and alerts and an example of a configuration for Prometheus.

    What is in the folder under the same names is replaced.
    """
    paths = {into / name: text for name, text in files(pages).items()}
    for path, text in paths.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        except OSError as error:
            raise Problem(f"{path} cannot be written: {error.strerror}") from None
    reply({"files": [str(path) for path in paths]}, "\n".join(map(str, paths)), output)
