/** What is different between two documents, line by line. */

import { useMemo } from "preact/hooks";
import { visible } from "../shell/text";
import { Wide } from "./wide";

const MOST = 1500; // lines of a side that are compared
const AROUND = 3; // lines that stay the same and are shown before and after

interface Line {
  readonly sign: "+" | "-" | " " | "…";
  readonly text: string;
}

export function Difference({ before, after, label }: { before: unknown; after: unknown; label: string }) {
  const lines = useMemo(() => cut(lineDifference(linesOf(before), linesOf(after))), [before, after]);
  return (
    <Wide label={label}>
      <pre class="difference">
        {lines.map((line, index) => (
          <span key={index} class={{ "+": "added", "-": "removed", " ": "", "…": "quiet" }[line.sign]}>
            {`${line.sign} ${visible(line.text)}\n`}
          </span>
        ))}
      </pre>
    </Wide>
  );
}

function linesOf(document: unknown): readonly string[] {
  return document === undefined || document === null ? [] : JSON.stringify(document, null, 2).split("\n");
}

/** The lines of both, by the longest sequence that they have in common. */
function lineDifference(before: readonly string[], after: readonly string[]): readonly Line[] {
  if (before.length > MOST || after.length > MOST) {
    return [
      ...before.map((text) => ({ sign: "-", text }) as Line),
      ...after.map((text) => ({ sign: "+", text }) as Line),
    ];
  }
  const width = after.length + 1;
  const common = new Uint16Array((before.length + 1) * width);
  for (let i = before.length - 1; i >= 0; i -= 1) {
    for (let j = after.length - 1; j >= 0; j -= 1) {
      common[i * width + j] =
        before[i] === after[j]
          ? (common[(i + 1) * width + j + 1] ?? 0) + 1
          : Math.max(common[(i + 1) * width + j] ?? 0, common[i * width + j + 1] ?? 0);
    }
  }
  const lines: Line[] = [];
  let [i, j] = [0, 0];
  while (i < before.length || j < after.length) {
    if (i < before.length && j < after.length && before[i] === after[j]) {
      lines.push({ sign: " ", text: before[i] ?? "" });
      i += 1;
      j += 1;
    } else if (
      j === after.length ||
      (i < before.length && (common[(i + 1) * width + j] ?? 0) >= (common[i * width + j + 1] ?? 0))
    ) {
      lines.push({ sign: "-", text: before[i] ?? "" });
      i += 1;
    } else {
      lines.push({ sign: "+", text: after[j] ?? "" });
      j += 1;
    }
  }
  return lines;
}

/** Without what stays the same far from any change. */
function cut(lines: readonly Line[]): readonly Line[] {
  const isNear = lines.map((_, index) =>
    lines.slice(Math.max(0, index - AROUND), index + AROUND + 1).some((line) => line.sign !== " "),
  );
  return lines.flatMap((line, index) =>
    isNear[index] ? [line] : isNear[index - 1] || index === 0 ? [{ sign: "…", text: "" } as Line] : [],
  );
}
