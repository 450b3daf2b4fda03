/** The graph of a mesh as the API tells it, and where its services stand when it is drawn. */

import { COLLATION } from "./text";

export interface GraphService {
  readonly kind: string;
  readonly name: string;
  /** Whether it is outside the mesh: whoever serves it is no proxy. */
  readonly outside: boolean;
  readonly protocols: readonly string[];
  /** How many of the proxies behind it are in each state. */
  readonly proxies: Readonly<Record<string, number>>;
  /** The names of some of those that refuse something, and of some for which something has failed. */
  readonly refusing: readonly string[];
  readonly failed: readonly string[];
}

export interface GraphSplit {
  readonly to: number | null;
  readonly section: string;
  readonly weight: number;
  /** What some of the callers have sent to it; left out where none of them was heard. */
  readonly requests?: number;
}

export interface GraphRoute {
  readonly owner: string;
  readonly path: string;
  readonly splits: readonly GraphSplit[];
  readonly reason?: string;
}

export interface GraphCall {
  readonly to?: number;
  readonly hostname?: string;
  readonly section: string;
  readonly protocol: string;
  readonly routes: readonly GraphRoute[];
  /** How many routes are left out. None of them leads elsewhere than those that are told. */
  readonly moreRoutes?: number;
}

export interface MeshGraph {
  readonly mesh: string;
  readonly revision: number;
  /** That a rollout is under way, of which nothing is in the graph. */
  readonly rollout?: string;
  readonly traffic?: { readonly at: number; readonly asked: number; readonly answered: number };
  readonly services: readonly GraphService[];
  readonly groups: readonly {
    readonly callers: readonly number[];
    readonly proxies: number;
    readonly calls: readonly GraphCall[];
  }[];
  /** The names of proxies that cannot be compiled, so that nobody knows what they call; left out where there is none. */
  readonly failed?: readonly string[];
}

/** Where calls go in the end: to a service, or to a hostname of a gateway behind which there is none. */
export interface Target {
  readonly to: number | null;
  readonly hostname: string;
  /** The smallest and the largest share of a route that leads there, in percent. */
  readonly least: number;
  readonly most: number;
  /** Why some route to it answers with an error; empty if none does. */
  readonly reason: string;
  /** What some of the callers have sent there, by its section; empty where none of them was heard. */
  readonly requests: ReadonlyMap<string, number>;
}

/** The targets of each group of callers in the order of their names, made once for a graph. */
export function targetsByGroup(graph: MeshGraph): readonly (readonly Target[])[] {
  return graph.groups.map(({ calls }) => {
    const targets = new Map<number | string, Target>();
    for (const target of targetsOf(calls)) {
      const key = target.to ?? target.hostname;
      const known = targets.get(key);
      targets.set(key, known === undefined ? target : joinTargets(known, target));
    }
    return [...targets.values()].sort((one, other) => COLLATION.compare(nameOf(graph, one), nameOf(graph, other)));
  });
}

/** Route by route; where some of the calls by a route lead nowhere, what is called, and why. */
function* targetsOf(calls: readonly GraphCall[]): Generator<Target> {
  for (const { to = null, hostname = "", routes } of calls) {
    for (const { splits, reason = "" } of routes) {
      const total = splits.reduce((sum, { weight }) => sum + weight, 0);
      const live = splits.filter((split) => split.to !== null && split.weight > 0);
      const rest = total === 0 ? 100 : 100 - (100 * live.reduce((sum, { weight }) => sum + weight, 0)) / total;
      const isOfAll = rest === 0; // a reason that is not for a share without a service is for the whole route
      for (const split of live) {
        const share = (100 * split.weight) / total;
        const requests = new Map(
          split.requests === undefined ? [] : [[`${split.to} ${split.section}`, split.requests]],
        );
        const target = { to: split.to, hostname: "", least: share, most: share, requests };
        yield { ...target, reason: isOfAll ? reason : "" };
      }
      if (!isOfAll && reason !== "") {
        yield { to, hostname, least: rest, most: rest, reason, requests: new Map() };
      }
    }
  }
}

function joinTargets(target: Target, other: Target): Target {
  return {
    ...target,
    least: Math.min(target.least, other.least),
    most: Math.max(target.most, other.most),
    reason: target.reason || other.reason,
    requests: new Map([...target.requests, ...other.requests]), // of a section it is told by each route there
  };
}

/** That one box calls another one, by some route. */
export interface Edge {
  readonly from: number;
  readonly to: number;
  readonly least: number;
  readonly most: number;
  readonly reason: string;
  /** How many requests were counted; null where that is not known. */
  readonly requests: number | null;
  /** The services that sent these together: of a group of callers it is not told one by one. */
  readonly senders: ReadonlySet<number>;
  /** About how many calls of one service to another one it stands for. */
  readonly weight: number;
}

/** Edges of which there are more than can be looked at are not made: the answer is null. */
export function edgesOf(
  graph: MeshGraph,
  targets: readonly (readonly Target[])[],
  boxOf: ReadonlyMap<number, number>,
  isWanted: (from: number, to: number) => boolean,
  most: number,
): readonly Edge[] | null {
  const edges = new Map<string, Edge>();
  for (const [group, { callers }] of graph.groups.entries()) {
    const senders = new Set(callers);
    const boxes = new Map<number, number>();
    for (const box of callers.flatMap((caller) => boxOf.get(caller) ?? [])) {
      boxes.set(box, (boxes.get(box) ?? 0) + 1);
    }
    for (const { to, target, services } of byBox(targets[group] ?? [], boxOf)) {
      for (const [from, inBox] of boxes) {
        if (isWanted(from, to)) {
          const key = `${from} ${to}`;
          const edge = edgeOf(from, to, target, senders, inBox * services);
          const known = edges.get(key);
          edges.set(key, known === undefined ? edge : joinEdges(known, edge));
        }
      }
      if (edges.size > most) {
        return null;
      }
    }
  }
  return [...edges.values()];
}

function byBox(targets: readonly Target[], boxOf: ReadonlyMap<number, number>) {
  const boxes = new Map<number, { readonly to: number; readonly target: Target; readonly services: number }>();
  for (const target of targets) {
    const box = target.to === null ? undefined : boxOf.get(target.to);
    if (box !== undefined) {
      const known = boxes.get(box);
      const joint = known === undefined ? target : joinTargets(known.target, target);
      boxes.set(box, { to: box, target: joint, services: (known?.services ?? 0) + 1 });
    }
  }
  return boxes.values();
}

function edgeOf(from: number, to: number, target: Target, callers: ReadonlySet<number>, weight = 1): Edge {
  const { least, most, reason } = target;
  const counts = [...target.requests.values()];
  const requests = counts.length === 0 ? null : counts.reduce((sum, count) => sum + count, 0);
  return { from, to, least, most, reason, requests, senders: requests === null ? new Set() : callers, weight };
}

/** An edge of two groups of callers: what they have sent is added. */
function joinEdges(edge: Edge, other: Edge): Edge {
  const isKnown = edge.requests !== null || other.requests !== null;
  return {
    ...edge,
    least: Math.min(edge.least, other.least),
    most: Math.max(edge.most, other.most),
    reason: edge.reason || other.reason,
    requests: isKnown ? (edge.requests ?? 0) + (other.requests ?? 0) : null,
    senders: new Set([...edge.senders, ...other.senders]),
    weight: edge.weight + other.weight,
  };
}

/** A call of one service, as the list has it. */
export interface Call {
  readonly name: string;
  readonly edge: Edge;
}

/** All calls of one service, in the order of the names. */
export function callsOf(graph: MeshGraph, targets: readonly (readonly Target[])[], service: number): readonly Call[] {
  const calls = new Map<string | number, Call>();
  let groups = 0;
  for (const [group, { callers }] of graph.groups.entries()) {
    if (callers.includes(service)) {
      groups += 1;
      const senders = new Set(callers);
      for (const target of targets[group] ?? []) {
        const key = target.to ?? target.hostname;
        const edge = edgeOf(service, target.to ?? -1, target, senders);
        const known = calls.get(key);
        const joint = known === undefined ? edge : joinEdges(known.edge, edge);
        calls.set(key, { name: nameOf(graph, target), edge: joint });
      }
    }
  }
  const all = [...calls.values()];
  return groups === 1 ? all : all.sort((one, other) => COLLATION.compare(one.name, other.name));
}

function nameOf(graph: MeshGraph, { to, hostname }: Target): string {
  return to === null ? hostname : (graph.services[to]?.name ?? "");
}

export interface PlacedBox {
  readonly key: number;
  readonly x: number;
  readonly y: number;
}

export interface Layout {
  readonly boxes: readonly PlacedBox[];
  readonly width: number;
  readonly height: number;
}

export const BOX = { width: 168, height: 46 } as const;
const GAP = { x: 90, y: 18 } as const;
const SWEEPS = 6;

/** Boxes in columns: who calls stands left of whom is called, as far as calls do not go in circles. */
export function layout(keys: readonly number[], edges: readonly Edge[]): Layout {
  const columns = untangle(columnsOf(keys, edges), edges);
  const tallest = Math.max(0, ...columns.map((column) => column.length));
  const step = { x: BOX.width + GAP.x, y: BOX.height + GAP.y };
  const boxes = columns.flatMap((column, index) => {
    const top = ((tallest - column.length) * step.y) / 2;
    return column.map((key, row) => ({ key, x: 10 + index * step.x, y: 10 + top + row * step.y }));
  });
  return { boxes, width: 20 + columns.length * step.x - GAP.x, height: 20 + tallest * step.y - GAP.y };
}

/** Each service one column right of the last of its callers; edges that close a circle do not count. */
function columnsOf(services: readonly number[], edges: readonly Edge[]): number[][] {
  const calls = new Map<number, number[]>(services.map((service) => [service, []]));
  for (const edge of edges) {
    if (edge.from !== edge.to) {
      calls.get(edge.from)?.push(edge.to);
    }
  }
  const order = callersFirst(services, edges);
  const place = new Map(order.map((service, index) => [service, index]));
  const depth = new Map<number, number>(services.map((service) => [service, 0]));
  for (const service of order) {
    for (const called of calls.get(service) ?? []) {
      if ((place.get(called) ?? 0) > (place.get(service) ?? 0)) {
        depth.set(called, Math.max(depth.get(called) ?? 0, (depth.get(service) ?? 0) + 1));
      }
    }
  }
  const columns: number[][] = [];
  for (const service of services) {
    const index = depth.get(service) ?? 0;
    columns[index] = [...(columns[index] ?? []), service];
  }
  return columns.filter((column) => column !== undefined);
}

/**
 * Callers before those whom they call. Where calls go in circles, few calls go against the order: by the heuristic of
 * Eades, Lin and Smyth, which takes whoever calls nobody, then whom nobody calls, then who calls more than it is called.
 */
function callersFirst(keys: readonly number[], edges: readonly Edge[]): number[] {
  const rest = new Set(keys);
  const first: number[] = [];
  const last: number[] = [];
  while (rest.size > 0) {
    const sums = new Map([...rest].map((key) => [key, { calls: 0, called: 0 }]));
    for (const { from, to, weight } of edges) {
      const [caller, target] = [sums.get(from), sums.get(to)];
      if (from !== to && caller !== undefined && target !== undefined) {
        caller.calls += weight;
        target.called += weight;
      }
    }
    const standing = [...sums];
    const ends = standing.filter(([, { calls, called }]) => calls === 0 && called > 0);
    const begins = standing.filter(([, { called }]) => called === 0);
    const most = standing.reduce((one, other) => (surplus(other[1]) > surplus(one[1]) ? other : one));
    const taken = ends.length > 0 ? ends : begins.length > 0 ? begins : [most];
    (ends.length > 0 ? last : first).push(...taken.map(([key]) => key));
    for (const [key] of taken) {
      rest.delete(key);
    }
  }
  return [...first, ...last.reverse()];
}

function surplus({ calls, called }: { calls: number; called: number }): number {
  return calls - called;
}

/** Each column in the order of the middle of its neighbours, so that fewer lines cross. */
function untangle(columns: readonly number[][], edges: readonly Edge[]): readonly number[][] {
  const neighbours = new Map<number, number[]>();
  for (const { from, to } of edges) {
    neighbours.set(from, [...(neighbours.get(from) ?? []), to]);
    neighbours.set(to, [...(neighbours.get(to) ?? []), from]);
  }
  let current = columns;
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const rows = new Map(current.flatMap((column) => column.map((service, row) => [service, row / column.length])));
    const middle = (service: number) => {
      const of = (neighbours.get(service) ?? []).map((each) => rows.get(each) ?? 0);
      return of.length === 0 ? (rows.get(service) ?? 0) : of.reduce((sum, row) => sum + row, 0) / of.length;
    };
    current = current.map((column) => [...column].sort((one, other) => middle(one) - middle(other)));
  }
  return current;
}
