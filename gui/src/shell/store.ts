/** A value that parts of the page look at, and are drawn again when it changes. */

import { useEffect, useState } from "preact/hooks";

export class Store<T> {
  readonly #listeners = new Set<() => void>();
  #value: T;

  constructor(value: T) {
    this.#value = value;
  }

  get value(): T {
    return this.#value;
  }

  set value(next: T) {
    if (next !== this.#value) {
      this.#value = next;
      for (const listener of [...this.#listeners]) {
        listener();
      }
    }
  }

  /** Calls a listener after each change, until the answer is called. */
  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

const forgets: (() => void)[] = [];

/** Forget something when another reader comes. */
export function onNewReader(forget: () => void): void {
  forgets.push(forget);
}

/** A value that is the reader's own: it is as it was in the beginning when another one comes. */
export function readerStore<T>(initial: T): Store<T> {
  const store = new Store(initial);
  onNewReader(() => {
    store.value = initial;
  });
  return store;
}

export function forgetReader(): void {
  for (const forget of forgets) {
    forget();
  }
}

export function useStore<T>(store: Store<T>): T {
  const [value, setValue] = useState(() => store.value);
  useEffect(() => {
    const read = () => setValue(() => store.value);
    read();
    return store.subscribe(read);
  }, [store]);
  return value;
}
