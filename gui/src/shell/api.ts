/** Questions to the HTTP API. The page reads nothing else. */

import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Query, withQuery } from "./query";
import { acceptToken, askForToken, session } from "./session";
import { readerStore, useStore } from "./store";

/** What is wrong with one field of a request. */
export interface Fault {
  readonly field: string;
  readonly reason: string;
  readonly hint?: string;
}

/** An answer that is none: what the API says is wrong, in its words. */
export class Problem extends Error {
  constructor(
    /** Of HTTP; 0 where nobody answered. */
    readonly status: number,
    readonly title: string,
    readonly detail: string,
    readonly faults: readonly Fault[] = [],
  ) {
    super(`${title}: ${detail}`);
  }

  /** Whether this reader may not have what he asked for. */
  get isClosed(): boolean {
    return this.status === 401 || this.status === 403;
  }
}

/** The newest revision of which the page has heard: what it shows is asked for again when that changes. */
export const revision = readerStore(0);

/** How often the control plane has said that what the reader knows may be wrong, as when its rights have changed. */
export const reloads = readerStore(0);

const PATIENCE = 65_000; // milliseconds; the API gives up after 60 seconds

/** A path of the API, of parts that are names and may hold anything. */
export function apiPath(...parts: readonly string[]): string {
  return `/${parts.map(encodeURIComponent).join("/")}`;
}

export async function ask<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return (await answerOf<T>(withQuery(path, query), {}, signal)).data;
}

/** What was answered, and the tag of it, if it has one. */
export interface TaggedAnswer<T> {
  readonly data: T;
  readonly tag: string | null;
}

/** With the tag of an earlier answer, that is refused with 412 where it would be another one by now. */
export async function post<T>(path: string, body: unknown, query: Query = {}, tag?: string): Promise<TaggedAnswer<T>> {
  const headers = { "content-type": "application/json", ...(tag === undefined ? {} : { "if-match": tag }) };
  return await answerOf<T>(withQuery(path, query), { method: "POST", body: JSON.stringify(body), headers });
}

/** An answer for the reader who asked, in good time. Another reader may have come while it was on its way. */
async function answerOf<T>(url: string, init: RequestInit, leaving?: AbortSignal): Promise<TaggedAnswer<T>> {
  const { reader } = session.value;
  const limit = AbortSignal.timeout(PATIENCE);
  const signal = leaving === undefined ? limit : AbortSignal.any([leaving, limit]);
  const response = await send(url, init, signal);
  const data = await received(response.json() as Promise<T>, signal);
  if (session.value.reader !== reader) {
    throw new Problem(0, "Nobody waits for this answer", "who asked has left");
  }
  return { data, tag: response.headers.get("etag") };
}

/** A request with the token of this session, for as long as it takes. Raises `Problem` for everything but a good answer. */
export async function send(url: string, init: RequestInit, signal: AbortSignal): Promise<Response> {
  const { token } = session.value;
  const headers = new Headers(init.headers);
  if (token !== "") {
    headers.set("authorization", `Bearer ${token}`);
  }
  const response = await received(fetch(url, { ...init, headers, cache: "no-store", signal }), signal);
  if (response.ok) {
    acceptToken(token);
    return response;
  }
  const problem = await problemOf(response);
  if (problem.status === 401) {
    askForToken(token, problem.detail);
  }
  throw problem;
}

/** What comes from the control plane. Raises `Problem` if it does not, and what was thrown if nobody waits for it. */
async function received<T>(part: Promise<T>, signal: AbortSignal): Promise<T> {
  try {
    return await part;
  } catch (error) {
    const isLeft = signal.aborted && signal.reason?.name !== "TimeoutError";
    if (isLeft || error instanceof SyntaxError) {
      throw error;
    }
    throw new Problem(0, "The control plane does not answer", "it cannot be reached, or takes too long");
  }
}

async function problemOf(response: Response): Promise<Problem> {
  try {
    const body = (await response.json()) as { title?: string; detail?: string; invalid_parameters?: Fault[] };
    return new Problem(
      response.status,
      body.title ?? response.statusText,
      body.detail ?? "",
      body.invalid_parameters ?? [],
    );
  } catch {
    return new Problem(response.status, `The answer is ${response.status}`, response.statusText);
  }
}

/** What a view shows of a question: the last answer, also while the next one is on its way, and what went wrong. */
export interface Answer<T> {
  readonly data: T | null;
  readonly problem: Problem | null;
  readonly isLoading: boolean;
  readonly reload: () => void;
}

/**
 * The answer to a question, asked again when the path, the query or what `follows` has changes, and when
 * the control plane says so.
 * A path that is null asks nothing. With another reader, the whole page begins anew, and all that was answered is gone.
 */
export function useAnswer<T>(path: string | null, query: Query = {}, follows: string | number = 0): Answer<T> {
  return useAnswerOnDemand<T>(path, query, `${follows} ${useStore(reloads)}`);
}

/** The same, for a question that costs others something: it is not asked again because the control plane says so. */
export function useAnswerOnDemand<T>(path: string | null, query: Query, follows: string | number): Answer<T> {
  const url = path === null ? null : withQuery(path, query);
  const [turn, setTurn] = useState(0);
  const [known, setKnown] = useState<{ url: string | null; data: T | null; problem: Problem | null }>({
    url: null,
    data: null,
    problem: null,
  });
  const [isLoading, setLoading] = useState(false);
  const inquiry = useRef<Inquiry<T> | null>(null);
  useEffect(() => {
    if (url === null) {
      setLoading(false);
      return;
    }
    const started = new Inquiry<T>(url, setLoading, (answer) => {
      setKnown((before) => {
        const isStill = before.url === url && answer.problem?.isClosed !== true; // what may not be read is not shown
        return { url, data: answer.data ?? (isStill ? before.data : null), problem: answer.problem };
      });
    });
    inquiry.current = started;
    return () => {
      inquiry.current = null;
      started.leave();
    };
  }, [url]);
  useEffect(() => void inquiry.current?.ask(), [url, turn, follows]);
  const reload = useCallback(() => setTurn((before) => before + 1), []);
  return useMemo(() => {
    const isCurrent = known.url === url && url !== null;
    return {
      data: isCurrent ? known.data : null,
      problem: isCurrent ? known.problem : null,
      isLoading: isLoading || (url !== null && !isCurrent),
      reload,
    };
  }, [known, url, isLoading, reload]);
}

/**
 * One question, asked again and again. Asked while it is under way, it is asked once more after the answer:
 * one that takes longer than it is good for comes to an end too.
 */
class Inquiry<T> {
  readonly #leaving = new AbortController();
  #isWanted = false;
  #isUnderWay = false;

  constructor(
    private readonly url: string,
    private readonly setLoading: (isLoading: boolean) => void,
    private readonly note: (answer: { data: T | null; problem: Problem | null }) => void,
  ) {}

  /** Nobody waits for the answer any more. */
  leave(): void {
    this.#leaving.abort();
  }

  async ask(): Promise<void> {
    this.#isWanted = true;
    if (this.#isUnderWay) {
      return;
    }
    const { signal } = this.#leaving;
    this.#isUnderWay = true;
    this.setLoading(true);
    while (this.#isWanted && !signal.aborted) {
      this.#isWanted = false;
      const answer = await answered(ask<T>(this.url, {}, signal));
      if (!signal.aborted) {
        this.note(answer);
      }
    }
    this.#isUnderWay = false;
    if (!signal.aborted) {
      this.setLoading(false);
    }
  }
}

async function answered<T>(answer: Promise<T>): Promise<{ data: T | null; problem: Problem | null }> {
  try {
    return { data: await answer, problem: null };
  } catch (error) {
    return { data: null, problem: asProblem(error) };
  }
}

export function asProblem(error: unknown): Problem {
  return error instanceof Problem ? error : new Problem(0, "The page has a fault", String(error));
}
