/** What stands around every view: the head, the navigation, and what is said when contact is lost. */

import { useEffect, useRef } from "preact/hooks";
import { Name } from "../parts/name";
import { VIEWS, type View, viewAt } from "../views/index";
import { announce, announcement } from "./announce";
import { moment, now } from "./clock";
import { type Command, focusSearch, isHelpOpen, listenForKeys } from "./commands";
import { contact, storeContact, tryNow } from "./feed";
import { fleet } from "./fleet";
import { Help } from "./help";
import { useMeshes } from "./meshes";
import { addressOf, go, place, ROOT, withParameters } from "./route";
import { session, signOut } from "./session";
import { SignIn } from "./sign-in";
import { useStore } from "./store";
import { quantity } from "./text";
import { nextTheme, theme } from "./theme";

const LISTED = VIEWS.filter((view) => view.key !== "");
const FIRST = "fleet";

const COMMANDS: readonly Command[] = [
  { keys: "/", help: "search in this view", run: focusSearch },
  { keys: "?", help: "show these keys", run: openHelp },
  { keys: "t", help: "light, dark, or as the system has it", run: nextTheme },
  ...LISTED.map(({ key, path, title }) => ({
    keys: `g ${key}`,
    help: `go to ${title}`,
    run: () => go(addressOf([path])),
  })),
];

/** The page of one reader. With the next one all of it begins anew. */
export function Page() {
  return <App key={useStore(session).reader} />;
}

function App() {
  const { path } = useStore(place);
  const view = viewAt(path);
  useEffect(() => {
    if (path.length === 0) {
      go(addressOf([FIRST]), { replacing: true });
    }
  }, [path]);
  useEffect(() => listenForKeys(COMMANDS), []);
  useTroubleAnnounced();
  return (
    <>
      <button type="button" class="skip" onClick={() => document.getElementById("main")?.focus()}>
        Skip to the content
      </button>
      <Head />
      <Navigation current={path[0] ?? ""} />
      <main id="main" tabIndex={-1}>
        <ContactNote />
        <StoreNote />
        {view === null ? path.length > 0 && <Nowhere /> : <CurrentView view={view} names={path.slice(1)} />}
      </main>
      <p class="unseen" role="status" aria-live="polite">
        {useStore(announcement)}
      </p>
      <SignIn />
      <Help commands={COMMANDS} />
    </>
  );
}

/** A view below its heading, which gets the focus when another view comes, so that a screen reader says where one is. */
function CurrentView({ view, names }: { view: View; names: readonly string[] }) {
  const heading = useRef<HTMLHeadingElement>(null);
  const isFirst = useRef(true);
  const title = names.length === 0 ? view.title : names.join("/");
  useEffect(() => {
    document.title = `${title} · Koguma`;
    if (!isFirst.current) {
      heading.current?.focus();
    }
    isFirst.current = false;
  }, [title]);
  return (
    <>
      <h1 ref={heading} tabIndex={-1}>
        {names.length > 0 && <span class="quiet">{view.title} </span>}
        <Name text={title} whole />
      </h1>
      <view.Component key={`${view.title} ${title}`} names={names} />
    </>
  );
}

/** Say so when more proxies than before do not come right by themselves. */
function useTroubleAnnounced(): void {
  const { proxies, isLoaded } = useStore(fleet);
  const known = useRef<number | null>(null);
  useEffect(() => {
    if (isLoaded) {
      const count = proxies.filter(({ state }) => state === "refusing" || state === "failed").length;
      if (known.current !== null && count > known.current) {
        announce(`${quantity(count, "proxy is", "proxies are")} refusing or failed`);
      }
      known.current = count;
    }
  }, [proxies, isLoaded]);
}

function Nowhere() {
  return (
    <>
      <h1>Nothing here</h1>
      <p>
        There is no such view. <a href={addressOf([FIRST])}>The fleet</a> is a place to begin.
      </p>
    </>
  );
}

function Head() {
  const chosen = useStore(theme);
  const { token } = useStore(session);
  return (
    <header>
      <a class="brand" href={addressOf([FIRST])}>
        Koguma
      </a>
      <MeshChooser />
      <ContactState />
      <span class="grows" />
      {token !== "" && (
        <button type="button" class="plain" onClick={leave}>
          Sign out
        </button>
      )}
      <button type="button" class="plain" onClick={nextTheme} title="Light, dark, or as the system has it">
        Theme: {chosen}
      </button>
      <button type="button" class="plain" onClick={openHelp}>
        Help <kbd>?</kbd>
      </button>
    </header>
  );
}

/** Sign out, and leave the address: there are names in it. */
function leave(): void {
  go(ROOT, { replacing: true });
  signOut();
}

function openHelp(): void {
  isHelpOpen.value = true;
}

function MeshChooser() {
  const { query } = useStore(place);
  const meshes = useMeshes();
  const mesh = query.get("mesh") ?? "";
  const listed = mesh === "" || meshes.includes(mesh) ? meshes : [mesh, ...meshes];
  return (
    <label class="mesh">
      Mesh{" "}
      <select value={mesh} onChange={(event) => go(withParameters({ mesh: event.currentTarget.value || null }))}>
        <option value="">all</option>
        {listed.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}

function Navigation({ current }: { current: string }) {
  useStore(place); // its links carry the mesh along
  return (
    <nav aria-label="Views">
      <ul>
        {LISTED.map((view) => (
          <li key={view.path}>
            <a href={addressOf([view.path])} aria-current={view.path === current ? "page" : undefined}>
              {view.title}
            </a>
          </li>
        ))}
      </ul>
    </nav>
  );
}

function ContactState() {
  const state = useStore(contact);
  const words = {
    live: "live",
    connecting: "connecting …",
    resting: "resting",
    refused: "not live",
    lost: "lost contact",
  }[state.kind];
  return <span class={`contact ${state.kind}`}>{words}</span>;
}

/** A control plane whose store is away, or takes no writes, answers questions as before. */
function StoreNote() {
  const { follows, writes } = useStore(storeContact);
  if (follows && writes) {
    return null;
  }
  return (
    <div class="note bad" role="status">
      {follows ? (
        <p>
          <strong>The store refuses writes,</strong> as when its disk is full. Proxies are served what is stored; no
          change is taken until it takes writes again.
        </p>
      ) : (
        <p>
          <strong>The control plane cannot read its store.</strong> Proxies keep what they have; what others write is
          not shown and not served until it can.
        </p>
      )}
    </div>
  );
}

function ContactNote() {
  const state = useStore(contact);
  const today = useStore(now);
  const kind = useRef(state.kind);
  useEffect(() => {
    if (state.kind === "lost" && kind.current !== "lost") {
      announce("Lost contact with the control plane");
    } else if (state.kind === "live" && kind.current === "lost") {
      announce("Contact is back");
    }
    kind.current = state.kind;
  }, [state]);
  if (state.kind === "refused") {
    return (
      <div class="note">
        <p>
          This page does not update by itself: <Name text={state.reason} whole />{" "}
          <button type="button" onClick={tryNow}>
            Try again
          </button>
        </p>
      </div>
    );
  }
  if (state.kind !== "lost") {
    return null;
  }
  const seconds = Math.max(0, Math.ceil((state.next.getTime() - today) / 1000));
  return (
    <div class="note bad">
      <p>
        <strong>Lost contact since {moment(state.since)}.</strong> What is shown is as it was then.{" "}
        <Name text={state.reason} whole />. Next try {seconds === 0 ? "now" : `in ${seconds} s`}.{" "}
        <button type="button" onClick={tryNow}>
          Try now
        </button>
      </p>
    </div>
  );
}
