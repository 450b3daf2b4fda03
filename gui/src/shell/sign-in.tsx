/** The dialog that asks for a user token when the control plane wants one. */

import { useEffect, useRef, useState } from "preact/hooks";
import { Name } from "../parts/name";
import { dismissQuestion, session, signIn } from "./session";
import { useStore } from "./store";

export function SignIn() {
  const { question } = useStore(session);
  const dialog = useRef<HTMLDialogElement>(null);
  const [token, setToken] = useState("");
  useEffect(() => {
    const element = dialog.current;
    if (question !== null && element !== null && !element.open) {
      element.showModal();
    } else if (question === null) {
      element?.close();
    }
  }, [question]);
  const submit = (event: Event) => {
    event.preventDefault();
    signIn(token);
    setToken("");
  };
  return (
    <dialog ref={dialog} aria-labelledby="sign-in-title" onCancel={dismissQuestion}>
      <h2 id="sign-in-title">Who are you?</h2>
      <p>
        <Name text={question ?? ""} whole />
      </p>
      <form onSubmit={submit}>
        <label>
          User token
          <input
            type="password"
            required
            autocomplete="off"
            value={token}
            onInput={(event) => setToken(event.currentTarget.value)}
          />
        </label>
        <p class="quiet">
          An administrator makes one: <code>koguma generate user-token --name NAME --group GROUP --valid-for 24h</code>.
          This tab keeps it until it is closed, and sends it to this control plane alone.
        </p>
        <button type="submit" class="main">
          Go on
        </button>
      </form>
    </dialog>
  );
}
