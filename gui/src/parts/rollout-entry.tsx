import { useState } from "preact/hooks";
import { announce } from "../shell/announce";
import { apiPath, asProblem, type Problem, post } from "../shell/api";
import { type Rollout, titleOf } from "../shell/rollouts";
import { ProblemNote } from "./answer";
import { Name } from "./name";
import { Ago } from "./time";

type Action = "pause" | "continue" | "abort";

/** The last rollout of a mesh: how far it has come, and what can be done about it while it is under way. */
export function RolloutEntry({ rollout, reload }: { rollout: Rollout; reload: () => void }) {
  return (
    <div class={`note ${rollout.state === "RolledBack" ? "bad" : ""}`}>
      <p>
        <b>{rollout.state}</b> in mesh <Name text={rollout.mesh} />: <Name text={rollout.course} whole />{" "}
        <span class="quiet">
          begun <Ago at={rollout.begun} /> ago by <Name text={rollout.author} />
        </span>
      </p>
      {rollout.reason !== null && (
        <p>
          <Name text={rollout.reason} whole />
        </p>
      )}
      <p>
        {rollout.resources.map((resource) => (
          <span key={titleOf(resource)} class="resource">
            <b>{resource.change}</b> <Name text={titleOf(resource)} />{" "}
          </span>
        ))}
      </p>
      {rollout.underWay && <Steering key={rollout.number} rollout={rollout} reload={reload} />}
    </div>
  );
}

/** A command is for the rollout that is shown, and for no later one of the same mesh. */
function Steering({ rollout, reload }: { rollout: Rollout; reload: () => void }) {
  const [isAsked, setAsked] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const steer = async (action: Action) => {
    setBusy(true);
    setProblem(null);
    try {
      const path = apiPath("meshes", rollout.mesh, "_rollout");
      const { data } = await post<Rollout>(path, { action, number: rollout.number });
      announce(`The rollout is ${data.state.toLowerCase()}`);
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      setBusy(false);
      setAsked(false);
      reload();
    }
  };
  const other: Action = rollout.state === "Paused" ? "continue" : "pause";
  return (
    <>
      {problem !== null && <ProblemNote problem={problem} />}
      {isAsked && <p>Nothing is stored then, and the proxies that have it go back to what is stored.</p>}
      <p class="actions">
        {isAsked ? (
          <>
            <button type="button" class="main" disabled={isBusy} onClick={() => steer("abort")}>
              Yes, take it back
            </button>
            <button type="button" onClick={() => setAsked(false)}>
              No
            </button>
          </>
        ) : (
          <>
            <button type="button" disabled={isBusy} onClick={() => steer(other)}>
              {other === "pause" ? "Pause" : "Continue"}
            </button>
            <button type="button" onClick={() => setAsked(true)}>
              Take it back …
            </button>
          </>
        )}
      </p>
    </>
  );
}
