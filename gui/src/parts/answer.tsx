import type { ComponentChildren } from "preact";
import type { Answer, Problem } from "../shell/api";
import { Name } from "./name";

/** What a question came to: the answer, or why there is none. */
export function AnswerView<T>({ answer, children }: { answer: Answer<T>; children: (data: T) => ComponentChildren }) {
  return (
    <>
      {answer.problem !== null && <ProblemNote problem={answer.problem} retry={answer.reload} />}
      {answer.data !== null && children(answer.data)}
      {answer.data === null && answer.problem === null && answer.isLoading && (
        <p class="quiet" role="status">
          Loading …
        </p>
      )}
    </>
  );
}

export function ProblemNote({ problem, retry }: { problem: Problem; retry?: () => void }) {
  return (
    <div class="note bad" role="alert">
      <p>
        <strong>
          <Name text={problem.title} whole />
        </strong>
      </p>
      <p>
        <Name text={problem.detail} whole />
      </p>
      {problem.status === 403 && <p>What you may read is decided by the rights of the token that you use.</p>}
      {retry !== undefined && (
        <p>
          <button type="button" onClick={retry}>
            Ask again
          </button>
        </p>
      )}
    </div>
  );
}
