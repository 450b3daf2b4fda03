/** The time, for what says how long ago something was. */

import { Store } from "./store";

const SECOND = 1000;

/** Milliseconds since 1970, to the second. */
export const now = new Store(Date.now());

export function keepTime(): void {
  window.setInterval(() => {
    if (!document.hidden) {
      now.value = Date.now();
    }
  }, SECOND);
  document.addEventListener("visibilitychange", () => {
    now.value = Date.now();
  });
}

const UNITS: readonly (readonly [number, string])[] = [
  [86_400, "d"],
  [3600, "h"],
  [60, "m"],
  [1, "s"],
];

/** How long something takes: `3d 4h`, `12m 5s`, `0s`. */
export function duration(milliseconds: number): string {
  let seconds = Math.max(0, Math.floor(milliseconds / SECOND));
  const words: string[] = [];
  for (const [size, unit] of UNITS) {
    if (seconds >= size && words.length < 2) {
      words.push(`${Math.floor(seconds / size)}${unit}`);
      seconds %= size;
    } else if (words.length > 0) {
      break;
    }
  }
  return words.join(" ") || "0s";
}

/** A moment as a clock on this machine shows it: the day only if it is not today. */
export function moment(at: Date, today: Date = new Date()): string {
  const time = at.toLocaleTimeString(undefined, { hour12: false });
  return at.toDateString() === today.toDateString() ? time : `${at.toLocaleDateString()} ${time}`;
}
