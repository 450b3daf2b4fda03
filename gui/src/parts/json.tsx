/** Plain data as a tree that opens branch by branch. What is closed is not drawn. */

import { useState } from "preact/hooks";
import { visible } from "../shell/text";

const FIRST = 100;

export function Json({ value, name, open = false }: { value: unknown; name?: string; open?: boolean }) {
  if (value === null || typeof value !== "object") {
    return (
      <div class="json leaf">
        {name !== undefined && <Key name={name} />}
        <Leaf value={value} />
      </div>
    );
  }
  return <Branch value={value} open={open} {...(name === undefined ? {} : { name })} />;
}

function Branch({ value, name, open }: { value: object; name?: string; open: boolean }) {
  const [isOpen, setOpen] = useState(open);
  const [limit, setLimit] = useState(FIRST);
  const entries = Object.entries(value);
  const [begin, end] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (entries.length === 0) {
    return (
      <div class="json leaf">
        {name !== undefined && <Key name={name} />}
        <span class="quiet">{`${begin}${end}`}</span>
      </div>
    );
  }
  return (
    <details class="json" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {name !== undefined && <Key name={name} />}
        <span class="quiet">{`${begin} ${entries.length} ${end}`}</span>
      </summary>
      {isOpen &&
        entries
          .slice(0, limit)
          .map(([key, inner]) => (
            <Json key={key} name={key} value={inner} open={entries.length === 1 || (open && isSmall(inner))} />
          ))}
      {isOpen && entries.length > limit && (
        <button type="button" class="more" onClick={() => setLimit(limit + 10 * FIRST)}>
          {entries.length - limit} more
        </button>
      )}
    </details>
  );
}

function isSmall(value: unknown): boolean {
  return value !== null && typeof value === "object" && Object.keys(value).length <= 3;
}

function Key({ name }: { name: string }) {
  return (
    <>
      <bdi class="key">{visible(name)}</bdi>
      {": "}
    </>
  );
}

function Leaf({ value }: { value: unknown }) {
  const kind = value === null ? "null" : typeof value;
  return (
    <bdi class={`value ${kind}`}>{visible(typeof value === "string" ? value : (JSON.stringify(value) ?? ""))}</bdi>
  );
}
