/** Proxy: one proxy, what it was sent and made of it, its values with their origins, and its Envoy. */

import { useMemo, useState } from "preact/hooks";
import { AnswerView } from "../parts/answer";
import { Fact } from "../parts/facts";
import { type Finding, Findings } from "../parts/findings";
import { Json } from "../parts/json";
import { LiveTab } from "../parts/live";
import { Name } from "../parts/name";
import { ProxyValues as ValuesTab } from "../parts/proxy-values";
import { RolloutNote } from "../parts/rollout-note";
import { StateLabel } from "../parts/state";
import { Tabs } from "../parts/tabs";
import { Ago, Moment } from "../parts/time";
import { Wide } from "../parts/wide";
import { apiPath, revision, useAnswer } from "../shell/api";
import { fleet, keyOf, STATES, stateOf } from "../shell/fleet";
import { addressOf, place } from "../shell/route";
import { useStore } from "../shell/store";
import { quantity } from "../shell/text";

const TABS = [
  { key: "values", title: "Values" },
  { key: "delivery", title: "Delivery" },
  { key: "envoy", title: "Envoy resources" },
  { key: "live", title: "Live" },
  { key: "policies", title: "Policies" },
  { key: "document", title: "Document" },
] as const;

export function ProxyView({ names }: { names: readonly string[] }) {
  const [mesh = "", name = ""] = names;
  const { query } = useStore(place);
  const tab = TABS.find((known) => known.key === query.get("tab"))?.key ?? TABS[0].key;
  const path = (question: string) => apiPath("meshes", mesh, "dataplanes", name, question);
  const delivery = useAnswer<Delivery>(path("_delivery"), {}, useStanding(mesh, name));
  return (
    <>
      <AnswerView answer={delivery}>{(data) => <Standing delivery={data} />}</AnswerView>
      <Tabs tabs={TABS} current={tab} label="About this proxy" />
      <div id="tab-panel" role="tabpanel" aria-labelledby={`tab-${tab}`}>
        {tab === "values" && <ValuesTab mesh={mesh} name={name} />}
        {tab === "live" && delivery.problem?.isClosed !== true && <LiveTab mesh={mesh} name={name} />}
        {tab === "delivery" && delivery.data !== null && <DeliveryTab delivery={delivery.data} />}
        {tab === "envoy" && <EnvoyTab path={path("_config")} />}
        {tab === "policies" && <PoliciesTab path={path("_policies")} />}
        {tab === "document" && <DocumentTab path={apiPath("meshes", mesh, "dataplanes", name)} />}
      </div>
    </>
  );
}

/** What changes whenever it is worth asking again how a proxy stands. */
function useStanding(mesh: string, name: string): string {
  const { proxies } = useStore(fleet);
  const newest = useStore(revision);
  const key = keyOf({ mesh, name });
  const proxy = useMemo(() => proxies.find((known) => keyOf(known) === key), [proxies, key]);
  return `${newest} ${proxy?.state} ${proxy?.since} ${proxy?.findings}`;
}

interface Delivery {
  readonly mesh: string;
  readonly name: string;
  readonly status: string;
  readonly since: string | null;
  readonly streams: readonly Stream[];
  readonly lastConnection: {
    readonly envoy: string;
    readonly connectedSince: string;
    readonly until: string | null;
  } | null;
  readonly certificate: Certificate | null;
  /** Of a gRPC client without a proxy where the mesh has mTLS; null where it is not known. */
  readonly findsCertificates?: boolean | null;
  readonly rollout?: string;
  readonly moves: readonly string[];
  readonly findings: readonly Finding[];
}

interface Stream {
  readonly protocol: string;
  readonly envoy: string;
  readonly connectedSince: string;
  readonly lastAnswer: string;
  readonly types: readonly TypeDelivery[];
}

interface TypeDelivery {
  readonly type: string;
  readonly inSync: boolean;
  readonly since: string | null;
  readonly sent: string;
  readonly acked: string;
  readonly responses: number;
  readonly accepted: number;
  readonly rejected: number;
  readonly unanswered: number;
  readonly resources: number;
  readonly bytes: number;
  readonly refusals: readonly Refusal[];
}

interface Refusal {
  readonly text: string;
  readonly since: string;
  readonly resources: readonly { readonly name: string; readonly refused: string; readonly inForce: string | null }[];
  readonly policies: readonly {
    readonly type: string;
    readonly name: string;
    readonly path: string;
    readonly file: string;
    readonly line: number;
    readonly suspect: boolean;
  }[];
}

interface Certificate {
  readonly serial: string;
  readonly uris: readonly string[];
  readonly backend: string;
  readonly issued: string;
  readonly notAfter: string;
  readonly renewal: string | null;
  readonly fault: string | null;
}

function Standing({ delivery }: { delivery: Delivery }) {
  const stream = delivery.streams[0];
  const state = stateOf(delivery.status);
  return (
    <>
      {delivery.rollout !== undefined && <RolloutNote mesh={delivery.mesh} text={delivery.rollout} />}
      <p class="standing">
        <StateLabel state={state} /> {state !== "online" && <span class="quiet">{STATES[state].meaning}</span>}{" "}
        {delivery.since !== null && (
          <span>
            {state === "online" ? "for" : "not in sync for"} <Ago at={delivery.since} />
          </span>
        )}{" "}
        {stream !== undefined && (
          <span>
            connected for <Ago at={stream.connectedSince} />, Envoy <Name text={stream.envoy} />
          </span>
        )}{" "}
        <a href={addressOf(["explain"], { mesh: delivery.mesh, proxy: delivery.name })}>Explain a call</a>
      </p>
    </>
  );
}

function DeliveryTab({ delivery }: { delivery: Delivery }) {
  const refusals = delivery.streams.flatMap((stream) => stream.types.flatMap((type) => type.refusals));
  return (
    <>
      <Findings findings={delivery.findings} />
      {delivery.streams.length === 0 && <Absent delivery={delivery} />}
      {delivery.streams.map((stream) => (
        <StreamTable key={stream.connectedSince} stream={stream} />
      ))}
      {refusals.map((refusal) => (
        <RefusalNote key={refusal.text} refusal={refusal} />
      ))}
      {delivery.certificate !== null && <CertificateFacts certificate={delivery.certificate} />}
      {delivery.findsCertificates === false && (
        <p class="note bad">Its gRPC library finds no certificates, so it cannot speak mTLS.</p>
      )}
      {delivery.findsCertificates === null && (
        <p class="quiet">Whether its gRPC library finds certificates is not known.</p>
      )}
      {delivery.moves.map((sentence) => (
        <p key={sentence}>
          mTLS: <Name text={sentence} whole />
        </p>
      ))}
    </>
  );
}

function Absent({ delivery }: { delivery: Delivery }) {
  const last = delivery.lastConnection;
  return (
    <div class="note">
      {last === null ? (
        <p>
          {stateOf(delivery.status) === "unknown"
            ? "Whether it is connected is not known: a control plane that may serve it does not answer."
            : "As far as the control planes remember, it has not connected since they were started."}
        </p>
      ) : last.until === null ? (
        <p>
          It is not connected. It came <Ago at={last.connectedSince} /> ago, Envoy <Name text={last.envoy} />.
        </p>
      ) : (
        <p>
          It went <Ago at={last.until} /> ago, having come <Ago at={last.connectedSince} /> ago, Envoy{" "}
          <Name text={last.envoy} />.
        </p>
      )}
    </div>
  );
}

function StreamTable({ stream }: { stream: Stream }) {
  const protocol = stream.protocol === "delta" ? "incremental" : "state of the world";
  return (
    <Wide label="What it was sent">
      <table>
        <caption>
          What it was sent, and how it answered ({protocol}; last answer <Ago at={stream.lastAnswer} /> ago)
        </caption>
        <thead>
          <tr>
            {[
              "Type",
              "State",
              "For",
              "Sent",
              "ACKs",
              "NACKs",
              "Unanswered",
              "Resources",
              "Bytes",
              "Version in force",
            ].map((title) => (
              <th key={title} scope="col">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {stream.types.map((type) => (
            <tr key={type.type}>
              <th scope="row">{type.type}</th>
              <td>
                <StateLabel state={type.inSync ? "online" : type.refusals.length > 0 ? "refusing" : "behind"} />
              </td>
              <td>
                <Ago at={type.since} />
              </td>
              <td class="figure">{type.responses}</td>
              <td class="figure">{type.accepted}</td>
              <td class="figure">{type.rejected}</td>
              <td class="figure">{type.unanswered}</td>
              <td class="figure">{type.resources}</td>
              <td class="figure">{type.bytes.toLocaleString("en")}</td>
              <td class="place">{type.acked}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Wide>
  );
}

function RefusalNote({ refusal }: { refusal: Refusal }) {
  return (
    <section class="note bad">
      <h2>
        Refused for <Ago at={refusal.since} />
      </h2>
      <p class="place lines">
        <Name text={refusal.text} whole />
      </p>
      <ul>
        {refusal.resources.map((resource) => (
          <li key={resource.name}>
            <Name text={resource.name} whole /> version {resource.refused};{" "}
            {resource.inForce === null ? "there is nothing in its place" : `version ${resource.inForce} is in force`}
          </li>
        ))}
        {refusal.policies.map((policy) => (
          <li key={`${policy.type} ${policy.name} ${policy.path}`}>
            made with {policy.type} <Name text={policy.name} whole /> <Name text={policy.path} whole />{" "}
            {policy.file !== "" && (
              <span class="place">
                <Name text={`${policy.file}:${policy.line}`} whole />
              </span>
            )}
            {policy.suspect && <b> changed just before</b>}
          </li>
        ))}
      </ul>
    </section>
  );
}

function CertificateFacts({ certificate }: { certificate: Certificate }) {
  return (
    <section>
      <h2>Certificate</h2>
      <dl class="facts">
        <Fact term="Is for">
          {certificate.uris.map((uri) => (
            <p key={uri}>
              <Name text={uri} whole />
            </p>
          ))}
        </Fact>
        <Fact term="Issued by">
          <Name text={certificate.backend} whole />, <Ago at={certificate.issued} /> ago, serial{" "}
          <Name text={certificate.serial} whole />
        </Fact>
        <Fact term="Expires">
          <Moment at={certificate.notAfter} />
        </Fact>
        <Fact term="Renewal">
          {certificate.renewal === null ? "none, as its authority ends with it" : <Moment at={certificate.renewal} />}
        </Fact>
        {certificate.fault !== null && (
          <Fact term="Fault">
            <span class="bad">
              the next one cannot be issued: <Name text={certificate.fault} whole />
            </span>
          </Fact>
        )}
      </dl>
    </section>
  );
}

type EnvoyResources = Readonly<Record<string, Readonly<Record<string, unknown>>>>;

function EnvoyTab({ path }: { path: string }) {
  const newest = useStore(revision);
  const answer = useAnswer<{ xds: EnvoyResources; warnings?: readonly string[] }>(path, {}, newest);
  const [words, setWords] = useState("");
  const isFound = (resources: object) => Object.keys(resources).some((name) => name.includes(words));
  return (
    <AnswerView answer={answer}>
      {({ xds, warnings = [] }) => (
        <>
          <p class="quiet">What it should have; under Live its Envoy says what it has.</p>
          {warnings.map((warning) => (
            <p key={warning} class="note">
              <Name text={warning} whole />
            </p>
          ))}
          <search class="bar">
            <label class="grows">
              <span class="unseen">Filter resources by name</span>
              <input
                type="search"
                data-search
                placeholder="Filter by name"
                value={words}
                onInput={(event) => setWords(event.currentTarget.value)}
              />
            </label>
          </search>
          {Object.entries(xds).map(([type, resources]) => (
            <ResourcesOfType key={type} type={type} resources={resources} words={words} />
          ))}
          {!Object.values(xds).some(isFound) && <p class="quiet">There is no such resource.</p>}
        </>
      )}
    </AnswerView>
  );
}

function ResourcesOfType({
  type,
  resources,
  words,
}: {
  type: string;
  resources: Record<string, unknown>;
  words: string;
}) {
  const entries = Object.entries(resources).filter(([name]) => name.includes(words));
  return entries.length === 0 ? null : (
    <section>
      <h2>
        {type.slice(type.lastIndexOf(".") + 1)} <span class="quiet">{quantity(entries.length, "resource")}</span>
      </h2>
      {entries.map(([name, resource]) => (
        <Json key={name} name={name} value={resource} />
      ))}
    </section>
  );
}

interface MatchedPolicy {
  readonly type: string;
  readonly mesh: string;
  readonly name: string;
  readonly warnings?: readonly string[];
}

function PoliciesTab({ path }: { path: string }) {
  const newest = useStore(revision);
  const answer = useAnswer<{ policies: readonly MatchedPolicy[]; policyEngine?: string }>(path, {}, newest);
  return (
    <AnswerView answer={answer}>
      {({ policies, policyEngine }) => (
        <Wide label="Policies">
          <table>
            <caption>
              {quantity(policies.length, "policy", "policies")} that select it, from the general to the specific
              {policyEngine !== undefined && `; engine ${policyEngine}`}
            </caption>
            <thead>
              <tr>
                <th scope="col">Type</th>
                <th scope="col">Name</th>
                <th scope="col">Not enforced</th>
              </tr>
            </thead>
            <tbody>
              {policies.map((policy) => (
                <tr key={`${policy.type} ${policy.name}`}>
                  <td>{policy.type}</td>
                  <th scope="row">
                    <Name text={policy.name} whole />
                  </th>
                  <td>
                    {policy.warnings?.map((warning) => (
                      <Name key={warning} text={warning} whole />
                    ))}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Wide>
      )}
    </AnswerView>
  );
}

function DocumentTab({ path }: { path: string }) {
  const newest = useStore(revision);
  const answer = useAnswer<object>(path, {}, newest);
  return <AnswerView answer={answer}>{(document) => <Json value={document} open />}</AnswerView>;
}
