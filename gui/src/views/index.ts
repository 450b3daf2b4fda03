/** Every view of the page. A new one is a module here and a row below; see README.md. */

import type { ComponentType } from "preact";
import { ChangesView, ChangeView } from "./changes";
import { ExplainView } from "./explain";
import { FleetView } from "./fleet";
import { MeshView } from "./mesh";
import { PoliciesView, PolicyView } from "./policies";
import { ProxiesView } from "./proxies";
import { ProxyView } from "./proxy";

export interface View {
  /** The first name of its address. */
  readonly path: string;
  /** The names that follow in the address, if there have to be some. */
  readonly names: number;
  readonly title: string;
  /** After `g`, the key that leads there; empty for what the navigation does not list. */
  readonly key: string;
  readonly Component: ComponentType<{ readonly names: readonly string[] }>;
}

export const VIEWS: readonly View[] = [
  { path: "fleet", names: 0, title: "Fleet", key: "f", Component: FleetView },
  { path: "proxies", names: 0, title: "Proxies", key: "p", Component: ProxiesView },
  { path: "proxies", names: 2, title: "Proxy", key: "", Component: ProxyView },
  { path: "mesh", names: 0, title: "Mesh", key: "m", Component: MeshView },
  { path: "explain", names: 0, title: "Explain", key: "e", Component: ExplainView },
  { path: "policies", names: 0, title: "Policies", key: "o", Component: PoliciesView },
  { path: "policies", names: 3, title: "Policy", key: "", Component: PolicyView },
  { path: "changes", names: 0, title: "Changes", key: "c", Component: ChangesView },
  { path: "changes", names: 1, title: "Change", key: "", Component: ChangeView },
];

export function viewAt(path: readonly string[]): View | null {
  return VIEWS.find((view) => view.path === path[0] && view.names === path.length - 1) ?? null;
}
