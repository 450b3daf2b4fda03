/**
 * The token of whoever looks at the page.
 *
 * It is kept for this tab alone and until that is closed (`sessionStorage`), and is sent in a header. No cookie has it,
 * which a browser would send along with requests of others too (docs/adr/0089).
 */

import { forgetReader, Store } from "./store";

const KEY = "koguma-token";

export interface Session {
  readonly token: string;
  /** Why a token is asked for; null while none is. */
  readonly question: string | null;
  /** Another number for each reader. What one was shown is not shown to the next one. */
  readonly reader: number;
}

export const session = new Store<Session>({ token: storedToken(), question: null, reader: 0 });

let isAccepted = false;

export function signIn(token: string): void {
  keepToken(token.trim());
  begin(token.trim(), null);
}

export function signOut(): void {
  keepToken("");
  begin("", null);
}

/** The control plane has answered to a token. */
export function acceptToken(sent: string): void {
  isAccepted ||= session.value.token === sent;
}

/** Ask for a token, because the control plane does not take the one that it was sent, or none, or does not any more. */
export function askForToken(sent: string, reason: string): void {
  if (session.value.token !== sent || session.value.question !== null) {
    return;
  }
  if (isAccepted) {
    begin(sent, reason);
  } else {
    session.value = { ...session.value, question: reason };
  }
}

export function dismissQuestion(): void {
  session.value = { ...session.value, question: null };
}

function begin(token: string, question: string | null): void {
  isAccepted = false;
  forgetReader();
  session.value = { token, question, reader: session.value.reader + 1 };
}

function storedToken(): string {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return ""; // a browser that stores nothing: the token lives as long as the page
  }
}

function keepToken(token: string): void {
  try {
    if (token === "") {
      sessionStorage.removeItem(KEY);
    } else {
      sessionStorage.setItem(KEY, token);
    }
  } catch {
    // The same.
  }
}
