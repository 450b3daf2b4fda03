"""`Claims`: which operation made which revision, and what speaks against it whenever it happened."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice

from tests.linear.history import NO_VALUE, Operation, Outcome
from tests.linear.order import Order


class Claims:
    """Nothing that was answered is lost, nothing is there that was refused, and nothing twice."""

    def __init__(self, order: Order, history: Sequence[Operation]) -> None:
        self._order, self._history = order, history
        self.made: dict[int, list[Operation]] = defaultdict(list)
        """Who may have made a revision: of several deletions at once any of those that were told so."""

        self._writers = {entry: writer for writer in history for entry in writer.writes.items() if entry[1] != NO_VALUE}
        self._revisions: dict[int, list[int]] = defaultdict(list)  # by the identity of an operation
        self._claim_values()
        self._claim_answered_deletions()
        self._unclaimed = list(self._claim_uncertain_deletions())

    def faults(self) -> Iterator[str]:
        for entry in self._unclaimed:
            yield f"{entry} in the log, and nobody wrote it"
        for revision, operations in self.made.items():
            for operation in operations[:1]:
                yield from self._misfits(revision, operation)
        for operation in self._history:
            yield from self._wrongly_ended(operation)

    def _claim_values(self) -> None:
        for revision, entries in self._order.entries.items():
            writers = {id(writer): writer for entry in entries.items() if (writer := self._writers.get(entry))}
            self.made[revision].extend(writers.values())
            for identity in writers:
                self._revisions[identity].append(revision)

    def _claim_answered_deletions(self) -> None:
        for operation in self._history:
            if operation.is_done_deletion and self._order.entries.get(operation.revision or 0) == operation.writes:
                self.made[operation.revision or 0].append(operation)

    def _claim_uncertain_deletions(self) -> Iterator[str]:
        """They have no value by which to know them: the earliest deletion is of him who began first."""
        uncertain = [operation for operation in self._history if operation.is_deletion and not operation.is_over]
        uncertain.sort(key=lambda operation: operation.began)
        left = list(uncertain)
        for revision, entries in sorted(self._order.entries.items()):
            made = self.made[revision]
            if not made:
                maker = next((deletion for deletion in left if deletion.writes == entries), None)
                if maker is None:
                    yield f"revision {revision} is {entries}"
                else:
                    left.remove(maker)
                    made.append(maker)
            elif made[0].is_deletion:  # who was answered may have come right after, and have had nothing to do
                made += islice((deletion for deletion in uncertain if deletion.writes == entries), 1)

    def _misfits(self, revision: int, operation: Operation) -> Iterator[str]:
        entries = self._order.entries[revision]
        if operation.outcome is Outcome.REFUSED:
            yield f"revision {revision} has what was refused: {operation}"
        if entries != operation.writes:
            yield f"revision {revision} is {entries}, and not what was written: {operation}"
        for name in operation.writes if operation.based_on is not None else ():
            if self._order.before(name, revision) != operation.based_on:
                actual = self._order.before(name, revision)
                yield f"revision {revision} needed {name} at {operation.based_on}, and it was at {actual}: {operation}"

    def _wrongly_ended(self, operation: Operation) -> Iterator[str]:
        if not operation.writes or operation.is_deletion:
            return
        revisions = self._revisions[id(operation)]
        if len(revisions) > 1:
            yield f"it was made at each of {revisions}: {operation}"
        if operation.outcome is Outcome.DONE and revisions != [operation.revision]:
            yield f"it was answered with {operation.revision}, and is in the log at {revisions}: {operation}"
