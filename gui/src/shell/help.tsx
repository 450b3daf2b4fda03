/** The dialog with all keys: those of the commands, and those of parts of the page. */

import { useEffect, useRef } from "preact/hooks";
import { type Command, isHelpOpen } from "./commands";
import { useStore } from "./store";

export function Help({ commands }: { commands: readonly Command[] }) {
  const isOpen = useStore(isHelpOpen);
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (isOpen) {
      dialog.current?.showModal();
    }
  }, [isOpen]);
  return (
    <dialog
      ref={dialog}
      aria-labelledby="help-title"
      onClose={() => {
        isHelpOpen.value = false;
      }}
    >
      <h2 id="help-title">Keys</h2>
      <dl class="keys">
        {commands.map(({ keys, help }) => (
          <Keys key={keys} keys={keys.split(" ")} help={help} />
        ))}
        <Keys keys={["←", "→", "↑", "↓"]} help="from cell to cell, and from tab to tab" />
        <Keys keys={["Esc"]} help="close this" />
      </dl>
      <form method="dialog">
        <button type="submit" class="main">
          Close
        </button>
      </form>
    </dialog>
  );
}

function Keys({ keys, help }: { keys: readonly string[]; help: string }) {
  return (
    <div>
      <dt>
        {keys.map((key) => (
          <kbd key={key}>{key}</kbd>
        ))}
      </dt>
      <dd>{help}</dd>
    </div>
  );
}
