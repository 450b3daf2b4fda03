"""`koguma completion`: a script that teaches a shell what can come next."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import typer


class Shell(StrEnum):
    """The shells for which there is a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


ShellArgument = Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell.")]

_BASH: Final = """\
# bash completion for koguma
_koguma() {
  local line
  COMPREPLY=()
  while IFS= read -r line; do
    COMPREPLY+=("$line")
  done < <("${COMP_WORDS[0]}" __complete --line "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
}
complete -o default -F _koguma koguma
"""

_ZSH: Final = """\
#compdef koguma
_koguma() {
  local -a candidates
  candidates=("${(@f)$("${words[1]}" __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "${candidates[1]}" ]]; then
    compadd -a candidates
  else
    _files
  fi
}
if [[ "${funcstack[1]}" == _koguma ]]; then
  _koguma "$@"
else
  compdef _koguma koguma
fi
"""

_FISH: Final = """\
# fish completion for koguma
function __koguma_candidates
    set -l typed (commandline -opc) (commandline -ct)
    set -g __koguma_candidates ($typed[1] __complete $typed[2..-1] 2>/dev/null)
    test (count $__koguma_candidates) -gt 0
end
complete --command koguma --condition __koguma_candidates --no-files --arguments '$__koguma_candidates'
"""

_SCRIPTS: Final = {Shell.BASH: _BASH, Shell.ZSH: _ZSH, Shell.FISH: _FISH}


def completion(shell: ShellArgument) -> None:
    """Print a script with which a shell completes commands, options, types and names.

    Names are asked from the control plane that the command line means, and remembered for ten seconds. Where it does
    not answer within a second there are none.
    """
    typer.echo(_SCRIPTS[shell], nl=False)
