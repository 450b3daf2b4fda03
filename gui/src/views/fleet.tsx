/** Fleet: every proxy as a small cell, so that a thousand fit on a screen. */

import { Component } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import { FleetFilter, useFleetSelection } from "../parts/fleet-filter";
import { Name } from "../parts/name";
import { StateLabel } from "../parts/state";
import { Ago } from "../parts/time";
import { addressOfProxy, type FleetProxy, keyOf, ORDER, STATES } from "../shell/fleet";
import { go, place, withParameters } from "../shell/route";
import { useStore } from "../shell/store";
import { quantity, visible } from "../shell/text";

const GROUPS = ["nothing", "mesh", "service", "zone", "instance", "kind", "envoy", "state"] as const;
type Grouping = (typeof GROUPS)[number];

interface Group {
  readonly title: string;
  readonly proxies: readonly FleetProxy[];
}

export function FleetView() {
  const { query } = useStore(place);
  const by = GROUPS.find((known) => known === query.get("by")) ?? "nothing";
  const shown = useFleetSelection();
  const groups = useMemo(() => groupProxies(shown.proxies, by), [shown.proxies, by]);
  const [looked, setLooked] = useState<string | null>(null);
  const proxy = looked === null ? null : (shown.proxies.find((each) => keyOf(each) === looked) ?? null);
  return (
    <>
      <FleetFilter shown={shown}>
        <label>
          Group by{" "}
          <select
            value={by}
            onChange={(event) => go(withParameters({ by: event.currentTarget.value }), { replacing: true })}
          >
            {GROUPS.map((group) => (
              <option key={group}>{group}</option>
            ))}
          </select>
        </label>
      </FleetFilter>
      <ProxySummary proxy={proxy} />
      <Cells groups={groups} onLook={setLooked} />
    </>
  );
}

/** What is known of the proxy under the pointer, or of the one with the focus. It has its place also without one. */
function ProxySummary({ proxy }: { proxy: FleetProxy | null }) {
  if (proxy === null) {
    return <p class="looked quiet">Point at a cell, or move there with the arrow keys. Enter opens the proxy.</p>;
  }
  return (
    <p class="looked">
      <StateLabel state={proxy.state} /> <Name text={`${proxy.mesh}/${proxy.name}`} />{" "}
      {proxy.since !== null && (
        <span>
          {proxy.state === "online" || proxy.state === "offline" ? "for" : "not in sync for"} <Ago at={proxy.since} />
        </span>
      )}{" "}
      {proxy.service !== "" && <Name text={proxy.service} />}{" "}
      {proxy.zone !== "" && <Name text={`zone ${proxy.zone}`} />}{" "}
      {proxy.envoy !== "" && <Name text={`Envoy ${proxy.envoy}`} />}{" "}
      {proxy.findings > 0 && <span>{quantity(proxy.findings, "finding")}</span>}
    </p>
  );
}

/** All cells. One of them can be reached with Tab, the others from there with the arrow keys. */
function Cells({ groups, onLook }: { groups: readonly Group[]; onLook: (key: string | null) => void }) {
  const root = useRef<HTMLDivElement>(null);
  const [current, setCurrent] = useState<string | null>(null);
  const first = groups[0]?.proxies[0];
  const all = useMemo(() => new Set(groups.flatMap((group) => group.proxies.map(keyOf))), [groups]);
  const reachable = current !== null && all.has(current) ? current : first === undefined ? null : keyOf(first);
  const look = (event: Event) => {
    const cell = event.target instanceof Element ? event.target.closest<HTMLElement>("a.cell") : null;
    const key = cell?.dataset.key ?? null;
    if (key !== null) {
      onLook(key);
      if (event.type === "focusin") {
        setCurrent(key);
      }
    }
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const cells = [...(root.current?.querySelectorAll<HTMLElement>("a.cell") ?? [])];
    const index = cells.indexOf(document.activeElement as HTMLElement);
    const next = index === -1 ? undefined : neighbour(cells, index, event.key);
    if (next !== undefined) {
      event.preventDefault();
      next.focus();
    }
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: it listens for its cells, which are links
    <div class="cells" ref={root} onKeyDown={onKeyDown} onPointerOver={look} onFocusIn={look}>
      {groups.map((group) => (
        <CellGroup key={group.title} group={group} reachable={reachable} />
      ))}
    </div>
  );
}

function CellGroup({ group, reachable }: { group: Group; reachable: string | null }) {
  return (
    <section>
      {group.title !== "" && (
        <h2>
          <Name text={group.title} /> <span class="quiet">{group.proxies.length.toLocaleString("en")}</span>
        </h2>
      )}
      <ul class="grid">
        {group.proxies.map((proxy) => {
          const key = keyOf(proxy);
          return <Cell key={key} proxy={proxy} isReachable={key === reachable} />;
        })}
      </ul>
    </section>
  );
}

interface CellProperties {
  readonly proxy: FleetProxy;
  readonly isReachable: boolean;
}

/** One cell. Of thousands, only those are drawn again of which something changed. */
class Cell extends Component<CellProperties> {
  override shouldComponentUpdate(next: CellProperties): boolean {
    return next.proxy !== this.props.proxy || next.isReachable !== this.props.isReachable;
  }

  override render({ proxy, isReachable }: CellProperties) {
    return (
      <li>
        <a
          class={`cell ${proxy.state}`}
          href={addressOfProxy(proxy)}
          data-key={keyOf(proxy)}
          tabIndex={isReachable ? 0 : -1}
          aria-label={`${visible(proxy.mesh)}/${visible(proxy.name)}: ${STATES[proxy.state].word}`}
        />
      </li>
    );
  }
}

function neighbour(cells: readonly HTMLElement[], index: number, key: string): HTMLElement | undefined {
  switch (key) {
    case "ArrowRight":
      return cells[index + 1];
    case "ArrowLeft":
      return cells[index - 1];
    case "Home":
      return cells[0];
    case "End":
      return cells[cells.length - 1];
    case "ArrowDown":
      return above(cells.slice(index), cells[index]);
    case "ArrowUp":
      return above(cells.slice(0, index + 1).reverse(), cells[index]);
    default:
      return undefined;
  }
}

/** The cell in the next row that is nearest to one; the first in the list is that itself. */
function above(cells: readonly HTMLElement[], from: HTMLElement | undefined): HTMLElement | undefined {
  const begin = from?.getBoundingClientRect();
  if (begin === undefined) {
    return undefined;
  }
  let row: number | null = null;
  let best: HTMLElement | undefined;
  let distance = Number.POSITIVE_INFINITY;
  for (const cell of cells) {
    const { top, left } = cell.getBoundingClientRect();
    if (top === begin.top || (row !== null && top !== row)) {
      if (row !== null) {
        break;
      }
      continue;
    }
    row = top;
    if (Math.abs(left - begin.left) < distance) {
      [best, distance] = [cell, Math.abs(left - begin.left)];
    }
  }
  return best;
}

function groupProxies(proxies: readonly FleetProxy[], by: Grouping): readonly Group[] {
  if (by === "nothing") {
    return [{ title: "", proxies }];
  }
  const groups = new Map<string, FleetProxy[]>();
  for (const proxy of proxies) {
    const title = by === "state" ? STATES[proxy.state].word : proxy[by] || `no ${by}`;
    const group = groups.get(title);
    if (group === undefined) {
      groups.set(title, [proxy]);
    } else {
      group.push(proxy);
    }
  }
  const order: readonly string[] = ORDER.map((state) => STATES[state].word);
  const rank = (title: string) =>
    by === "state" ? order.indexOf(title) : needsSomebody(groups.get(title) ?? []) ? 0 : 1;
  const titles = [...groups.keys()].sort((one, other) => rank(one) - rank(other) || one.localeCompare(other));
  return titles.map((title) => ({ title, proxies: groups.get(title) ?? [] }));
}

/** Whether it does not come right by itself: such a group stands in front. */
function needsSomebody(proxies: readonly FleetProxy[]): boolean {
  return proxies.some(({ state }) => state === "failed" || state === "refusing");
}
