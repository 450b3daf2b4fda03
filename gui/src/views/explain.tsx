/** Explain: a call, the route that it takes, every value in force for it, and the limits of both hops. */

import { useState } from "preact/hooks";
import { AnswerView } from "../parts/answer";
import { conditionsOf, ownerOf } from "../parts/conditions";
import { CopyButton } from "../parts/copy";
import { Fact } from "../parts/facts";
import { Name } from "../parts/name";
import { RolloutNote } from "../parts/rollout-note";
import { StateLabel } from "../parts/state";
import { Setter, Values, Where } from "../parts/values";
import { Wide } from "../parts/wide";
import { apiPath, revision, useAnswer } from "../shell/api";
import type { Access, Backend, Explanation, FieldValue, Limit, RouteRow } from "../shell/explanation";
import { fleet, STATES } from "../shell/fleet";
import { addressOf, go, place } from "../shell/route";
import { useStore } from "../shell/store";
import { quantity } from "../shell/text";

const MOST_OFFERED = 200;

export function ExplainView() {
  const { query } = useStore(place);
  const newest = useStore(revision);
  const asked = {
    mesh: query.get("mesh") ?? "default",
    proxy: query.get("proxy") ?? "",
    call: query.get("call") ?? "",
    headers: query.getAll("header"),
  };
  const isAsked = asked.proxy !== "" && asked.call !== "";
  const path = isAsked ? apiPath("meshes", asked.mesh, "dataplanes", asked.proxy, "_explain") : null;
  const answer = useAnswer<Explanation>(path, { call: asked.call, header: asked.headers }, newest);
  return (
    <>
      <Question key={window.location.search} {...asked} />
      {isAsked ? (
        <AnswerView answer={answer}>
          {(explanation) => <ExplanationView explanation={explanation} asked={asked} />}
        </AnswerView>
      ) : (
        <p class="quiet">
          Name a proxy and a call of its workload, such as <code>GET http://backend/slow</code>. At a builtin gateway,
          write the URL that a client outside the mesh would.
        </p>
      )}
    </>
  );
}

interface Asked {
  readonly mesh: string;
  readonly proxy: string;
  readonly call: string;
  readonly headers: readonly string[];
}

function Question(asked: Asked) {
  const { proxies } = useStore(fleet);
  const [proxy, setProxy] = useState(asked.proxy);
  const [call, setCall] = useState(asked.call);
  const [headers, setHeaders] = useState(asked.headers.join("\n"));
  const offered = proxies
    .filter((each) => each.mesh === asked.mesh && each.name.includes(proxy))
    .slice(0, MOST_OFFERED);
  const submit = (event: Event) => {
    event.preventDefault();
    const header = headers.split("\n").filter((line) => line.trim() !== "");
    go(addressOf(["explain"], { mesh: asked.mesh, proxy: proxy.trim(), call: call.trim(), header }));
  };
  return (
    <form class="question" onSubmit={submit}>
      <label>
        <span>
          Proxy in mesh <Name text={asked.mesh} />
        </span>
        <input
          type="text"
          list="proxies"
          required
          autocomplete="off"
          value={proxy}
          onInput={(event) => setProxy(event.currentTarget.value)}
        />
        <datalist id="proxies">
          {offered.map((each) => (
            <option key={each.name} value={each.name} />
          ))}
        </datalist>
      </label>
      <label class="grows">
        Call
        <input
          type="text"
          data-search
          required
          autocomplete="off"
          spellcheck={false}
          placeholder="GET http://backend/slow"
          value={call}
          onInput={(event) => setCall(event.currentTarget.value)}
        />
      </label>
      <label>
        Headers, one on a line
        <textarea
          rows={1}
          spellcheck={false}
          value={headers}
          onInput={(event) => setHeaders(event.currentTarget.value)}
        />
      </label>
      <button type="submit" class="main">
        Explain
      </button>
    </form>
  );
}

function ExplanationView({ explanation, asked }: { explanation: Explanation; asked: Asked }) {
  const shared = sharedValues(explanation.backends);
  const values = [...explanation.values, ...notShown(explanation.values, shared)];
  const differing = shared.length > 0 ? [] : explanation.backends.filter((backend) => backend.values.length > 0);
  return (
    <>
      {explanation.rollout !== undefined && <RolloutNote mesh={asked.mesh} text={explanation.rollout} />}
      <NotInSync {...asked} />
      <Summary explanation={explanation} />
      <p class="actions">
        <CopyButton label="Copy the link" text={() => window.location.href} />
        <CopyButton label="Copy the command" text={() => commandOf(asked)} />
      </p>
      {explanation.listener !== null && (
        <Values values={explanation.listener.clients} caption="Values for clients of the gateway" />
      )}
      {explanation.rows.length > 1 && <Routes rows={explanation.rows} />}
      <Values values={values} caption="Values" />
      {differing.map((backend) => (
        <Values
          key={backend.cluster}
          values={notShown(explanation.values, backend.values)}
          caption={`Values for ${backend.service || backend.cluster}`}
        />
      ))}
      {explanation.hops.map((hop) => (
        <Limits
          key={`${hop.cluster} ${hop.servers.join()}`}
          limits={hop.limits}
          servers={hop.servers}
          client={explanation.listener === null ? "Client" : "Gateway"}
        />
      ))}
      {explanation.servers.map((server) => (
        <Values
          key={`${server.cluster} ${server.servers.join()}`}
          values={server.values.filter((value) => value.said.policy !== null)}
          caption={`Values at ${firstNames(server.servers)}`}
        />
      ))}
      {explanation.access.map((access) => (
        <AccessTable key={`${access.cluster} ${access.servers.join()}`} access={access} />
      ))}
      <Sentences title="Going on with mTLS" sentences={explanation.moves} />
      <Sentences title="Left out" sentences={explanation.leftOut} />
      <Sentences title="Not known" sentences={explanation.notKnown} />
      <Sentences title="Not enforced" sentences={explanation.notEnforced} />
    </>
  );
}

/** What is explained is what the proxy should do. One that is not in sync may do something else. */
function NotInSync({ mesh, proxy }: Asked) {
  const { proxies } = useStore(fleet);
  const known = proxies.find((each) => each.mesh === mesh && each.name === proxy);
  return known === undefined || known.state === "online" ? null : (
    <p class="note">
      <StateLabel state={known.state} />: {STATES[known.state].meaning}. Here is what it should do, and not what it does
      now. <a href={addressOf(["proxies", mesh, proxy], { tab: "delivery" })}>What it was sent</a>
    </p>
  );
}

function Summary({ explanation }: { explanation: Explanation }) {
  const { outbound, listener, outcome, backends } = explanation;
  const taken = explanation.rows.find((row) => row.taken);
  return (
    <dl class="facts" aria-label="Where the call goes">
      {outbound !== null && (
        <Fact term="Leaves by">
          <Name text={`${outbound.address}:${outbound.port}`} whole />, for {outbound.kind}{" "}
          <Name text={outbound.destination} whole /> ({outbound.protocol})
        </Fact>
      )}
      {listener !== null && (
        <Fact term="Comes in by">
          <Name text={`${listener.address}:${listener.port}`} whole />, {listener.protocol} of MeshGateway{" "}
          <Name text={listener.gateway.name} whole />; listener <Name text={listener.hostname || "none"} whole />
          {listener.host !== "" && (
            <>
              , hostname <Name text={listener.host} whole />
            </>
          )}
          : <Name text={listener.reason} whole /> <Where origin={listener.origin} />
        </Fact>
      )}
      {taken !== undefined && (
        <Fact term="By route">
          <RouteName row={taken} /> <Where origin={taken.place} />
        </Fact>
      )}
      {outcome.path !== "" && outcome.path !== explanation.call.path && (
        <Fact term="Seen as">
          <Name text={outcome.path} whole />
        </Fact>
      )}
      {explanation.changes.map((change) => (
        <Fact key={change} term="On the way">
          <Name text={change} whole />
        </Fact>
      ))}
      {outcome.reply !== null && (
        <Fact term="Answers">
          <span class="bad">
            {outcome.reply.status === 0 ? "nothing, the connection is closed" : outcome.reply.status}
          </span>{" "}
          <Name text={outcome.reply.location || outcome.reply.body || outcome.reply.reason} whole />
        </Fact>
      )}
      {outcome.reply === null && backends.map((backend) => <BackendFact key={backend.cluster} backend={backend} />)}
    </dl>
  );
}

function BackendFact({ backend }: { backend: Backend }) {
  const name = <Name text={backend.service || backend.cluster} whole />;
  if (backend.missing !== "") {
    return (
      <Fact term="Goes to">
        <span class="bad">nobody</span> ({backend.share} %): <Name text={backend.missing} whole />
      </Fact>
    );
  }
  return (
    <Fact term="Goes to">
      {backend.share === 100 ? "" : `${backend.share} % `}
      {name},{" "}
      <span class={backend.endpoints.length === 0 ? "bad" : ""}>{quantity(backend.endpoints.length, "endpoint")}</span>
      {backend.endpoints.length > 0 && (
        <>
          : <Name text={firstNames(backend.endpoints)} whole />
        </>
      )}
    </Fact>
  );
}

function RouteName({ row }: { row: RouteRow }) {
  if (row.owner === null) {
    return <>{row.patched ? "a route that a MeshProxyPatch wrote" : "the one that every service has"}</>;
  }
  return (
    <>
      {row.owner.type} <Name text={row.owner.name} whole />
      {row.asks.length > 0 && (
        <>
          : <Name text={conditionsOf(row)} whole />
        </>
      )}
    </>
  );
}

function Routes({ rows }: { rows: readonly RouteRow[] }) {
  return (
    <Wide label="Routes">
      <table>
        <caption>Routes, in the order in which they are tried</caption>
        <thead>
          <tr>
            <th scope="col">Route</th>
            <th scope="col">Asks for</th>
            <th scope="col">Why</th>
            <th scope="col">Where</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.index} class={row.taken ? "taken" : ""} aria-current={row.taken ? "true" : undefined}>
              <th scope="row">
                {row.taken && <span aria-hidden="true">► </span>}
                <Name text={ownerOf(row)} whole />
              </th>
              <td>
                <Name text={conditionsOf(row)} whole />
              </td>
              <td>{row.why}</td>
              <td>
                <Where origin={row.place} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Wide>
  );
}

function Limits({ limits, servers, client }: { limits: readonly Limit[]; servers: readonly string[]; client: string }) {
  const subjects = [...new Set(limits.map((limit) => limit.of))].filter((subject) =>
    limits.some((limit) => limit.of === subject && limit.seconds > 0),
  );
  if (subjects.length === 0) {
    return null;
  }
  const caption = `Limits on the way to ${firstNames(servers) || "servers that are no proxies of this mesh"}`;
  const of = (subject: string, side: string) =>
    limits
      .filter((limit) => limit.of === subject && limit.side === side && limit.seconds > 0)
      .sort((one, other) => one.seconds - other.seconds)[0];
  return (
    <Wide label={caption}>
      <table>
        <caption>
          <Name text={caption} whole />
        </caption>
        <thead>
          <tr>
            <th scope="col">Of</th>
            <th scope="col">{client}</th>
            <th scope="col">Server</th>
          </tr>
        </thead>
        <tbody>
          {subjects.map((subject) => (
            <tr key={subject}>
              <th scope="row">{subject}</th>
              <LimitCell limit={of(subject, "client")} />
              <LimitCell limit={of(subject, "server")} />
            </tr>
          ))}
        </tbody>
      </table>
    </Wide>
  );
}

function LimitCell({ limit }: { limit: Limit | undefined }) {
  if (limit === undefined) {
    return <td class="quiet">no limit</td>;
  }
  return (
    <td class={limit.binding ? "binding" : ""}>
      <Name text={String(limit.said.value)} whole /> {limit.binding && <b>◄ reached first</b>}{" "}
      <Setter origin={limit.said} /> <Where origin={limit.said} />
    </td>
  );
}

function AccessTable({ access }: { access: Access }) {
  return (
    <section>
      <h2>
        Access to <Name text={firstNames(access.servers) || access.cluster} whole />
      </h2>
      <dl class="facts">
        <Fact term={access.allowed ? "Let in" : "Refused"}>
          {access.decidedBy === null ? (
            <Name text={access.reason} whole />
          ) : (
            <>
              {access.decidedBy.value === "deny" ? "denied" : "allowed"} by {access.decidedBy.policy?.type}{" "}
              <Setter origin={access.decidedBy} /> <Where origin={access.decidedBy} />
            </>
          )}
        </Fact>
        {access.shadowDeniedBy !== null && (
          <Fact term="Logged">
            that it might be denied, as <Setter origin={access.shadowDeniedBy} /> asks{" "}
            <Where origin={access.shadowDeniedBy} />
          </Fact>
        )}
        <Fact term="Spoken">
          {access.spoken}: <Name text={access.spokenReason} whole />
        </Fact>
        <Fact term="Taken">
          {access.taken}{" "}
          {access.takenOrigin !== null && (
            <>
              as <Setter origin={access.takenOrigin} /> says <Where origin={access.takenOrigin} />
            </>
          )}
        </Fact>
        <Names term="Caller is" names={access.callerNames} />
        <Names term="Expects" names={access.expectedNames} />
        <Names term="Server is" names={access.serverNames} />
      </dl>
    </section>
  );
}

function Names({ term, names }: { term: string; names: readonly string[] }) {
  return names.length === 0 ? null : (
    <Fact term={term}>
      <Name text={firstNames(names, 12)} whole />
    </Fact>
  );
}

function Sentences({ title, sentences }: { title: string; sentences: readonly string[] }) {
  return sentences.length === 0 ? null : (
    <section>
      <h2>{title}</h2>
      <ul>
        {sentences.map((sentence) => (
          <li key={sentence}>
            <Name text={sentence} whole />
          </li>
        ))}
      </ul>
    </section>
  );
}

function firstNames(names: readonly string[], most = 3): string {
  const more = names.length > most ? ` and ${names.length - most} more` : "";
  return `${names.slice(0, most).join(", ")}${more}`;
}

/** The values of the backends, if they are the same for all of them. */
function sharedValues(backends: readonly Backend[]): readonly FieldValue[] {
  const [first, ...others] = backends.filter((backend) => backend.missing === "");
  const isShared = others.every((other) => JSON.stringify(other.values) === JSON.stringify(first?.values));
  return first !== undefined && isShared ? first.values : [];
}

/** Values without those that are shown already: a field can act on the listener and on clusters. */
function notShown(known: readonly FieldValue[], values: readonly FieldValue[]): readonly FieldValue[] {
  const seen = new Set(known.map((value) => JSON.stringify([value.policy, value.path, value.said])));
  return values.filter((value) => !seen.has(JSON.stringify([value.policy, value.path, value.said])));
}

function commandOf({ mesh, proxy, call, headers }: Asked): string {
  const words = ["koguma", "explain", quote(proxy), quote(call)];
  const options = [
    ...(mesh === "default" ? [] : ["--mesh", quote(mesh)]),
    ...headers.flatMap((header) => ["-H", quote(header)]),
  ];
  return [...words, ...options].join(" ");
}

function quote(word: string): string {
  return /^[\w./:@%+=-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
