import type { ComponentChildren } from "preact";

/** What may be wider than there is room for. It scrolls, with the keyboard too. There may be many: it is no landmark. */
export function Wide({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    // biome-ignore lint/a11y/useSemanticElements: it is no group of fields
    <div class="wide" role="group" tabIndex={0} aria-label={label}>
      {children}
    </div>
  );
}
