/** What is drawn of a graph: its services or, of many, groups of them, and the calls between these. */

import { type Edge, edgesOf, type MeshGraph, type Target } from "./graph";
import { COLLATION } from "./text";

const MOST_BOXES = 150;
const MOST_EDGES = 1500;
const MOST_TANGLED = 150; // edges between services of which most are alike: above it, they are a band and no drawing
const MOST_GROUPS = 35; // which call each other by fewer edges than are the most
const MOST_SINGLE = 60; // services of a filter that have boxes of their own beside groups

export interface Box {
  /** The number of its first service. */
  readonly key: number;
  readonly services: readonly number[];
  /** What the names of all of them begin with; empty where that is not why they are together. */
  readonly prefix: string;
}

/** Why services are in one box. */
export type Grouping = "none" | "calls" | "names";

export interface Groups {
  readonly grouping: Grouping;
  readonly boxes: readonly Box[];
}

export interface Picture {
  readonly grouping: Grouping;
  readonly boxes: readonly Box[];
  readonly boxOf: ReadonlyMap<number, number>;
  readonly edges: readonly Edge[];
}

/** Services that call the same and are called by the same or, if that makes too many groups, whose names begin alike. */
export function groupServices(graph: MeshGraph, targets: readonly (readonly Target[])[]): Groups {
  const alike = groupBy(graph, marksOf(graph, targets));
  if (alike.length <= MOST_GROUPS) {
    return { grouping: "calls", boxes: alike.map((services) => boxOf(services, "")) };
  }
  const prefixes = graph.services.map(({ name }) => prefixOf(name));
  const byName = groupBy(graph, prefixes).sort((one, other) => other.length - one.length);
  const kept = byName.filter((services, index) => services.length > 1 && index < MOST_GROUPS - 1);
  const others = byName.slice(kept.length).flat();
  const named = kept.map((services) => boxOf(services, prefixes[services[0] ?? 0] ?? ""));
  return { grouping: "names", boxes: others.length === 0 ? named : [...named, boxOf(others, "")] };
}

/** Whom each service calls, and who calls it: the same text for all that do not differ in that. */
function marksOf(graph: MeshGraph, targets: readonly (readonly Target[])[]): readonly string[] {
  const marks = graph.services.map(({ outside }) => [String(outside)]);
  for (const [group, { callers }] of graph.groups.entries()) {
    for (const caller of callers) {
      marks[caller]?.push(`calls ${group}`);
    }
    for (const { to, least, most, reason } of targets[group] ?? []) {
      marks[to ?? -1]?.push(`called by ${group} ${least} ${most} ${reason}`);
    }
  }
  return marks.map((mark) => mark.join("\n"));
}

/** What stands before the first hyphen, dot or underscore, with that. */
function prefixOf(name: string): string {
  return name.match(/^[^-._]+[-._]/)?.[0] ?? name;
}

function groupBy(graph: MeshGraph, marks: readonly string[]): number[][] {
  const groups = new Map<string, number[]>();
  const numbers = graph.services.map((_, number) => number);
  for (const number of numbers.sort((one, other) => compareNames(graph, one, other))) {
    const mark = marks[number] ?? "";
    const group = groups.get(mark) ?? [];
    group.push(number);
    groups.set(mark, group);
  }
  return [...groups.values()];
}

export function compareNames(graph: MeshGraph, one: number, other: number): number {
  return COLLATION.compare(graph.services[one]?.name ?? "", graph.services[other]?.name ?? "");
}

function boxOf(services: readonly number[], prefix: string): Box {
  return { key: services[0] ?? -1, services, prefix };
}

/**
 * The picture with a box for each service, if that can be looked at; else with boxes for those that were asked for, and
 * with groups of the others; else with groups of all. With a filter, only calls from and to what was asked for.
 * Where most services are alike, groups say in a few boxes what many lines across each other do not; who opens a group
 * or filters wants to see services all the same.
 */
export function pictureOf(
  graph: MeshGraph,
  targets: readonly (readonly Target[])[],
  groups: Groups,
  shown: ReadonlySet<number>,
  asked: ReadonlySet<number>,
  isOpen: boolean,
): Picture {
  const isAlike = groups.grouping === "calls" && 2 * groups.boxes.length <= shown.size;
  const most = isAlike && !isOpen ? MOST_TANGLED : MOST_EDGES;
  const single = () => [...shown].map((service) => boxOf([service], ""));
  const around = () => [...[...asked].map((service) => boxOf([service], "")), ...groupsWithin(groups, shown, asked)];
  const attempts: (readonly [Grouping, boolean, () => readonly Box[]])[] = [
    ["none", shown.size <= MOST_BOXES, single],
    [groups.grouping, asked.size < shown.size && asked.size <= MOST_SINGLE, around],
  ];
  for (const [grouping, isSmall, boxes] of attempts) {
    const picture = isSmall ? pictureWith(graph, targets, grouping, boxes(), asked, most) : null;
    if (picture !== null) {
      return picture;
    }
  }
  const all = groupsWithin(groups, shown, new Set());
  return pictureWith(graph, targets, groups.grouping, all, asked, Number.POSITIVE_INFINITY) as Picture;
}

/** The groups, of which only some services are shown. */
function groupsWithin(groups: Groups, shown: ReadonlySet<number>, without: ReadonlySet<number>): readonly Box[] {
  return groups.boxes
    .map(({ services, prefix }) =>
      boxOf(
        services.filter((service) => shown.has(service) && !without.has(service)),
        prefix,
      ),
    )
    .filter((box) => box.services.length > 0);
}

function pictureWith(
  graph: MeshGraph,
  targets: readonly (readonly Target[])[],
  grouping: Grouping,
  boxes: readonly Box[],
  asked: ReadonlySet<number>,
  most: number,
): Picture | null {
  const boxOfService = new Map(
    boxes.flatMap(({ key, services }) => services.map((service) => [service, key] as const)),
  );
  const wanted = new Set([...asked].map((service) => boxOfService.get(service)));
  const isWanted = (from: number, to: number) => wanted.has(from) || wanted.has(to);
  const edges = edgesOf(graph, targets, boxOfService, isWanted, most);
  return edges === null ? null : { grouping, boxes, boxOf: boxOfService, edges };
}
