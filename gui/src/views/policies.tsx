/** Policies: what each selects, what of it survives where, and findings with what would be right. */

import { useMemo } from "preact/hooks";
import { AnswerView, ProblemNote } from "../parts/answer";
import { type Finding, Findings } from "../parts/findings";
import { Name } from "../parts/name";
import { StoredNote } from "../parts/rollout-note";
import { Wide } from "../parts/wide";
import { apiPath, revision, useAnswer } from "../shell/api";
import { useMeshes } from "../shell/meshes";
import { addressOf, go, place, withParameters } from "../shell/route";
import { useStore } from "../shell/store";
import { quantity, textOf, visible } from "../shell/text";

interface TargetRef {
  readonly kind?: string;
  readonly name?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly tags?: Readonly<Record<string, string>>;
  readonly sectionName?: string;
}

interface Policy {
  readonly type: string;
  readonly plural: string;
  readonly mesh: string;
  readonly name: string;
  readonly targetRef: TargetRef | null;
  readonly proxies: number;
  readonly file?: string;
  readonly line?: number;
}

interface Lint {
  readonly findings: readonly Finding[];
}

export function PoliciesView() {
  const { query } = useStore(place);
  const meshes = useMeshes();
  const mesh = query.get("mesh") ?? meshes[0] ?? "";
  const newest = useStore(revision);
  const path = mesh === "" ? null : apiPath("meshes", mesh, "_policies");
  const answer = useAnswer<{ items: readonly Policy[] }>(path, {}, newest);
  const lint = useAnswer<Lint>(mesh === "" ? null : apiPath("meshes", mesh, "_lint"), {}, newest);
  const words = query.get("q") ?? "";
  return (
    <>
      <search class="bar">
        <label class="grows">
          <span class="unseen">Filter policies</span>
          <input
            type="search"
            data-search
            placeholder="Filter by type or name"
            value={words}
            onInput={(event) => go(withParameters({ q: event.currentTarget.value || null }), { replacing: true })}
          />
        </label>
        <span class="quiet">
          of mesh <Name text={mesh} />
        </span>
      </search>
      {mesh !== "" && <StoredNote mesh={mesh} />}
      {lint.problem !== null && <ProblemNote problem={lint.problem} retry={lint.reload} />}
      <AnswerView answer={answer}>
        {({ items }) => (
          <PolicyTable
            policies={items.filter((policy) => hasWords(policy, words))}
            isEmpty={items.length === 0}
            lint={lint.data}
          />
        )}
      </AnswerView>
    </>
  );
}

function hasWords(policy: Policy, words: string): boolean {
  const text = `${policy.type} ${policy.name}`.toLowerCase();
  return words
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}

function PolicyTable(properties: { policies: readonly Policy[]; isEmpty: boolean; lint: Lint | null }) {
  const { policies, isEmpty, lint } = properties;
  const counts = useMemo(() => countsOf(lint), [lint]);
  if (policies.length === 0) {
    return <p class="quiet">{isEmpty ? "There is no policy that you may see." : "No policy has these words."}</p>;
  }
  return (
    <Wide label="Policies">
      <table>
        <thead>
          <tr>
            <th scope="col">Type</th>
            <th scope="col">Name</th>
            <th scope="col">For</th>
            <th scope="col">Selects</th>
            <th scope="col">Findings</th>
            <th scope="col">Where</th>
          </tr>
        </thead>
        <tbody>
          {policies.map((policy) => (
            <tr key={`${policy.type} ${policy.name}`}>
              <td>{policy.type}</td>
              <th scope="row">
                <a href={addressOf(["policies", policy.mesh, policy.plural, policy.name])}>
                  <Name text={policy.name} />
                </a>
              </th>
              <td>
                <Name text={targetOf(policy.targetRef)} />
              </td>
              <td class={policy.proxies === 0 ? "bad" : ""}>{quantity(policy.proxies, "proxy", "proxies")}</td>
              <td>{lint === null ? "not known" : counts.get(`${policy.type} ${policy.mesh}/${policy.name}`)}</td>
              <td class="place">{policy.file !== undefined && <Name text={`${policy.file}:${policy.line}`} />}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Wide>
  );
}

function countsOf(lint: Lint | null): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const { resource = "" } of lint?.findings ?? []) {
    counts.set(resource, (counts.get(resource) ?? 0) + 1);
  }
  return counts;
}

function targetOf(target: TargetRef | null): string {
  if (target === null) {
    return "";
  }
  const narrowed = Object.entries({ ...target.labels, ...target.tags }).map(([name, value]) => `${name}=${value}`);
  return [target.kind, target.name, target.sectionName, ...narrowed].filter((word) => word !== undefined).join(" ");
}

// --- one policy ---

interface Value {
  readonly where: string;
  readonly field: string;
  readonly value: unknown;
  readonly file: string;
  readonly line: number;
  readonly reason?: string;
  readonly refused?: readonly string[];
  readonly by?: { readonly type: string; readonly name: string; readonly value: unknown };
}

interface Affected {
  readonly type: string;
  readonly mesh: string;
  readonly name: string;
  readonly status?: string;
  readonly survives?: readonly Value[];
  readonly overridden?: readonly Value[];
  readonly withoutEffect?: readonly Value[];
  /** Why nobody can tell what becomes of it there. */
  readonly failure?: string;
}

interface AffectedPage {
  readonly total: number;
  readonly items: readonly Affected[];
  readonly next: string | null;
}

/** What becomes of a value that no other one overrides, by the state of the proxy; it is in force elsewhere. */
const STANDING: Readonly<Record<string, string>> = {
  "Out of sync": "in force once the proxy has it",
  Failed: "in force if it could be made",
  "Over limit": "in force if it is in a part that is not left out",
  Offline: "in force once the proxy is back",
  Unknown: "in force if the proxy has it",
};

const SIZE = 200;
const NAMED = 5;

export function PolicyView({ names }: { names: readonly string[] }) {
  const [mesh = "", plural = "", name = ""] = names;
  const { query } = useStore(place);
  const newest = useStore(revision);
  const offset = query.get("offset") ?? undefined;
  const path = apiPath("meshes", mesh, plural, name);
  const document = useAnswer<{ type: string }>(path, {}, newest);
  const lint = useAnswer<Lint>(apiPath("meshes", mesh, "_lint"), {}, newest);
  const answer = useAnswer<AffectedPage>(`${path}/_resources/dataplanes`, { size: String(SIZE), offset }, newest);
  const resource = document.data === null ? null : `${document.data.type} ${mesh}/${name}`;
  const findings = (lint.data?.findings ?? []).filter((finding) => finding.resource === resource);
  return (
    <>
      <StoredNote mesh={mesh} />
      {[document.problem, lint.problem].map(
        (problem, index) => problem !== null && <ProblemNote key={String(index)} problem={problem} />,
      )}
      <Findings findings={findings} />
      {lint.data !== null && resource !== null && findings.length === 0 && (
        <p class="quiet">There are no findings about it.</p>
      )}
      <AnswerView answer={answer}>
        {(page) => (
          <>
            <p>It selects {quantity(page.total, "proxy", "proxies")}.</p>
            {groupAlike(page.items).map((proxies) => (
              <AffectedProxies key={proxies[0].name} proxies={proxies} />
            ))}
            <p class="actions">
              {offset !== undefined && <a href={withParameters({ offset: null })}>The first</a>}
              {page.next !== null && (
                <a href={withParameters({ offset: new URL(page.next).searchParams.get("offset") })}>More proxies</a>
              )}
            </p>
          </>
        )}
      </AnswerView>
    </>
  );
}

type Alike = readonly [Affected, ...Affected[]];

/** Proxies on which the same becomes of it, together. */
function groupAlike(proxies: readonly Affected[]): readonly Alike[] {
  const groups = new Map<string, [Affected, ...Affected[]]>();
  for (const proxy of proxies) {
    const key = JSON.stringify([proxy.status, proxy.survives, proxy.overridden, proxy.withoutEffect, proxy.failure]);
    const group = groups.get(key);
    if (group === undefined) {
      groups.set(key, [proxy]);
    } else {
      group.push(proxy);
    }
  }
  return [...groups.values()];
}

function AffectedProxies({ proxies }: { proxies: Alike }) {
  const { name, status = "", survives = [], overridden = [], withoutEffect = [], failure } = proxies[0];
  const refused = survives.filter((value) => value.refused !== undefined);
  const standing = survives.filter((value) => value.refused === undefined);
  const word = STANDING[status] ?? "in force";
  const isEmpty = survives.length + overridden.length + withoutEffect.length === 0;
  return (
    <Wide label={`What holds of it on ${visible(name)}`}>
      <table class="values">
        <caption>
          {proxies.slice(0, NAMED).map((proxy) => (
            <span key={proxy.name}>
              <a href={addressOf(["proxies", proxy.mesh, proxy.name])}>
                <Name text={proxy.name} />
              </a>{" "}
            </span>
          ))}
          {proxies.length > NAMED && `and ${proxies.length - NAMED} more `}
          <span class="quiet">
            {isEmpty ? (
              failure === undefined ? (
                "nothing of it is for what they have"
              ) : (
                <Name text={`what becomes of it ${failure}`} whole />
              )
            ) : (
              `${refused.length > 0 ? `${refused.length} refused, ` : ""}${standing.length} ${word}, ${overridden.length} overridden, ${withoutEffect.length} without effect`
            )}
          </span>
        </caption>
        {!isEmpty && (
          <>
            <thead>
              <tr>
                <th scope="col">What becomes of it</th>
                <th scope="col">For</th>
                <th scope="col">Field</th>
                <th scope="col">Value</th>
                <th scope="col">Why</th>
              </tr>
            </thead>
            <tbody>
              <Rows values={refused} word="refused" kind="bad" />
              <Rows values={standing} word={word} kind="" />
              <Rows values={overridden} word="overridden" kind="idle" />
              <Rows values={withoutEffect} word="without effect" kind="idle" />
            </tbody>
          </>
        )}
      </table>
    </Wide>
  );
}

function Rows({ values, word, kind }: { values: readonly Value[]; word: string; kind: string }) {
  return (
    <>
      {values.map((value) => (
        <tr key={JSON.stringify(value)} class={kind}>
          <th scope="row">{word}</th>
          <td>
            <Name text={value.where} whole />
          </td>
          <td class="figure">
            <Name text={value.field} whole />
          </td>
          <td class="figure">
            <Name text={textOf(value.value)} whole />
          </td>
          <td>
            <Name text={whyOf(value)} whole />
          </td>
        </tr>
      ))}
    </>
  );
}

function whyOf(value: Value): string {
  const { reason = "", by, refused } = value;
  if (refused !== undefined) {
    return refused.join("; ");
  }
  return by === undefined ? reason : `${by.type} ${by.name} says ${textOf(by.value)}`;
}
