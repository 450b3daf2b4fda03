/** Light or dark: as the system has it, unless somebody chose. */

import { Store } from "./store";

export type Theme = "system" | "light" | "dark";

const KEY = "koguma-theme";
const THEMES: readonly Theme[] = ["system", "light", "dark"];

export const theme = new Store<Theme>(storedTheme());

export function nextTheme(): void {
  const next = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length] ?? "system";
  theme.value = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // A browser that stores nothing: it holds until the page is closed.
  }
}

/** Keep the document as the theme says. */
export function applyTheme(): void {
  const apply = () => {
    document.documentElement.dataset.theme = theme.value;
  };
  theme.subscribe(apply);
  apply();
}

function storedTheme(): Theme {
  try {
    const text = localStorage.getItem(KEY);
    return THEMES.find((known) => known === text) ?? "system";
  } catch {
    return "system";
  }
}
