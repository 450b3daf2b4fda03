/** Rows of route tables, in words. */

import type { Condition, RouteRow } from "../shell/explanation";

export function ownerOf(row: RouteRow): string {
  return row.owner?.name ?? (row.patched ? "a patch's" : "everything else");
}

export function conditionsOf(row: RouteRow): string {
  return [row.hostname, ...row.asks.map(condition)].filter((text) => text !== "").join(", ");
}

function condition({ of, kind, wanted, inverted }: Condition): string {
  const not = inverted ? "not " : "";
  const how = of === "path" ? kind : kind === "Exact" ? of : `${of} ${kind}`;
  return `${not}${how} ${wanted}`.trim();
}
