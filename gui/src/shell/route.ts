/** Where the page is: its address below `/gui`, which says all that a link to it has to say. */

import { type Query, withQuery } from "./query";
import { Store } from "./store";

export const ROOT = "/gui";

export interface Place {
  /** The names in the path, decoded. */
  readonly path: readonly string[];
  readonly query: URLSearchParams;
}

export const place = new Store<Place>(placeNow());

function placeNow(): Place {
  const { pathname, search } = window.location;
  const names = pathname.startsWith(`${ROOT}/`) ? pathname.slice(ROOT.length + 1).split("/") : [];
  return { path: names.filter((name) => name !== "").map(decode), query: new URLSearchParams(search) };
}

function decode(name: string): string {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

/** The address of a view. The mesh that is looked at goes along, unless the parameters name another one. */
export function addressOf(path: readonly string[], parameters: Query = {}): string {
  const mesh = place.value.query.get("mesh");
  return withQuery(`${ROOT}/${path.map(encodeURIComponent).join("/")}`, { mesh, ...parameters });
}

/** The address of this view with other parameters. */
export function withParameters(parameters: Query): string {
  const kept: Record<string, readonly string[]> = {};
  for (const name of place.value.query.keys()) {
    kept[name] = place.value.query.getAll(name);
  }
  return addressOf(place.value.path, { ...kept, ...parameters });
}

export function go(address: string, { replacing = false } = {}): void {
  if (address === window.location.pathname + window.location.search) {
    return;
  }
  if (replacing) {
    window.history.replaceState(null, "", address);
  } else {
    window.history.pushState(null, "", address);
  }
  place.value = placeNow();
}

/** Follow links within the page without loading it anew. */
export function followLinks(): void {
  window.addEventListener("popstate", () => {
    place.value = placeNow();
  });
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (link === null || !isPlainClick(event) || link.target !== "" || link.hasAttribute("download")) {
      return;
    }
    if (link.origin === window.location.origin && isWithin(link.pathname)) {
      event.preventDefault();
      go(link.pathname + link.search);
    }
  });
}

function isPlainClick(event: MouseEvent): boolean {
  const withKey = event.ctrlKey || event.metaKey || event.shiftKey || event.altKey;
  return !event.defaultPrevented && event.button === 0 && !withKey;
}

function isWithin(path: string): boolean {
  return path === ROOT || path.startsWith(`${ROOT}/`);
}
