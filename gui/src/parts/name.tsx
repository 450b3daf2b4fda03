import { visible } from "../shell/text";

/** A name or another text of somebody else's. Its direction does not reach what stands around it. */
export function Name({ text, whole = false }: { text: string; whole?: boolean }) {
  const seen = visible(text);
  return (
    <bdi class={whole ? "name whole" : "name"} title={whole ? undefined : seen}>
      {seen}
    </bdi>
  );
}
