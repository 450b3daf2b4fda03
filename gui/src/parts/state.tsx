import type { State } from "../shell/fleet";
import { STATES } from "../shell/fleet";

/** The shape and the colour of a state. Each has a shape of its own, for those who do not tell the colours apart. */
export function StateMark({ state }: { state: State }) {
  return <span class={`cell ${state}`} aria-hidden="true" />;
}

export function StateLabel({ state }: { state: State }) {
  return (
    <span class="state">
      <StateMark state={state} /> {STATES[state].word}
    </span>
  );
}
