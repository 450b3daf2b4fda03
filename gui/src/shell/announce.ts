/** What is said aloud by a screen reader, without moving the focus. */

import { onNewReader, readerStore } from "./store";

export const announcement = readerStore("");

let waiting: string[] = [];
let timer = 0;

onNewReader(() => {
  waiting = [];
});

/** Say something soon. What is said within a second is said together, so that nobody is talked at without an end. */
export function announce(text: string): void {
  if (!waiting.includes(text)) {
    waiting.push(text);
  }
  window.clearTimeout(timer);
  timer = window.setTimeout(() => {
    announcement.value = waiting.slice(0, 3).join(". ");
    waiting = [];
  }, 1000);
}
