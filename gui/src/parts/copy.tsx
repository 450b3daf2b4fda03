import { useState } from "preact/hooks";
import { announce } from "../shell/announce";

/** Copies a text. Where the browser forbids that, the text is shown to be copied by hand. */
export function CopyButton({ label, text }: { label: string; text: () => string }) {
  const [shown, setShown] = useState<string | null>(null);
  const [isDone, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text());
      setDone(true);
      announce("Copied");
      window.setTimeout(() => setDone(false), 2000);
    } catch {
      setShown(text());
    }
  };
  return (
    <>
      <button type="button" onClick={copy}>
        {isDone ? "Copied" : label}
      </button>
      {shown !== null && <input type="text" readOnly aria-label={label} value={shown} />}
    </>
  );
}
