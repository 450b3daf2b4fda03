/** Every proxy with its state: read once, and kept as it is by what the feed tells. */

import { ask, asProblem, type Problem } from "./api";
import { onEvent } from "./feed";
import { addressOf } from "./route";
import { session } from "./session";
import { onNewReader, readerStore } from "./store";
import { COLLATION } from "./text";

export type State = "failed" | "refusing" | "limited" | "behind" | "offline" | "unknown" | "online";

export interface FleetProxy {
  readonly mesh: string;
  readonly name: string;
  readonly state: State;
  /** Since when it is in sync, or not, or has been gone; null where that is not known. */
  readonly since: string | null;
  /** All that it serves by its tags, with commas. */
  readonly service: string;
  readonly tags: readonly string[];
  readonly zone: string;
  readonly instance: string;
  readonly kind: string;
  readonly envoy: string;
  readonly findings: number;
}

export interface Fleet {
  readonly proxies: readonly FleetProxy[];
  readonly problem: Problem | null;
  readonly isLoaded: boolean;
  /** How many control planes do not say how their proxies are. */
  readonly silent: number;
}

interface StateWords {
  /** What the page says. */
  readonly word: string;
  readonly meaning: string;
  /** What the API says. */
  readonly status: string;
}

export const STATES: Readonly<Record<State, StateWords>> = {
  failed: {
    word: "failed",
    meaning: "a part of its configuration could not be made, by a fault of the control plane",
    status: "Failed",
  },
  limited: {
    word: "over limit",
    meaning: "documents exceed a limit, and a part of its configuration is left out",
    status: "Over limit",
  },
  refusing: { word: "refusing", meaning: "it refuses a part of what it was sent", status: "Refused" },
  behind: {
    word: "behind",
    meaning: "something is on its way to it, or its control plane is behind others",
    status: "Out of sync",
  },
  offline: { word: "offline", meaning: "it is not connected", status: "Offline" },
  unknown: { word: "unknown", meaning: "a control plane that may serve it does not answer", status: "Unknown" },
  online: { word: "in sync", meaning: "it has all that it should have", status: "Online" },
};

/** In the order in which they need somebody to look. */
export const ORDER: readonly State[] = ["failed", "refusing", "limited", "behind", "unknown", "offline", "online"];

export const fleet = readerStore<Fleet>({ proxies: [], problem: null, isLoaded: false, silent: 0 });

export function keyOf(proxy: { readonly mesh: string; readonly name: string }): string {
  return `${proxy.mesh}/${proxy.name}`; // the name of a mesh has no slash
}

export function addressOfProxy(proxy: { readonly mesh: string; readonly name: string }): string {
  return addressOf(["proxies", proxy.mesh, proxy.name]);
}

/** The state of a proxy, in the words of the API. */
export function stateOf(status: string): State {
  return ORDER.find((state) => STATES[state].status === status) ?? "unknown";
}

/** A proxy as `/_fleet` and the feed have it: a value for each column. Of one that is gone, its name and null. */
type Row = readonly unknown[];

interface FleetAnswer {
  readonly columns: readonly string[];
  readonly silent: number;
  readonly meshes: Readonly<Record<string, readonly Row[]>>;
}

const FIRST_PAUSE = 2000; // milliseconds before what could not be read is asked for again; each is twice the one before
const LONGEST_PAUSE = 30_000;

let columns: readonly string[] = [];
let reading: Promise<void> | null = null;
/** Whether the last reading may miss something that the feed does not tell either. */
let isStale = false;
let pause = FIRST_PAUSE;
let timer = 0;

/** Keep the fleet as it is. It is called once. */
export function keepFleet(): void {
  onEvent("open", readFleet);
  onEvent("reload", readFleet);
  onNewReader(() => {
    window.clearTimeout(timer);
    reading = null;
    pause = FIRST_PAUSE;
  });
  onEvent("fleet", (data) => merge(data as FleetAnswer));
  onEvent("contact", (data) => noteSilent((data as { silent: number }).silent));
}

/** Read all of it. What the feed tells meanwhile comes after it; that it is wrong again has it read once more. */
export function readFleet(): void {
  isStale = true;
  reading ??= readWhileStale();
}

async function readWhileStale(): Promise<void> {
  const { reader } = session.value;
  const isReaderHere = () => session.value.reader === reader;
  while (isStale) {
    window.clearTimeout(timer);
    isStale = false;
    try {
      replaceAll(await ask<FleetAnswer>("/_fleet"));
      pause = FIRST_PAUSE;
    } catch (error) {
      if (!isReaderHere()) {
        return;
      }
      noteProblem(asProblem(error));
    }
  }
  reading = null;
}

function replaceAll(answer: FleetAnswer): void {
  columns = answer.columns;
  const known = new Map(fleet.value.proxies.map((proxy) => [keyOf(proxy), proxy]));
  const proxies = Object.entries(answer.meshes).flatMap(([mesh, rows]) =>
    rows.map((row) => keepIfSame(known, proxyOf(mesh, row))),
  );
  fleet.value = { proxies: proxies.sort(byName), problem: null, isLoaded: true, silent: answer.silent };
}

/** What may not be read is not asked for again: the feed tells when the rights change. */
function noteProblem(problem: Problem): void {
  if (problem.isClosed) {
    fleet.value = { ...fleet.value, proxies: [], isLoaded: false, problem };
    return;
  }
  fleet.value = { ...fleet.value, problem };
  timer = window.setTimeout(readFleet, pause * (0.5 + Math.random() / 2));
  pause = Math.min(pause * 2, LONGEST_PAUSE);
}

async function noteSilent(silent: number): Promise<void> {
  const { reader } = session.value;
  await reading;
  if (session.value.reader === reader) {
    fleet.value = { ...fleet.value, silent };
  }
}

/** Take over the rows of proxies that have changed, come or gone. What could not be read stays wrong with them. */
async function merge({ meshes, silent }: Pick<FleetAnswer, "meshes" | "silent">): Promise<void> {
  const { reader } = session.value;
  await reading;
  if (!fleet.value.isLoaded || session.value.reader !== reader) {
    return;
  }
  const proxies = new Map(fleet.value.proxies.map((proxy) => [keyOf(proxy), proxy]));
  let hasNew = false;
  for (const [mesh, rows] of Object.entries(meshes)) {
    for (const row of rows) {
      const proxy = proxyOf(mesh, row);
      if (row[1] === null) {
        proxies.delete(keyOf(proxy));
      } else {
        hasNew ||= !proxies.has(keyOf(proxy));
        proxies.set(keyOf(proxy), keepIfSame(proxies, proxy));
      }
    }
  }
  const all = [...proxies.values()]; // a change of a row keeps its place
  fleet.value = { ...fleet.value, proxies: hasNew ? all.sort(byName) : all, silent };
}

function byName(one: FleetProxy, other: FleetProxy): number {
  return COLLATION.compare(one.mesh, other.mesh) || COLLATION.compare(one.name, other.name);
}

/** What was there before, if it says the same: what did not change is not drawn again. */
function keepIfSame(known: ReadonlyMap<string, FleetProxy>, proxy: FleetProxy): FleetProxy {
  const before = known.get(keyOf(proxy));
  return before !== undefined && JSON.stringify(before) === JSON.stringify(proxy) ? before : proxy;
}

function proxyOf(mesh: string, row: Row): FleetProxy {
  const value = (column: string) => row[columns.indexOf(column)];
  const text = (column: string) => String(value(column) ?? "");
  const since = value("since");
  const tags = (value("tags") ?? []) as readonly string[];
  return {
    mesh,
    name: text("name"),
    state: stateOf(text("state")),
    since: typeof since === "number" ? new Date(since).toISOString() : null,
    service: [...new Set(tags.filter((tag) => tag.startsWith(SERVICE)).map((tag) => tag.slice(SERVICE.length)))].join(
      ", ",
    ),
    tags,
    zone: text("zone"),
    instance: text("instance"),
    kind: text("kind"),
    envoy: text("envoy"),
    findings: Number(value("findings") ?? 0),
  };
}

const SERVICE = "kuma.io/service=";
