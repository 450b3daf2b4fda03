/** The connection by which the control plane tells of what changes. It is made again for as long as the page is seen. */

import { Problem, reloads, revision, send } from "./api";
import { EventReader, type ServerEvent } from "./events";
import { session } from "./session";
import { readerStore } from "./store";

export type Contact =
  | { readonly kind: "connecting" }
  | { readonly kind: "live" }
  /** Nobody sees the page: browsers grant all windows of one host a few connections together. */
  | { readonly kind: "resting" }
  /** The control plane answers, and tells this reader nothing: he may not read it, or too many do. */
  | { readonly kind: "refused"; readonly reason: string }
  | { readonly kind: "lost"; readonly since: Date; readonly reason: string; readonly next: Date };

export const contact = readerStore<Contact>({ kind: "connecting" });

/**
 * Whether the control plane can read its store, and write to it. If it cannot read it, what it shows may be older than
 * what is stored. Of a folder of files, which takes no writes ever, both are true while it can be read.
 */
export interface StoreContact {
  readonly follows: boolean;
  readonly writes: boolean;
}

export const storeContact = readerStore<StoreContact>({ follows: true, writes: true });

type Listener = (data: unknown) => void;

const FEED = "/_feed";
const SILENCE = 40_000; // milliseconds: the control plane says something every 15 seconds
const FIRST_WAIT = 1000;
const LONGEST_WAIT = 30_000;
const UNSEEN = 5000;

const listeners = new Map<string, Set<Listener>>();
let lastId = "";
let { reader } = session.value;
let heardAt = Date.now();
let leave: (reason: string | null) => void = () => undefined;
let hurry: () => void = () => undefined;

/** Hear of each event of a name, until the answer is called. `open`: a connection was made, and what came before it is not known. */
export function onEvent(name: string, listener: Listener): () => void {
  const ofName = listeners.get(name) ?? new Set();
  listeners.set(name, ofName.add(listener));
  return () => ofName.delete(listener);
}

/** Do not wait for the next try. */
export function tryNow(): void {
  hurry();
}

/** Stay connected. It is called once. */
export async function stayConnected(): Promise<never> {
  heedTheBrowser();
  onEvent("world", (data) => {
    revision.value = (data as { revision: number }).revision;
  });
  onEvent("contact", (data) => {
    storeContact.value = data as StoreContact;
  });
  onEvent("reload", () => {
    reloads.value += 1;
  });
  let wait = FIRST_WAIT;
  for (;;) {
    while (document.hidden) {
      contact.value = { kind: "resting" };
      await patience(LONGEST_WAIT);
    }
    const began = Date.now();
    const end = await connection();
    if (end !== null && end.status >= 400 && end.status < 500) {
      contact.value = { kind: "refused", reason: end.detail };
      await patience(end.status === 401 ? Number.MAX_SAFE_INTEGER : LONGEST_WAIT);
    } else if (end === null || document.hidden) {
      wait = FIRST_WAIT; // it was over as it should be, and another one follows
      await patience(Math.max(0, began + FIRST_WAIT - Date.now()));
    } else {
      const pause = wait * (0.5 + Math.random() / 2);
      const since = contact.value.kind === "lost" ? contact.value.since : new Date(heardAt);
      contact.value = { kind: "lost", since, reason: end.detail, next: new Date(Date.now() + pause) };
      await patience(pause);
      wait = Math.min(wait * 2, LONGEST_WAIT);
    }
  }
}

/** Leave and come again as windows, networks and tokens do. */
function heedTheBrowser(): void {
  let timer = 0;
  window.addEventListener("online", tryNow);
  window.addEventListener("offline", () => leave("this machine has no network"));
  session.subscribe(() => {
    if (session.value.reader !== reader) {
      reader = session.value.reader;
      lastId = "";
      leave(null);
      tryNow();
    }
  });
  document.addEventListener("visibilitychange", () => {
    window.clearTimeout(timer);
    if (document.hidden) {
      timer = window.setTimeout(() => leave(null), UNSEEN);
    } else {
      tryNow();
    }
  });
}

/** One connection; answers why it was lost, or null where it ended as it should. */
async function connection(): Promise<Problem | null> {
  const leaving = new AbortController();
  let reason: string | null = `nothing was heard for ${SILENCE / 1000} seconds`;
  leave = (why) => {
    reason = why;
    leaving.abort();
  };
  let timer = 0;
  const wait = () => {
    window.clearTimeout(timer);
    timer = window.setTimeout(() => leaving.abort(), SILENCE);
  };
  wait();
  try {
    await readEvents(leaving.signal, () => {
      heardAt = Date.now();
      wait();
    });
    return null;
  } catch (error) {
    if (leaving.signal.aborted) {
      return reason === null ? null : new Problem(0, "", reason);
    }
    return error instanceof Problem ? error : new Problem(0, "", `the page has a fault: ${error}`);
  } finally {
    window.clearTimeout(timer);
    leave = () => undefined;
  }
}

/** Read until the feed ends. */
async function readEvents(signal: AbortSignal, hear: () => void): Promise<void> {
  const headers = lastId === "" ? {} : { "last-event-id": lastId };
  const response = await send(FEED, { headers }, signal);
  hear();
  contact.value = { kind: "live" };
  if (lastId === "") {
    tell({ name: "open", data: "null", id: "" });
  }
  const reader = new EventReader();
  reader.lastId = lastId;
  let hasHeard = false;
  for await (const piece of pieces(response.body)) {
    hear();
    hasHeard = true; // a heartbeat too: where nothing happens, a feed ends without an event
    for (const event of reader.read(piece)) {
      if (event.name === "end") {
        heedEnd(JSON.parse(event.data) as FeedEnd);
      }
      tell(event);
      lastId = event.id;
    }
  }
  if (!hasHeard) {
    throw connectionFault();
  }
}

/** Why the control plane ends a feed before its time is over. */
interface FeedEnd {
  readonly reason: string;
  readonly stopping?: boolean;
}

/** One that ends lets its proxies go: what it could tell of them from now on is not how they are. */
function heedEnd({ reason, stopping = false }: FeedEnd): void {
  if (stopping) {
    throw new Problem(503, "", reason);
  }
}

function connectionFault(): Problem {
  return new Problem(0, "", "the connection broke off");
}

/** The text of a stream. Not every browser iterates over streams. */
async function* pieces(body: ReadableStream<Uint8Array> | null): AsyncGenerator<string> {
  const reader = body?.getReader();
  const decoder = new TextDecoder();
  try {
    while (reader !== undefined) {
      const { done, value } = await reader.read().catch(() => Promise.reject(connectionFault()));
      if (done) {
        return;
      }
      yield decoder.decode(value, { stream: true });
    }
  } finally {
    reader?.releaseLock();
  }
}

function tell(event: ServerEvent): void {
  const data: unknown = JSON.parse(event.data);
  for (const listener of [...(listeners.get(event.name) ?? [])]) {
    listener(data);
  }
}

function patience(milliseconds: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = window.setTimeout(resolve, Math.min(milliseconds, 2 ** 31 - 1));
    hurry = () => {
      window.clearTimeout(timer);
      resolve();
    };
  });
}
