/** Proxies: the fleet as a table. What is out of sight is not drawn. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { FleetFilter, useFleetSelection } from "../parts/fleet-filter";
import { Name } from "../parts/name";
import { StateLabel } from "../parts/state";
import { Ago } from "../parts/time";
import { addressOfProxy, type FleetProxy, keyOf, ORDER } from "../shell/fleet";
import { go, place, withParameters } from "../shell/route";
import { useStore } from "../shell/store";
import { COLLATION } from "../shell/text";

type Column = "state" | "name" | "mesh" | "service" | "kind" | "zone" | "instance" | "envoy" | "since" | "findings";

const COLUMNS: readonly (readonly [Column, string])[] = [
  ["state", "State"],
  ["since", "For"],
  ["name", "Name"],
  ["mesh", "Mesh"],
  ["service", "Service"],
  ["kind", "Kind"],
  ["zone", "Zone"],
  ["envoy", "Envoy"],
  ["instance", "Instance"],
  ["findings", "Findings"],
];

const ROW = 30; // pixels, as in the style sheet
const AROUND = 15; // rows that are drawn above and below those in sight

export function ProxiesView() {
  const { query } = useStore(place);
  const shown = useFleetSelection();
  const sorting = query.get("sort") ?? "name";
  const isReversed = sorting.startsWith("-");
  const column = COLUMNS.map(([key]) => key).find((key) => key === sorting.replace("-", "")) ?? "name";
  const rows = useMemo(() => sortProxies(shown.proxies, column, isReversed), [shown.proxies, column, isReversed]);
  return (
    <>
      <FleetFilter shown={shown} />
      <Rows rows={rows} column={column} isReversed={isReversed} />
    </>
  );
}

function Rows({ rows, column, isReversed }: { rows: readonly FleetProxy[]; column: Column; isReversed: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  useEffect(() => {
    const element = box.current;
    if (element === null) {
      return;
    }
    const observer = new ResizeObserver(() => setHeight(element.clientHeight));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const from = Math.max(0, Math.floor(top / ROW) - AROUND);
  const until = Math.min(rows.length, Math.ceil((top + height) / ROW) + AROUND);
  return (
    <section
      class="scroll"
      ref={box}
      tabIndex={0}
      aria-label="Proxies"
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
    >
      <table class="rows" aria-rowcount={rows.length + 1}>
        <thead>
          <tr aria-rowindex={1}>
            {COLUMNS.map(([key, title]) => (
              <Head key={key} column={key} title={title} current={column} isReversed={isReversed} />
            ))}
          </tr>
        </thead>
        <tbody>
          <Space rows={from} />
          {rows.slice(from, until).map((proxy, index) => (
            <Row key={keyOf(proxy)} proxy={proxy} index={from + index + 2} />
          ))}
          <Space rows={rows.length - until} />
        </tbody>
      </table>
    </section>
  );
}

/** The room of rows that are not drawn. */
function Space({ rows }: { rows: number }) {
  return rows <= 0 ? null : <tr class="space" style={{ height: `${rows * ROW}px` }} />;
}

function Head(properties: { column: Column; title: string; current: Column; isReversed: boolean }) {
  const { column, title, current, isReversed } = properties;
  const isCurrent = column === current;
  const order = isCurrent ? (isReversed ? "descending" : "ascending") : undefined;
  return (
    <th scope="col" aria-sort={order ?? "none"}>
      <button
        type="button"
        class="plain"
        onClick={() =>
          go(withParameters({ sort: isCurrent && !isReversed ? `-${column}` : column }), { replacing: true })
        }
      >
        {title}
        <span aria-hidden="true">{isCurrent ? (isReversed ? " ▾" : " ▴") : ""}</span>
      </button>
    </th>
  );
}

function Row({ proxy, index }: { proxy: FleetProxy; index: number }) {
  return (
    <tr aria-rowindex={index}>
      <td>
        <StateLabel state={proxy.state} />
      </td>
      <td>{proxy.since === null ? "" : <Ago at={proxy.since} />}</td>
      <th scope="row">
        <a href={addressOfProxy(proxy)}>
          <Name text={proxy.name} />
        </a>
      </th>
      <td>
        <Name text={proxy.mesh} />
      </td>
      <td>
        <Name text={proxy.service} />
      </td>
      <td>{proxy.kind}</td>
      <td>
        <Name text={proxy.zone} />
      </td>
      <td>
        <Name text={proxy.envoy} />
      </td>
      <td>
        <Name text={proxy.instance} />
      </td>
      <td>{proxy.findings === 0 ? "" : proxy.findings}</td>
    </tr>
  );
}

function sortProxies(proxies: readonly FleetProxy[], column: Column, isReversed: boolean): readonly FleetProxy[] {
  const direction = isReversed ? -1 : 1;
  return [...proxies].sort(
    (one, other) => direction * compareProxies(one, other, column) || compareProxies(one, other, "name"),
  );
}

function compareProxies(one: FleetProxy, other: FleetProxy, column: Column): number {
  switch (column) {
    case "state":
      return ORDER.indexOf(one.state) - ORDER.indexOf(other.state);
    case "findings":
      return one.findings - other.findings;
    case "since":
      return (other.since ?? "").localeCompare(one.since ?? "");
    default:
      return COLLATION.compare(one[column], other[column]);
  }
}
