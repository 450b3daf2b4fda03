import type { ComponentChildren } from "preact";

/** One row of a list of facts, `<dl class="facts">`. */
export function Fact({ term, children }: { term: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{term}</dt>
      <dd>{children}</dd>
    </div>
  );
}
