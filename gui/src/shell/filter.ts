/**
 * Which proxies are looked at: words that stand in a name or another text of theirs, and `field:value`.
 *
 * `web zone:east -kind:gateway`: all words have to hold; one with a minus must not.
 */

import { type FleetProxy, STATES } from "./fleet";

type Field = "name" | "mesh" | "state" | "service" | "zone" | "instance" | "kind" | "envoy" | "tag";

const FIELDS: readonly Field[] = ["name", "mesh", "state", "service", "zone", "instance", "kind", "envoy", "tag"];

interface Term {
  readonly field: Field | null;
  readonly text: string;
  readonly isWanted: boolean;
}

export function filterProxies(proxies: readonly FleetProxy[], query: string): readonly FleetProxy[] {
  const terms = query
    .split(/\s+/)
    .filter((word) => word !== "" && word !== "-")
    .map(term);
  return terms.length === 0 ? proxies : proxies.filter((proxy) => terms.every((each) => holds(each, proxy)));
}

function term(word: string): Term {
  const isWanted = !word.startsWith("-");
  const bare = (isWanted ? word : word.slice(1)).toLowerCase();
  const colon = bare.indexOf(":");
  const field = FIELDS.find((known) => known === bare.slice(0, Math.max(0, colon))) ?? null;
  return { field, text: field === null ? bare : bare.slice(colon + 1), isWanted };
}

function holds({ field, text, isWanted }: Term, proxy: FleetProxy): boolean {
  const texts = field === null ? [proxy.name, proxy.service, ...proxy.tags] : textsOf(proxy, field);
  return texts.some((each) => each.toLowerCase().includes(text)) === isWanted;
}

function textsOf(proxy: FleetProxy, field: Field): readonly string[] {
  switch (field) {
    case "tag":
      return proxy.tags;
    case "state": // also as it is drawn, where that is another word
      return [proxy.state, STATES[proxy.state].word.replaceAll(" ", "-")];
    default:
      return [proxy[field]];
  }
}
