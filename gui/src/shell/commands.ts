/** Keys that do something wherever the focus is, but in a field or a dialog. */

import { Store } from "./store";

export const isHelpOpen = new Store(false);

export interface Command {
  /** One key, or two that are pressed one after the other: `g f`. */
  readonly keys: string;
  /** What it does, as the help says it. */
  readonly help: string;
  readonly run: () => void;
}

const PAUSE = 1500; // milliseconds between the two keys

/** Run commands by their keys, until the answer is called. */
export function listenForKeys(commands: readonly Command[]): () => void {
  let first = "";
  let at = 0;
  const run = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isWriting(event.target) || isDialogOpen()) {
      return;
    }
    const keys = Date.now() - at < PAUSE && first !== "" ? `${first} ${event.key}` : event.key;
    const command = commands.find((known) => known.keys === keys);
    first = command === undefined && event.key.length === 1 ? event.key : "";
    at = Date.now();
    if (command !== undefined) {
      event.preventDefault();
      command.run();
    }
  };
  document.addEventListener("keydown", run);
  return () => document.removeEventListener("keydown", run);
}

function isWriting(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest("input, textarea, select, [contenteditable]") !== null;
}

/** Whether a dialog is open, which has keys of its own. */
function isDialogOpen(): boolean {
  return document.querySelector("dialog[open]") !== null;
}

/** Put the focus into the search of this view, if it has one. */
export function focusSearch(): void {
  const field = document.querySelector<HTMLInputElement>("main [data-search]");
  field?.focus();
  field?.select();
}
