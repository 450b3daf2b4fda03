/** The values of one proxy, part by part, and the Envoy resources of each part beside it. */

import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { apiPath, revision, useAnswer } from "../shell/api";
import type { FieldValue, ResourceKey, RouteRow } from "../shell/explanation";
import { addressOf } from "../shell/route";
import { useStore } from "../shell/store";
import { quantity } from "../shell/text";
import { AnswerView } from "./answer";
import { conditionsOf, ownerOf } from "./conditions";
import { Json } from "./json";
import { Name } from "./name";
import { Values, Where } from "./values";

interface EnvoyName {
  readonly type: string;
  readonly name: string;
}

interface Inbound {
  readonly address: string;
  readonly port: number;
  readonly service: string;
  readonly protocol: string;
  readonly values: readonly FieldValue[];
  readonly clients: readonly { readonly match: unknown; readonly values: readonly FieldValue[] }[];
  readonly resources: readonly EnvoyName[];
}

interface Outbound {
  readonly address: string;
  readonly port: number;
  readonly destination: string;
  readonly protocol: string;
  readonly kind: string;
}

interface Listener {
  readonly port: number;
  readonly protocol: string;
  readonly hostname: string;
  readonly route: ResourceKey | null;
  readonly forClients: boolean;
  readonly values: readonly FieldValue[];
}

interface ValuesAnswer {
  readonly inbounds: readonly Inbound[];
  readonly outbounds: readonly Outbound[];
  readonly listeners: readonly Listener[];
}

interface OutboundAnswer {
  readonly routes: readonly { readonly row: RouteRow; readonly values: readonly FieldValue[] }[];
  readonly moreRoutes: number;
  readonly backends: readonly {
    readonly cluster: string;
    readonly service: string;
    readonly values: readonly FieldValue[];
  }[];
  readonly resources: readonly EnvoyName[];
}

type EnvoyResources = Readonly<Record<string, Readonly<Record<string, unknown>>>>;

const FEW = 50;

export function ProxyValues({ mesh, name }: { mesh: string; name: string }) {
  const newest = useStore(revision);
  const path = apiPath("meshes", mesh, "dataplanes", name, "_values");
  const answer = useAnswer<ValuesAnswer>(path, {}, newest);
  return (
    <AnswerView answer={answer}>
      {({ inbounds, outbounds, listeners }) => (
        <>
          {inbounds.length > 0 && <h2>Inbounds</h2>}
          {inbounds.map((inbound) => (
            <InboundPart key={`${inbound.address}:${inbound.port}`} inbound={inbound} of={{ mesh, name }} />
          ))}
          {listeners.length > 0 && <h2>Listeners</h2>}
          {listeners.map((listener) => (
            <ListenerPart key={JSON.stringify([listener, 0])} listener={listener} />
          ))}
          {outbounds.length > 0 && <h2>Outbounds</h2>}
          <Outbounds outbounds={outbounds} of={{ mesh, name }} path={path} />
          {inbounds.length + outbounds.length + listeners.length === 0 && <p>It has no inbound and no outbound.</p>}
        </>
      )}
    </AnswerView>
  );
}

interface Of {
  readonly mesh: string;
  readonly name: string;
}

/** A part that opens. What is in it is not drawn, and not asked for, before. */
function Part({
  title,
  open = false,
  children,
}: {
  title: ComponentChildren;
  open?: boolean;
  children: () => ComponentChildren;
}) {
  const [isOpen, setOpen] = useState(open);
  return (
    <details class="part" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{title}</summary>
      {isOpen && children()}
    </details>
  );
}

function InboundPart({ inbound, of }: { inbound: Inbound; of: Of }) {
  const where = `${inbound.address}:${inbound.port}`;
  const title = (
    <>
      <Name text={where} /> <Name text={inbound.service} /> <span class="quiet">{inbound.protocol}</span>
    </>
  );
  return (
    <Part title={title} open>
      {() => (
        <WithResources resources={inbound.resources} of={of}>
          <Values values={inbound.values} caption={`Values for all clients of ${where}`} />
          {inbound.clients.map((clients) => (
            <Values
              key={JSON.stringify(clients.match)}
              values={clients.values}
              caption={`Values for clients with ${JSON.stringify(clients.match)}`}
            />
          ))}
          {inbound.values.length + inbound.clients.length === 0 && <p class="quiet">No policy says anything here.</p>}
        </WithResources>
      )}
    </Part>
  );
}

function ListenerPart({ listener }: { listener: Listener }) {
  const title = (
    <>
      port {listener.port} <span class="quiet">{listener.protocol}</span> <Name text={listener.hostname} />{" "}
      {listener.forClients && <span>for its clients</span>}
      {listener.route !== null && <Name text={`by ${listener.route.type} ${listener.route.name}`} />}
    </>
  );
  return <Part title={title}>{() => <Values values={listener.values} caption="Values" />}</Part>;
}

function Outbounds({ outbounds, of, path }: { outbounds: readonly Outbound[]; of: Of; path: string }) {
  const [words, setWords] = useState("");
  const fitting = outbounds.filter((outbound) => `${outbound.destination} ${at(outbound)}`.includes(words));
  return (
    <>
      {outbounds.length > FEW && (
        <search class="bar">
          <label class="grows">
            <span class="unseen">Filter outbounds</span>
            <input
              type="search"
              data-search
              placeholder="Filter outbounds"
              value={words}
              onInput={(event) => setWords(event.currentTarget.value)}
            />
          </label>
        </search>
      )}
      {fitting.slice(0, FEW).map((outbound) => (
        <OutboundPart key={at(outbound)} outbound={outbound} of={of} path={path} open={outbounds.length === 1} />
      ))}
      {fitting.length > FEW && <p class="quiet">{quantity(fitting.length - FEW, "outbound")} more: filter them.</p>}
    </>
  );
}

function at(outbound: Outbound): string {
  return `${outbound.address}:${outbound.port}`;
}

function OutboundPart(properties: { outbound: Outbound; of: Of; path: string; open: boolean }) {
  const { outbound, of, path, open } = properties;
  const title = (
    <>
      <Name text={outbound.destination} /> <span class="quiet">{outbound.kind}</span> <Name text={at(outbound)} />{" "}
      <span class="quiet">{outbound.protocol}</span>
    </>
  );
  return (
    <Part title={title} open={open}>
      {() => <OutboundValues outbound={outbound} of={of} path={path} />}
    </Part>
  );
}

function OutboundValues({ outbound, of, path }: { outbound: Outbound; of: Of; path: string }) {
  const newest = useStore(revision);
  const answer = useAnswer<OutboundAnswer>(path, { outbound: at(outbound) }, newest);
  const call = outbound.protocol === "tcp" ? `tcp://${at(outbound)}` : `GET http://${at(outbound)}/`;
  return (
    <AnswerView answer={answer}>
      {({ routes, moreRoutes, backends, resources }) => (
        <WithResources resources={resources} of={of}>
          {routes.map(({ row, values }) => (
            <section key={row.index}>
              <p>
                <b>{ownerOf(row)}</b> <Name text={conditionsOf(row)} whole /> <Where origin={row.place} />
              </p>
              <Values values={values} caption={`Values for ${conditionsOf(row) || ownerOf(row)}`} />
            </section>
          ))}
          {moreRoutes > 0 && <p class="quiet">{quantity(moreRoutes, "route")} more: ask Explain about a call.</p>}
          {backends.map((backend) => (
            <Values
              key={backend.cluster}
              values={backend.values}
              caption={`Values for ${backend.service || backend.cluster}`}
            />
          ))}
          <p>
            <a href={addressOf(["explain"], { mesh: of.mesh, proxy: of.name, call })}>Explain a call of it</a>
          </p>
        </WithResources>
      )}
    </AnswerView>
  );
}

/** Values, and the Envoy resources that were built with them. */
function WithResources({
  resources,
  of,
  children,
}: {
  resources: readonly EnvoyName[];
  of: Of;
  children: ComponentChildren;
}) {
  return (
    <div class="beside">
      <div>{children}</div>
      <Part title={<span>{quantity(resources.length, "Envoy resource")}</span>}>
        {() => <Resources resources={resources} of={of} />}
      </Part>
    </div>
  );
}

function Resources({ resources, of }: { resources: readonly EnvoyName[]; of: Of }) {
  const newest = useStore(revision);
  const answer = useAnswer<{ xds: EnvoyResources }>(
    apiPath("meshes", of.mesh, "dataplanes", of.name, "_config"),
    {},
    newest,
  );
  const byName = useMemo(() => {
    const entries = Object.entries(answer.data?.xds ?? {});
    return new Map(entries.flatMap(([, ofType]) => Object.entries(ofType)));
  }, [answer.data]);
  return (
    <AnswerView answer={answer}>
      {() =>
        resources.map(({ type, name }) => (
          <section key={`${type} ${name}`}>
            <p class="quiet">{type}</p>
            <Json name={name} value={byName.get(name) ?? null} open />
          </section>
        ))
      }
    </AnswerView>
  );
}
