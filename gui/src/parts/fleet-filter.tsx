/** What is looked at of the fleet: words, states, and how many there are of each. It stands in the address. */

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { filterProxies } from "../shell/filter";
import { type FleetProxy, fleet, ORDER, readFleet, STATES, type State } from "../shell/fleet";
import { go, place, withParameters } from "../shell/route";
import { useStore } from "../shell/store";
import { quantity } from "../shell/text";
import { ProblemNote } from "./answer";
import { StateMark } from "./state";

export interface FleetSelection {
  /** Those that are looked at. */
  readonly proxies: readonly FleetProxy[];
  /** By state, of those that have the words. */
  readonly counts: ReadonlyMap<State, number>;
  readonly total: number;
}

export function useFleetSelection(): FleetSelection {
  const { proxies } = useStore(fleet);
  const { query } = useStore(place);
  const [mesh, words, states] = [query.get("mesh") ?? "", query.get("q") ?? "", query.get("state") ?? ""];
  return useMemo(() => {
    const ofMesh = mesh === "" ? proxies : proxies.filter((proxy) => proxy.mesh === mesh);
    const worded = filterProxies(ofMesh, words);
    const counts = new Map<State, number>();
    for (const proxy of worded) {
      counts.set(proxy.state, (counts.get(proxy.state) ?? 0) + 1);
    }
    const wanted = new Set(states.split(","));
    const shown = states === "" ? worded : worded.filter((proxy) => wanted.has(proxy.state));
    return { proxies: shown, counts, total: ofMesh.length };
  }, [proxies, mesh, words, states]);
}

export function FleetFilter({ shown, children }: { shown: FleetSelection; children?: ComponentChildren }) {
  const { query } = useStore(place);
  const { problem, isLoaded, silent } = useStore(fleet);
  const chosen = (query.get("state") ?? "").split(",").filter((state) => state !== "");
  const choose = (state: State) => {
    const next = chosen.includes(state) ? chosen.filter((each) => each !== state) : [...chosen, state];
    go(withParameters({ state: next.length === 0 ? null : next.join(",") }), { replacing: true });
  };
  return (
    <>
      {problem !== null && <ProblemNote problem={problem} retry={readFleet} />}
      {silent > 0 && (
        <p class="note">
          {quantity(silent, "control plane does", "control planes do")} not answer: of proxies that nobody else serves
          the state is not known.
        </p>
      )}
      <search class="bar">
        <label class="grows">
          <span class="unseen">Filter proxies</span>
          <input
            type="search"
            data-search
            placeholder="Filter: web zone:east tag:version=v2 -kind:gateway"
            value={query.get("q") ?? ""}
            onInput={(event) => {
              const words = event.currentTarget.value;
              go(withParameters({ q: words === "" ? null : words }), { replacing: true });
            }}
          />
        </label>
        {children}
      </search>
      <fieldset class="chips">
        <legend class="unseen">States</legend>
        {ORDER.map((state) => (
          <button
            key={state}
            type="button"
            class="chip"
            aria-pressed={chosen.includes(state)}
            title={STATES[state].meaning}
            onClick={() => choose(state)}
          >
            <StateMark state={state} /> {STATES[state].word}{" "}
            <b>{(shown.counts.get(state) ?? 0).toLocaleString("en")}</b>
          </button>
        ))}
        <span class="quiet" role="status">
          {isLoaded
            ? `${quantity(shown.proxies.length, "proxy", "proxies")} of ${shown.total.toLocaleString("en")}`
            : problem === null && "Loading …"}
        </span>
      </fieldset>
    </>
  );
}
