/** Tabs: one can be reached with Tab, the others with the arrow keys from there. */

import { go, withParameters } from "../shell/route";

export interface Tab {
  readonly key: string;
  readonly title: string;
}

export function Tabs({ tabs, current, label }: { tabs: readonly Tab[]; current: string; label: string }) {
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) {
      return;
    }
    event.preventDefault();
    const index = tabs.findIndex((tab) => tab.key === current);
    const next = tabs[(index + step + tabs.length) % tabs.length];
    if (next !== undefined) {
      go(withParameters({ tab: next.key }), { replacing: true });
      const list = event.currentTarget as HTMLElement;
      requestAnimationFrame(() => list.querySelector<HTMLElement>("[aria-selected=true]")?.focus());
    }
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} onKeyDown={onKeyDown}>
      {tabs.map((tab) => (
        <button
          key={tab.key}
          type="button"
          role="tab"
          id={`tab-${tab.key}`}
          aria-controls="tab-panel"
          aria-selected={tab.key === current}
          tabIndex={tab.key === current ? 0 : -1}
          onClick={() => go(withParameters({ tab: tab.key }), { replacing: true })}
        >
          {tab.title}
        </button>
      ))}
    </div>
  );
}
