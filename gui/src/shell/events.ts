/**
 * Server-sent events, read with `fetch`: an `EventSource` cannot send a token in a header.
 *
 * https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
 */

export interface ServerEvent {
  readonly name: string;
  readonly data: string;
  readonly id: string;
}

/** What a stream of events is put together from, piece by piece. */
export class EventReader {
  /** The id of the last event that had one. */
  lastId = "";
  #rest = "";
  #name = "";
  #data: string[] = [];

  /** The events that end in a piece of text. */
  read(piece: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    const text = this.#rest + piece;
    // A carriage return at the end may be the first half of a line's end.
    const lines = text.split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop() ?? "";
    for (const line of lines) {
      const event = this.#readLine(line);
      if (event !== null) {
        events.push(event);
      }
    }
    return events;
  }

  #readLine(line: string): ServerEvent | null {
    if (line === "") {
      return this.#dispatched();
    }
    const colon = line.indexOf(":");
    const field = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") {
      this.#name = value;
    } else if (field === "data") {
      this.#data.push(value);
    } else if (field === "id" && !value.includes("\0")) {
      this.lastId = value;
    }
    return null; // `retry` is not heeded; a line that begins with a colon is a comment, such as a heartbeat
  }

  #dispatched(): ServerEvent | null {
    const [name, data] = [this.#name || "message", this.#data];
    this.#name = "";
    this.#data = [];
    return data.length === 0 ? null : { name, data: data.join("\n"), id: this.lastId };
  }
}
