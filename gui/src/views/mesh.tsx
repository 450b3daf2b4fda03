/** Mesh: services and who calls whom, as it is served, drawn, and as a list that has all of it. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { AnswerView } from "../parts/answer";
import { Name } from "../parts/name";
import { RolloutNote, storedNote } from "../parts/rollout-note";
import { StateLabel } from "../parts/state";
import { Ago } from "../parts/time";
import { Wide } from "../parts/wide";
import { apiPath, revision, useAnswer } from "../shell/api";
import { fleet, ORDER, type State, stateOf } from "../shell/fleet";
import { BOX, callsOf, type Edge, type GraphService, layout, type MeshGraph, targetsByGroup } from "../shell/graph";
import { type Box, compareNames, type Groups, groupServices, type Picture, pictureOf } from "../shell/graph-picture";
import { useMeshes } from "../shell/meshes";
import { addressOf, go, place, withParameters } from "../shell/route";
import { useStore } from "../shell/store";
import { quantity, visible } from "../shell/text";

const FEW = 12; // calls of a service that are listed before somebody asks for more
const FAILED = 20; // proxies that are named because nobody knows what they call
const LETTERS = 24; // of a name that fit into a box
const SMALL_LETTERS = 28;

export function MeshView() {
  const { query } = useStore(place);
  const meshes = useMeshes();
  const mesh = query.get("mesh") ?? meshes[0] ?? "";
  const path = mesh === "" ? null : apiPath("meshes", mesh, "_graph");
  const follows = useSlowly(`${useStore(revision)} ${useStatesOf(mesh)}`);
  const traffic = query.get("traffic") === "true" ? "true" : undefined;
  const answer = useAnswer<MeshGraph>(path, { traffic }, follows);
  return (
    <>
      <Filter mesh={mesh} />
      <AnswerView answer={answer}>{(graph) => <Graph graph={graph} />}</AnswerView>
    </>
  );
}

const SLOWLY = 5000; // milliseconds

/** A value that follows another one every few seconds at the most: a large graph takes a second to be worked out. */
function useSlowly<T>(value: T): T {
  const [shown, setShown] = useState(value);
  const at = useRef(0);
  useEffect(() => {
    const wait = Math.max(0, at.current + SLOWLY - Date.now());
    const timer = window.setTimeout(() => {
      at.current = Date.now();
      setShown(value);
    }, wait);
    return () => window.clearTimeout(timer);
  }, [value]);
  return shown;
}

/** What changes when a proxy of a mesh is in another state, so that the graph is asked for then and not each second. */
function useStatesOf(mesh: string): string {
  const { proxies } = useStore(fleet);
  return useMemo(() => {
    const counts = new Map<State, number>();
    for (const proxy of proxies.filter((each) => each.mesh === mesh)) {
      counts.set(proxy.state, (counts.get(proxy.state) ?? 0) + 1);
    }
    return ORDER.map((state) => counts.get(state) ?? 0).join(" ");
  }, [proxies, mesh]);
}

function Filter({ mesh }: { mesh: string }) {
  const { query } = useStore(place);
  return (
    <search class="bar">
      <label class="grows">
        <span class="unseen">Filter services</span>
        <input
          type="search"
          data-search
          placeholder="Filter by the name of a service; its neighbours are shown too"
          value={query.get("q") ?? ""}
          onInput={(event) => go(withParameters({ q: event.currentTarget.value || null }), { replacing: true })}
        />
      </label>
      <label title="Some Envoys of each group are asked how many requests they have counted">
        <input
          type="checkbox"
          checked={query.get("traffic") === "true"}
          onChange={(event) =>
            go(withParameters({ traffic: event.currentTarget.checked ? "true" : null }), { replacing: true })
          }
        />{" "}
        Traffic
      </label>
      <span class="quiet">
        mesh <Name text={mesh} />
      </span>
    </search>
  );
}

function Graph({ graph }: { graph: MeshGraph }) {
  const { query } = useStore(place);
  const words = (query.get("q") ?? "").toLowerCase();
  const box = query.get("box");
  const [chosen, choose] = useState<number | null>(null);
  const targets = useMemo(() => targetsByGroup(graph), [graph]);
  const groups = useMemo(() => groupServices(graph, targets), [graph, targets]);
  const asked = useMemo(() => askedServices(graph, groups, words, box), [graph, groups, words, box]);
  const shown = useMemo(() => withNeighbours(graph, asked), [graph, asked]);
  const isOpen = box !== null || words !== "";
  const picture = useMemo(
    () => pictureOf(graph, targets, groups, shown, asked, isOpen),
    [graph, targets, groups, shown, asked, isOpen],
  );
  const chosenBox = chosen === null ? null : (picture.boxOf.get(chosen) ?? null);
  const choosing = { chosen: chosenBox, choose };
  return (
    <>
      {graph.rollout !== undefined && <RolloutNote mesh={graph.mesh} text={storedNote(graph.rollout)} />}
      <FailedNote graph={graph} />
      <p class="quiet" role="status">
        {quantity(shown.size, "service")} of {graph.services.length.toLocaleString("en")}, at revision {graph.revision}.{" "}
        {asked.size < graph.services.length &&
          `Drawn are the calls from and to ${quantity(asked.size, "service")} that you asked for. `}
        {groupingOf(picture, asked)} <TrafficNote graph={graph} />
      </p>
      {box !== null && (
        <p class="actions">
          <a href={withParameters({ box: null })}>All services</a>
        </p>
      )}
      {shown.size > 0 && <Drawing graph={graph} picture={picture} {...choosing} />}
      <ServiceTable graph={graph} targets={targets} picture={picture} shown={shown} asked={asked} {...choosing} />
    </>
  );
}

/** That calls are missing here: those of proxies that cannot be compiled. Of many, only some are named. */
function FailedNote({ graph: { mesh, failed = [] } }: { graph: MeshGraph }) {
  if (failed.length === 0) {
    return null;
  }
  const named = failed.slice(0, FAILED);
  return (
    <div class="note bad" role="status">
      <p>
        <strong>Not all calls are here.</strong> What {quantity(failed.length, "proxy", "proxies")} may call is not
        known, as {failed.length === 1 ? "its" : "their"} configuration could not be made, by a fault of the control
        plane: <ProxyLinks mesh={mesh} names={named} />
        {failed.length > named.length && `and ${(failed.length - named.length).toLocaleString("en")} more`}
      </p>
    </div>
  );
}

/** Why there are fewer boxes than services. */
function groupingOf({ grouping, boxes }: Picture, asked: ReadonlySet<number>): string {
  if (grouping === "none") {
    return "";
  }
  const singles = new Set(boxes.flatMap(({ services }) => (services.length === 1 ? services : [])));
  const subject = [...asked].every((service) => singles.has(service)) ? "The others" : "They or their calls";
  return `${subject} are too many to be drawn one by one: ${SHARED[grouping]}. The list has all calls of each.`;
}

const SHARED = {
  calls: "those that call the same, and are called by the same, are one box",
  names: "those whose names begin alike are one box, and so are all that begin like no other",
} as const;

function TrafficNote({ graph }: { graph: MeshGraph }) {
  const { traffic } = graph;
  if (traffic === undefined) {
    return <>What may be called is drawn as it is served; whether it is called is not asked.</>;
  }
  const at = new Date(traffic.at * 1000).toISOString();
  return (
    <>
      {traffic.answered} of {quantity(traffic.asked, "Envoy")} that were asked said <Ago at={at} /> ago what they have
      sent since they were started.
    </>
  );
}

/** The services with the words in their names, or those of one box. */
function askedServices(graph: MeshGraph, groups: Groups, words: string, box: string | null): ReadonlySet<number> {
  const number = graph.services.findIndex(({ name }) => name === box);
  const ofBox = groups.boxes.find(({ services }) => services.includes(number))?.services;
  const all = box === null ? graph.services.map((_, each) => each) : (ofBox ?? []);
  return new Set(all.filter((each) => graph.services[each]?.name.toLowerCase().includes(words)));
}

/** Some services, and those next to them. */
function withNeighbours(graph: MeshGraph, asked: ReadonlySet<number>): ReadonlySet<number> {
  const shown = new Set(asked);
  if (asked.size === graph.services.length) {
    return shown;
  }
  for (const { callers, calls } of graph.groups) {
    const called = calls.flatMap((call) => [
      ...(call.to === undefined ? [] : [call.to]),
      ...call.routes.flatMap((route) => route.splits.flatMap((split) => (split.to === null ? [] : [split.to]))),
    ]);
    const isCaller = callers.some((caller) => asked.has(caller));
    const isCalled = called.some((each) => asked.has(each));
    for (const each of isCaller ? called : []) {
      shown.add(each);
    }
    for (const caller of isCalled ? callers : []) {
      shown.add(caller);
    }
  }
  return shown;
}

interface Choosing {
  /** The box in which the service is that is looked at. */
  readonly chosen: number | null;
  readonly choose: (service: number | null) => void;
}

function Drawing({ graph, picture, chosen, choose }: { graph: MeshGraph; picture: Picture } & Choosing) {
  const { boxes, edges } = picture;
  const {
    boxes: placed,
    width,
    height,
  } = useMemo(
    () =>
      layout(
        boxes.map((box) => box.key),
        edges,
      ),
    [boxes, edges],
  );
  const at = new Map(placed.map((box) => [box.key, box]));
  const byKey = new Map(boxes.map((box) => [box.key, box]));
  return (
    <section class="wide graph" tabIndex={0} aria-label="Graph of services">
      {/* biome-ignore lint/a11y/useSemanticElements: a fieldset cannot be drawn in */}
      <svg role="group" width={width} height={height} viewBox={`0 0 ${width} ${height}`}>
        <title>Services and who calls whom; the table below has all of it in words</title>
        {edges.map((edge) => (
          <EdgeLine key={`${edge.from} ${edge.to}`} edge={edge} at={at} chosen={chosen} label={labelIn(edge, byKey)} />
        ))}
        {placed.map(({ key, x, y }) => {
          const box = byKey.get(key);
          return (
            box !== undefined && (
              <ServiceBox key={key} x={x} y={y} graph={graph} box={box} isChosen={key === chosen} choose={choose} />
            )
          );
        })}
      </svg>
    </section>
  );
}

function EdgeLine(properties: {
  edge: Edge;
  at: ReadonlyMap<number, { x: number; y: number }>;
  chosen: number | null;
  label: string;
}) {
  const { edge, at, chosen, label } = properties;
  const [from, to] = [at.get(edge.from), at.get(edge.to)];
  if (from === undefined || to === undefined) {
    return null;
  }
  const kind = edge.reason !== "" ? "broken" : edge.least < 100 ? "split" : "";
  const isChosen = chosen !== null && (edge.from === chosen || edge.to === chosen);
  return (
    <g>
      <path
        class={`${kind} ${isChosen ? "chosen" : ""} ${(edge.requests ?? 0) > 0 ? "busy" : ""}`}
        d={curve(from, to)}
      />
      {label !== "" && (
        <text
          class="small"
          x={(from.x + BOX.width + to.x) / 2}
          y={(from.y + to.y + BOX.height) / 2 - 3}
          text-anchor="middle"
        >
          {label}
        </text>
      )}
    </g>
  );
}

/** The shares are told of a call of one service to another one, and not of many calls together. */
function labelIn(edge: Edge, boxes: ReadonlyMap<number, Box>): string {
  const isOfTwo = [edge.from, edge.to].every((key) => boxes.get(key)?.services.length === 1);
  return isOfTwo ? labelOf(edge) : trafficOf(edge);
}

/** The share of the calls that goes there, where it is not all of each route, and how many requests were counted. */
function labelOf(edge: Edge): string {
  const [least, most] = [Math.round(edge.least), Math.round(edge.most)];
  const share = edge.least === 100 ? "" : least === most ? `${least} %` : `${least}–${most} %`;
  return [share, trafficOf(edge)].filter((part) => part !== "").join(", ");
}

/** How many requests were counted; of callers that are served the same it is not known who sent how much of it. */
function trafficOf({ requests, senders }: Edge): string {
  if (requests === null) {
    return "";
  }
  const sent = `${requests.toLocaleString("en")} sent`;
  return senders.size > 1 ? `${sent} by ${senders.size.toLocaleString("en")} services together` : sent;
}

function curve(from: { x: number; y: number }, to: { x: number; y: number }): string {
  const [x1, y1, x2, y2] = [from.x + BOX.width, from.y + BOX.height / 2, to.x, to.y + BOX.height / 2];
  if (x2 > x1) {
    const bend = (x2 - x1) / 2;
    return `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
  }
  const [below, out] = [Math.max(y1, y2) + BOX.height, 40]; // back to the left, or to itself
  return `M${x1} ${y1} C${x1 + out} ${below} ${x2 - out} ${below} ${x2} ${y2}`;
}

function ServiceBox(
  properties: { x: number; y: number; graph: MeshGraph; box: Box; isChosen: boolean } & Pick<Choosing, "choose">,
) {
  const { x, y, graph, box, isChosen, choose } = properties;
  const services = box.services.flatMap((number) => graph.services[number] ?? []);
  const [first] = services;
  if (first === undefined) {
    return null;
  }
  const isInTrouble = services.some((service) => refusingOf(service) + failedOf(service) > 0);
  const isAbsent = services.every((service) => totalOf(service) === 0);
  const classes = [isInTrouble && "refusing", isAbsent && "absent", isChosen && "chosen"];
  const isOne = services.length === 1;
  const [title, health] = isOne ? [visible(first.name), healthOf(first)] : [titleOf(box, first), healthOfAll(services)];
  const label = short(title, LETTERS); // what is seen stands first in the name, for who says it aloud
  return (
    <a
      aria-label={`${label}: ${health.join(", ")}${label === title ? "" : `, ${title}`}`}
      class={classes.filter(Boolean).join(" ")}
      href={isOne ? withParameters({ q: first.name, box: null }) : withParameters({ q: null, box: first.name })}
      onPointerEnter={() => choose(box.key)}
      onFocus={() => choose(box.key)}
      onKeyDown={(event) => {
        if (event.key === " ") {
          event.preventDefault();
          choose(isChosen ? null : box.key);
        }
      }}
    >
      <rect x={x} y={y} width={BOX.width} height={BOX.height} rx={6} />
      <text x={x + 10} y={y + 19}>
        {`${label} `}
      </text>
      <text class="small" x={x + 10} y={y + 36}>
        {joinFitting(health)}
      </text>
    </a>
  );
}

function titleOf({ services, prefix }: Box, first: GraphService): string {
  const name = short(visible(prefix || first.name), 14);
  return prefix === "" ? `${name} and ${services.length - 1} more` : `${name}…`;
}

function short(text: string, letters: number): string {
  return text.length > letters ? `${text.slice(0, letters - 1)}…` : text;
}

/** The first parts, as many as a box has room for; none is cut. The list has all. */
function joinFitting(parts: readonly string[]): string {
  const texts = parts.map((_, index) => parts.slice(0, index + 1).join(", "));
  return texts.filter((text, index) => index === 0 || text.length <= SMALL_LETTERS).pop() ?? "";
}

function totalOf(service: GraphService): number {
  return Object.values(service.proxies).reduce((sum, proxies) => sum + proxies, 0);
}

function inState(service: GraphService, wanted: State): number {
  return Object.entries(service.proxies).reduce(
    (sum, [status, proxies]) => sum + (stateOf(status) === wanted ? proxies : 0),
    0,
  );
}

function refusingOf(service: GraphService): number {
  return inState(service, "refusing");
}

function failedOf(service: GraphService): number {
  return inState(service, "failed");
}

function healthOf(service: GraphService): readonly string[] {
  const total = totalOf(service);
  const health = total === 0 ? absenceOf(service) : `${inState(service, "online")} of ${total} in sync`;
  return [...trouble(refusingOf(service), failedOf(service)), health, ...service.protocols.map(visible)];
}

function absenceOf(service: GraphService): string {
  return service.outside ? "outside the mesh" : "no proxy";
}

/** Of several services it is told how many have a proxy that is in trouble. A proxy may serve more than one of them. */
function healthOfAll(services: readonly GraphService[]): readonly string[] {
  const having = (number: (service: GraphService) => number) => services.filter((each) => number(each) > 0).length;
  return [quantity(services.length, "service"), ...trouble(having(refusingOf), having(failedOf))];
}

function trouble(refusing: number, failed: number): readonly string[] {
  const parts: readonly (readonly [number, string])[] = [
    [refusing, "refusing"],
    [failed, "failed"],
  ];
  return parts.filter(([number]) => number > 0).map(([number, word]) => `${number} ${word}`);
}

// --- the list ---

interface Listing {
  readonly graph: MeshGraph;
  readonly targets: ReturnType<typeof targetsByGroup>;
}

/** All in words, for those who do not see the drawing, and where there is too much to draw. */
function ServiceTable(
  properties: Listing & { picture: Picture; shown: ReadonlySet<number>; asked: ReadonlySet<number> } & Choosing,
) {
  const { graph, targets, picture, shown, asked, chosen, choose } = properties;
  const [limit, setLimit] = useState(200);
  const numbers = useMemo(() => {
    const rank = (number: number) => Number(!asked.has(number)); // neighbours come after what was asked for
    return [...shown].sort((one, other) => rank(one) - rank(other) || compareNames(graph, one, other));
  }, [graph, shown, asked]);
  return (
    <Wide label="Services">
      <table>
        <caption>Services</caption>
        <thead>
          <tr>
            <th scope="col">Service</th>
            <th scope="col">Kind</th>
            <th scope="col">Protocols</th>
            <th scope="col">Proxies</th>
            <th scope="col">Calls</th>
            <th scope="col">Refusing or failed</th>
          </tr>
        </thead>
        <tbody>
          {numbers.slice(0, limit).map((number) => (
            <ServiceRow
              key={number}
              graph={graph}
              targets={targets}
              number={number}
              isChosen={picture.boxOf.get(number) === chosen}
              choose={choose}
            />
          ))}
        </tbody>
      </table>
      {numbers.length > limit && (
        <button type="button" onClick={() => setLimit(limit * 2)}>
          {numbers.length - limit} more
        </button>
      )}
    </Wide>
  );
}

function ServiceRow(properties: Listing & { number: number; isChosen: boolean } & Pick<Choosing, "choose">) {
  const { graph, targets, number, isChosen, choose } = properties;
  const service = graph.services[number];
  if (service === undefined) {
    return null;
  }
  return (
    <tr class={isChosen ? "taken" : ""} onPointerEnter={() => choose(number)}>
      <th scope="row">
        <Name text={service.name} />
      </th>
      <td>{service.kind}</td>
      <td>{service.protocols.join(", ")}</td>
      <td>
        {totalOf(service) === 0 && <span class="quiet">{absenceOf(service)}</span>}
        {Object.entries(service.proxies).map(([status, proxies]) => (
          <span key={status}>
            <StateLabel state={stateOf(status)} /> {proxies}{" "}
          </span>
        ))}
      </td>
      <td>
        <Calls graph={graph} targets={targets} number={number} />
      </td>
      <td>
        <TroubledProxies state="refusing" mesh={graph.mesh} names={service.refusing} total={refusingOf(service)} />
        <TroubledProxies state="failed" mesh={graph.mesh} names={service.failed} total={failedOf(service)} />
      </td>
    </tr>
  );
}

function Calls({ graph, targets, number }: Listing & { number: number }) {
  const [isOpen, setOpen] = useState(false);
  const calls = useMemo(() => callsOf(graph, targets, number), [graph, targets, number]);
  const listed = isOpen ? calls : calls.slice(0, FEW);
  return (
    <>
      {listed.map(({ name, edge }) => (
        <span key={`${edge.to} ${name}`} class={edge.reason === "" ? "" : "bad"}>
          <Name text={name} />
          {labelOf(edge) !== "" && ` ${labelOf(edge)}`}
          {edge.reason !== "" && (
            <>
              {" "}
              (<Name text={edge.reason} whole />)
            </>
          )}{" "}
        </span>
      ))}
      {calls.length > listed.length && (
        <button type="button" class="plain" onClick={() => setOpen(true)}>
          {calls.length - listed.length} more
        </button>
      )}
    </>
  );
}

/** The proxies behind a service that are in trouble. Of many, only some are named. */
function TroubledProxies(properties: { state: State; mesh: string; names: readonly string[]; total: number }) {
  const { state, mesh, names, total } = properties;
  if (total === 0) {
    return null;
  }
  return (
    <p>
      <StateLabel state={state} /> <ProxyLinks mesh={mesh} names={names} />
      {total > names.length && `and ${total - names.length} more`}
    </p>
  );
}

function ProxyLinks({ mesh, names }: { mesh: string; names: readonly string[] }) {
  return (
    <>
      {names.map((proxy) => (
        <a key={proxy} href={addressOf(["proxies", mesh, proxy])}>
          <Name text={proxy} />{" "}
        </a>
      ))}
    </>
  );
}
