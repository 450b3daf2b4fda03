/** What follows the `?` of an address, of the page as of the API. */

/** A name may have several values; null and undefined leave it out. */
export type Query = Readonly<Record<string, string | readonly string[] | null | undefined>>;

export function withQuery(path: string, query: Query): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of value === null || value === undefined ? [] : typeof value === "string" ? [value] : value) {
      search.append(name, each);
    }
  }
  const text = search.toString();
  return text === "" ? path : `${path}?${text}`;
}
