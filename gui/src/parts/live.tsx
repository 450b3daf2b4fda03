/** What an Envoy has and does right now, which its agent is asked for. Nothing is asked before somebody says so. */

import { useState } from "preact/hooks";
import { apiPath, useAnswerOnDemand } from "../shell/api";
import { quantity } from "../shell/text";
import { AnswerView } from "./answer";
import { type EnvoyComparison, EnvoyDifferences } from "./envoy-differences";
import { Json } from "./json";
import { Name } from "./name";
import { Wide } from "./wide";

const SUBJECTS = [
  { key: "clusters", title: "Clusters and the health of endpoints" },
  { key: "stats", title: "Stats" },
  { key: "certs", title: "Certificates" },
  { key: "listeners", title: "Listeners" },
  { key: "config_dump", title: "Configuration" },
  { key: "server_info", title: "Envoy itself" },
  { key: "log_level", title: "The level of its log" },
  { key: "diff", title: "What is not as it should be" },
] as const;

type Subject = (typeof SUBJECTS)[number]["key"];

export function LiveTab({ mesh, name }: { mesh: string; name: string }) {
  const [subject, setSubject] = useState<Subject>("clusters");
  const [filter, setFilter] = useState("");
  const [asked, setAsked] = useState<{ subject: Subject; filter: string; turn: number } | null>(null);
  const path = asked === null ? null : apiPath("meshes", mesh, "dataplanes", name, "_envoy", asked.subject);
  const query = asked === null || asked.filter === "" ? {} : { filter: asked.filter };
  const answer = useAnswerOnDemand<unknown>(path, query, asked?.turn ?? 0);
  const ask = (event: Event) => {
    event.preventDefault();
    setAsked({ subject, filter: takesFilter(subject) ? filter : "", turn: (asked?.turn ?? 0) + 1 });
  };
  return (
    <>
      <form class="bar" onSubmit={ask}>
        <label>
          Ask its Envoy for{" "}
          <select value={subject} onChange={(event) => setSubject(event.currentTarget.value as Subject)}>
            {SUBJECTS.map(({ key, title }) => (
              <option key={key} value={key}>
                {title}
              </option>
            ))}
          </select>
        </label>
        {takesFilter(subject) && (
          <label class="grows">
            <span class="unseen">Names that match</span>
            <input
              type="search"
              data-search
              placeholder="Names that match an expression, such as upstream_rq_5xx"
              value={filter}
              onInput={(event) => setFilter(event.currentTarget.value)}
            />
          </label>
        )}
        <button type="submit" class="main">
          Ask
        </button>
      </form>
      {asked !== null && (
        <AnswerView answer={answer}>{(data) => <EnvoyAnswer subject={asked.subject} data={data} />}</AnswerView>
      )}
    </>
  );
}

function EnvoyAnswer({ subject, data }: { subject: Subject; data: unknown }) {
  switch (subject) {
    case "clusters":
      return <Clusters data={data as ClusterAnswer} />;
    case "stats":
      return <Stats data={data as StatsAnswer} />;
    case "log_level":
      return <LogLevel data={data as LogLevelAnswer} />;
    case "diff":
      return <EnvoyDifferences data={data as EnvoyComparison} />;
    default:
      return <Json value={data} open />;
  }
}

function takesFilter(subject: Subject): boolean {
  return subject === "stats" || subject === "config_dump";
}

interface ClusterAnswer {
  readonly cluster_statuses?: readonly {
    readonly name: string;
    readonly host_statuses?: readonly {
      readonly address?: { readonly socket_address?: { readonly address: string; readonly port_value: number } };
      readonly stats?: readonly { readonly name: string; readonly value?: string }[];
      readonly health_status?: Readonly<Record<string, unknown>>;
    }[];
  }[];
}

function Clusters({ data }: { data: ClusterAnswer }) {
  const clusters = data.cluster_statuses ?? [];
  const hosts = clusters.flatMap(({ name, host_statuses = [] }) => host_statuses.map((host) => ({ name, host })));
  return (
    <Wide label="Clusters">
      <table>
        <caption>
          {quantity(clusters.length, "cluster")}, {quantity(hosts.length, "endpoint")}
        </caption>
        <thead>
          <tr>
            {["Cluster", "Endpoint", "Health", "Requests", "Errors", "Active"].map((title) => (
              <th key={title} scope="col">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {clusters
            .filter(({ host_statuses = [] }) => host_statuses.length === 0)
            .map(({ name }) => (
              <tr key={name}>
                <th scope="row">
                  <Name text={name} whole />
                </th>
                <td class="quiet" colSpan={5}>
                  no endpoint
                </td>
              </tr>
            ))}
          {hosts.map(({ name, host }) => {
            const { address, port_value } = host.address?.socket_address ?? { address: "", port_value: 0 };
            const stat = (wanted: string) => host.stats?.find((each) => each.name === wanted)?.value ?? "0";
            const health = healthOf(host.health_status ?? {});
            return (
              <tr key={`${name} ${address}:${port_value}`}>
                <th scope="row">
                  <Name text={name} whole />
                </th>
                <td class="figure">{address === "" ? "" : `${address}:${port_value}`}</td>
                <td class={health === "healthy" ? "" : "bad"}>{health}</td>
                <td class="figure">{stat("rq_total")}</td>
                <td class="figure">{stat("rq_error")}</td>
                <td class="figure">{stat("rq_active")}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </Wide>
  );
}

/** What Envoy says of the health of an endpoint, in its words. */
function healthOf(status: Readonly<Record<string, unknown>>): string {
  const marks = Object.entries(status).filter(([, value]) => value === true);
  const { eds_health_status: told } = status;
  const named = typeof told === "string" && told !== "HEALTHY" && told !== "UNKNOWN" ? [told.toLowerCase()] : [];
  return [...named, ...marks.map(([name]) => name.replaceAll("_", " "))].join(", ") || "healthy";
}

interface StatsAnswer {
  readonly stats?: readonly {
    readonly name?: string;
    readonly value?: number | string;
    readonly histograms?: unknown;
  }[];
}

function Stats({ data }: { data: StatsAnswer }) {
  const stats = (data.stats ?? []).filter((stat) => stat.name !== undefined && stat.value !== undefined);
  const histograms = (data.stats ?? []).filter((stat) => stat.histograms !== undefined);
  return (
    <>
      <Wide label="Stats">
        <table>
          <caption>{quantity(stats.length, "stat")}, of those that were used</caption>
          <tbody>
            {stats.map((stat) => (
              <tr key={stat.name}>
                <th scope="row">
                  <Name text={stat.name ?? ""} whole />
                </th>
                <td class="figure">{String(stat.value)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
      {histograms.map((stat) => (
        <Json key="histograms" name="histograms" value={stat.histograms} />
      ))}
    </>
  );
}

interface LogLevelAnswer {
  readonly level: string;
  readonly loggers: Readonly<Record<string, string>>;
  readonly setBackIn: number | null;
}

function LogLevel({ data }: { data: LogLevelAnswer }) {
  return (
    <>
      <p>
        It logs at level <Name text={data.level} whole />
        {data.setBackIn !== null && `, and as before in ${Math.ceil(data.setBackIn)} s`}.{" "}
        <span class="quiet">
          <code>koguma log-level</code> sets another one for a time.
        </span>
      </p>
      {Object.keys(data.loggers).length > 0 && <Json name="loggers with another level" value={data.loggers} open />}
    </>
  );
}
