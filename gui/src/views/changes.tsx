/** Changes: who wrote what and when, whom it reached, what is different, and the way back. */

import { useEffect, useState } from "preact/hooks";
import { AnswerView, ProblemNote } from "../parts/answer";
import { Difference } from "../parts/difference";
import { Fact } from "../parts/facts";
import { Name } from "../parts/name";
import { RolloutEntry } from "../parts/rollout-entry";
import { Ago, Moment } from "../parts/time";
import { announce } from "../shell/announce";
import { asProblem, type Problem, post, revision, type TaggedAnswer, useAnswer } from "../shell/api";
import { duration } from "../shell/clock";
import { type Resource, titleOf, useRollouts } from "../shell/rollouts";
import { addressOf, go, place, withParameters } from "../shell/route";
import { useStore } from "../shell/store";
import { quantity } from "../shell/text";

interface Reach {
  readonly revisions: readonly [number, number];
  readonly published: string;
  readonly inForce: string | null;
  readonly proxies: number;
  readonly have: number;
  readonly waiting: number;
  readonly gone: number;
  readonly refusals: number;
  readonly failed: number;
  readonly limited: number;
  readonly refused: readonly string[];
  readonly complete: boolean;
}

interface Write {
  readonly revision: number;
  readonly time: string;
  readonly author: string;
  readonly origin: string;
  readonly resources: readonly (Resource & { readonly change: string })[];
  readonly more: number;
  /** Null: nobody remembers. Left out: the caller may not know. */
  readonly reach?: Reach | null;
}

interface Timeline {
  readonly items: readonly Write[];
  readonly newest: number;
  readonly oldest: number;
  readonly next: number | null;
}

const SIZE = "50";
const SOON = 2000; // milliseconds after which it is asked again how far a change has come
const NAMED = 3;

/** Ask again while some proxy has not answered. */
function useSettled(timeline: Timeline | null, reload: () => void): void {
  useAgain(timeline?.items.some((write) => (write.reach?.waiting ?? 0) > 0) ?? false, timeline, reload);
}

/** Ask again soon after each answer, for as long as something is under way. */
function useAgain(isUnderWay: boolean, answer: unknown, reload: () => void): void {
  useEffect(() => {
    const timer = isUnderWay ? window.setTimeout(reload, SOON) : 0;
    return () => window.clearTimeout(timer);
  }, [isUnderWay, answer, reload]);
}

/** The last rollout of each mesh: what goes to some proxies first. Nobody is told of it who may not look into it. */
function Rollouts({ mesh }: { mesh: string }) {
  const answer = useRollouts();
  const { data, reload } = answer;
  useAgain(data?.items.some((rollout) => rollout.underWay) ?? false, data, reload);
  const items = (data?.items ?? []).filter((rollout) => mesh === "" || rollout.mesh === mesh);
  if (answer.problem !== null && !answer.problem.isClosed) {
    return <ProblemNote problem={answer.problem} retry={reload} />;
  }
  return items.length === 0 ? null : (
    <section>
      <h2>Rollouts</h2>
      {items.map((rollout) => (
        <RolloutEntry key={rollout.mesh} rollout={rollout} reload={reload} />
      ))}
    </section>
  );
}

export function ChangesView() {
  const { query } = useStore(place);
  const before = query.get("before") ?? undefined;
  const answer = useAnswer<Timeline>("/_changes", { size: SIZE, before }, useStore(revision));
  useSettled(answer.data, answer.reload);
  const mesh = query.get("mesh") ?? "";
  return (
    <>
      <Rollouts mesh={mesh} />
      <AnswerView answer={answer}>
        {(timeline) => {
          const items = timeline.items.filter((write) => isOf(write, mesh));
          return (
            <>
              {items.length === 0 && <p class="quiet">{emptinessOf(timeline, mesh)}</p>}
              <ol class="timeline">
                {items.map((write) => (
                  <Entry key={write.revision} write={write} />
                ))}
              </ol>
              <p class="actions">
                {before !== undefined && <a href={withParameters({ before: null })}>The newest</a>}
                {timeline.next !== null && <a href={withParameters({ before: String(timeline.next) })}>Earlier ones</a>}
              </p>
            </>
          );
        }}
      </AnswerView>
    </>
  );
}

function emptinessOf({ items, next }: Timeline, mesh: string): string {
  const [newest, oldest] = [items[0]?.revision, items[items.length - 1]?.revision];
  const nothing =
    newest === undefined ? "No write is here" : `None of revisions ${oldest} to ${newest} is of mesh ${mesh}`;
  return `${nothing}, as far as you may see${next === null ? "" : "; there are earlier ones"}.`;
}

/** Whether a write is of a mesh. Of a large one not all resources are told, so it may be. */
function isOf(write: Write, mesh: string): boolean {
  return (
    mesh === "" ||
    write.more > 0 ||
    write.resources.some((each) => (each.mesh ?? (each.type === "Mesh" ? each.name : "")) === mesh)
  );
}

function Entry({ write }: { write: Write }) {
  const [listed, total] = [write.resources.slice(0, NAMED), write.resources.length + write.more];
  return (
    <li class={(write.reach?.refusals ?? 0) > 0 ? "refusing" : ""}>
      <p>
        <a href={addressOf(["changes", String(write.revision)])}>Revision {write.revision}</a>{" "}
        <span class="quiet">
          <Ago at={write.time} /> ago
        </span>{" "}
        {write.author === "" ? <span class="quiet">somebody</span> : <Name text={write.author} />}{" "}
        <span class="quiet">
          <Name text={write.origin} />
        </span>
      </p>
      <p>
        {listed.map((resource) => (
          <span key={titleOf(resource)} class="resource">
            <b>{resource.change}</b> <Name text={titleOf(resource)} />{" "}
          </span>
        ))}
        {total > listed.length && <span class="quiet">and {(total - listed.length).toLocaleString("en")} more</span>}
      </p>
      <ReachLine write={write} />
    </li>
  );
}

function ReachLine({ write }: { write: Write }) {
  const { reach } = write;
  if (reach === undefined) {
    return null;
  }
  if (reach === null) {
    return <p class="quiet">Nobody remembers whom it reached.</p>;
  }
  return (
    <p class={reach.refusals > 0 ? "bad" : "quiet"}>
      {reachOf(reach)}
      {reach.inForce !== null && reach.proxies > 0 && `, in force after ${timeTaken(write, reach.inForce)}`}
      {!reach.complete && ", as far as is known"}
    </p>
  );
}

function reachOf(reach: Reach): string {
  if (reach.proxies === 0) {
    return "It concerned no connected proxy";
  }
  const parts = [`${reach.have.toLocaleString("en")} of ${quantity(reach.proxies, "proxy", "proxies")} took it`];
  const others: readonly (readonly [number, string])[] = [
    [reach.refusals, "refused"],
    [reach.waiting, "waiting"],
    [reach.gone, "gone"],
    [reach.failed, "failed"],
    [reach.limited, "over a limit"],
  ];
  return [...parts, ...others.filter(([count]) => count > 0).map(([count, word]) => `${count} ${word}`)].join(", ");
}

/** From the write to the last answer. The clocks may be of two machines. */
function timeTaken(write: Write, inForce: string): string {
  const milliseconds = Math.max(0, new Date(inForce).getTime() - new Date(write.time).getTime());
  return milliseconds < 10_000 ? `${milliseconds.toLocaleString("en")} ms` : duration(milliseconds);
}

// --- one change ---

interface Differences {
  readonly from: number;
  readonly to: number;
  readonly changes: readonly (Resource & {
    readonly change: string;
    readonly before?: unknown;
    readonly after?: unknown;
    readonly inSecretsAlone?: boolean;
  })[];
}

export function ChangeView({ names }: { names: readonly string[] }) {
  const number = Number(names[0]);
  const isRevision = Number.isSafeInteger(number) && number > 0;
  const [from, to] = [String(number - 1), String(number)];
  const newest = useStore(revision);
  const ofWrite = useAnswer<Timeline>(
    isRevision ? "/_changes" : null,
    { size: "1", before: String(number + 1) },
    newest,
  );
  const difference = useAnswer<Differences>(isRevision ? "/_diff" : null, { from, to });
  useSettled(ofWrite.data, ofWrite.reload);
  if (!isRevision) {
    return <p>That is no revision. Revisions are numbers, one higher for each write.</p>;
  }
  return (
    <>
      <AnswerView answer={ofWrite}>
        {(timeline) => {
          const write = timeline.items.find((each) => each.revision === number);
          return write === undefined ? (
            <p class="quiet">
              It is not among the writes that are listed for you: those that you may see, that are remembered, and that
              are neither a registration of a proxy nor a step of a rollout.
            </p>
          ) : (
            <WriteFacts write={write} />
          );
        }}
      </AnswerView>
      <h2>What is different</h2>
      <AnswerView answer={difference}>
        {({ changes }) => (
          <>
            {changes.length === 0 && <p class="quiet">Nothing, or nothing that you may see.</p>}
            {changes.map((change) => (
              <section key={titleOf(change)}>
                <h3>
                  {change.change} <Name text={titleOf(change)} whole />
                </h3>
                {change.inSecretsAlone && <p class="quiet">A secret alone is different, and is not shown.</p>}
                <Difference before={change.before} after={change.after} label={`Difference of ${titleOf(change)}`} />
              </section>
            ))}
            {changes.length > 0 && <Rollback revision={number - 1} changed={changes} />}
          </>
        )}
      </AnswerView>
    </>
  );
}

function WriteFacts({ write }: { write: Write }) {
  const { reach } = write;
  return (
    <dl class="facts">
      <Fact term="Written">
        <Moment at={write.time} />, <Ago at={write.time} /> ago
      </Fact>
      <Fact term="By">
        <Name text={write.author || "somebody who is not known"} whole /> <Name text={write.origin} whole />
      </Fact>
      {reach === null && <Fact term="Reached">nobody remembers</Fact>}
      {reach !== undefined && reach !== null && (
        <>
          <Fact term="Reached">
            {reachOf(reach)}
            {!reach.complete && ", as far as is known"}
          </Fact>
          {reach.proxies > 0 && (
            <Fact term="In force">
              {reach.inForce === null ? "not everywhere" : <>after {timeTaken(write, reach.inForce)}</>}
            </Fact>
          )}
          {reach.revisions[0] !== reach.revisions[1] && (
            <Fact term="Together with">
              revisions {reach.revisions[0]} to {reach.revisions[1]}, which were served in one go
            </Fact>
          )}
          {reach.refused.length > 0 && (
            <Fact term="Refused by">
              {reach.refused.map((proxy) => (
                <ProxyLink key={proxy} proxy={proxy} />
              ))}
              {reach.refusals > reach.refused.length && `and ${reach.refusals - reach.refused.length} more`}
            </Fact>
          )}
        </>
      )}
    </dl>
  );
}

function ProxyLink({ proxy }: { proxy: string }) {
  const dot = proxy.indexOf("."); // the name of a mesh has none
  const path = ["proxies", proxy.slice(0, dot), proxy.slice(dot + 1)];
  return (
    <>
      <a href={addressOf(path)}>
        <Name text={path.slice(1).join("/")} />
      </a>{" "}
    </>
  );
}

// --- the way back ---

interface RollbackAnswer {
  readonly resources: readonly (Resource & { readonly outcome: string; readonly warnings?: readonly string[] })[];
  readonly leftOut: readonly (Resource & { readonly reason: string })[];
}

const NOTHING = "Nothing was written";
const GONE_BACK = "It has gone back";

const CONFLICT = 412; // since the preview something was written that makes it another one

type Choice = "these" | "mesh" | "all";

/** The way back is a write. It shows what it would do before it does it. */
function Rollback({ revision: to, changed }: { revision: number; changed: readonly Resource[] }) {
  const meshes = [...new Set(changed.map((each) => each.mesh ?? (each.type === "Mesh" ? each.name : "")))];
  const [mesh] = meshes;
  const isOfOne = meshes.length === 1 && mesh !== undefined && mesh !== "";
  const [choice, setChoice] = useState<Choice>(isOfOne ? "these" : "all");
  const [preview, setPreview] = useState<TaggedAnswer<RollbackAnswer> | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [done, setDone] = useState<RollbackAnswer | null>(null);
  const [isBusy, setBusy] = useState(false);
  const only = choice === "these" ? { only: changed.map(({ type, name }) => ({ type, name })) } : {};
  const body = { revision: to, ...(choice === "all" ? {} : { mesh }), ...only };
  const look = async () => {
    setPreview(await post<RollbackAnswer>("/_rollback", body, { dryRun: "true" }));
    setDone(null);
    announce("This is what would go back");
  };
  const write = async () => {
    const { data } = await post<RollbackAnswer>("/_rollback", body, {}, preview?.tag ?? undefined);
    setPreview(null);
    setDone(data);
    announce(data.resources.length === 0 ? NOTHING : GONE_BACK);
  };
  const attempt = async (request: () => Promise<void>) => {
    setBusy(true);
    setProblem(null);
    try {
      await request();
    } catch (error) {
      setPreview(null);
      setProblem(asProblem(error));
      if (asProblem(error).status === CONFLICT) {
        await look().catch((again: unknown) => setProblem(asProblem(again)));
      }
    } finally {
      setBusy(false);
    }
  };
  return (
    <section class="rollback">
      <h2>Take it back</h2>
      <p>
        A new write brings resources back to how they were at revision {to}, before this change. What was written to
        them since goes too.
      </p>
      <div class="bar">
        <label>
          What goes back{" "}
          <select
            value={choice}
            onChange={(event) => {
              setChoice(event.currentTarget.value as Choice);
              setPreview(null);
              setDone(null);
            }}
          >
            {isOfOne && <option value="these">the resources of this change</option>}
            {isOfOne && <option value="mesh">all of its mesh</option>}
            <option value="all">everything</option>
          </select>
        </label>
        <button type="button" disabled={isBusy} onClick={() => attempt(look)}>
          Show what would go back
        </button>
      </div>
      {problem !== null && <ProblemNote problem={problem} />}
      {preview !== null && (
        <>
          <Outcomes answer={preview.data} />
          {preview.data.resources.length > 0 && (
            <Confirmation count={preview.data.resources.length} isBusy={isBusy} confirm={() => attempt(write)} />
          )}
        </>
      )}
      {done !== null && (
        <div class="note" role="status">
          <p>
            <strong>{done.resources.length === 0 ? NOTHING : GONE_BACK}.</strong>{" "}
            <button type="button" class="plain" onClick={() => go(addressOf(["changes"]))}>
              See how far it is
            </button>
          </p>
          <Outcomes answer={done} />
        </div>
      )}
    </section>
  );
}

function Outcomes({ answer }: { answer: RollbackAnswer }) {
  return (
    <>
      {answer.resources.length === 0 && <p>Nothing is different from then, so nothing would be written.</p>}
      <ul class="plain-list" aria-label="What goes back">
        {answer.resources.map((resource) => (
          <li key={titleOf(resource)}>
            <b>{resource.outcome}</b> <Name text={titleOf(resource)} whole />
            {resource.warnings?.map((warning) => (
              <p key={warning} class="note">
                <Name text={warning} whole />
              </p>
            ))}
          </li>
        ))}
      </ul>
      {answer.leftOut.length > 0 && (
        <ul class="plain-list quiet" aria-label="What stays as it is">
          {answer.leftOut.map((resource) => (
            <li key={titleOf(resource)}>
              <Name text={titleOf(resource)} whole /> stays: <Name text={resource.reason} whole />
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

function Confirmation({ count, isBusy, confirm }: { count: number; isBusy: boolean; confirm: () => void }) {
  const [isAsked, setAsked] = useState(false);
  const what = quantity(count, "resource");
  if (!isAsked) {
    return (
      <button type="button" onClick={() => setAsked(true)}>
        Take back {what} …
      </button>
    );
  }
  return (
    <div class="note bad">
      <p>This writes {what} now, and proxies are served it.</p>
      <p class="actions">
        <button type="button" class="main" disabled={isBusy} onClick={confirm}>
          Yes, take back {what}
        </button>
        <button type="button" onClick={() => setAsked(false)}>
          No
        </button>
      </p>
    </div>
  );
}
