/** Text of others, as it may be shown. */

// Controls but for ends of lines and tabs, marks that change the direction of text, and what takes no room.
const UNSEEN =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: it is what they are looked for by
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** A text in which all is seen that stands in it. */
export function visible(text: string): string {
  return text.replace(UNSEEN, (mark) => `⟨${code(mark)}⟩`);
}

function code(mark: string): string {
  return `U+${mark.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/** A value of a document: a text as it is, a list of texts with commas, anything else as JSON. */
export function textOf(value: unknown): string {
  if (typeof value === "string") {
    return value;
  }
  if (Array.isArray(value) && value.length > 0 && value.every((each) => typeof each === "string")) {
    return value.join(", ");
  }
  return JSON.stringify(value) ?? "";
}

/** Names in the order in which people look for them: 2 before 10. */
export const COLLATION = new Intl.Collator("en", { numeric: true });

export function quantity(count: number, noun: string, plural = `${noun}s`): string {
  return `${count.toLocaleString("en")} ${count === 1 ? noun : plural}`;
}
