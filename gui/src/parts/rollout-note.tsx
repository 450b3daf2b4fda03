import { useRollouts } from "../shell/rollouts";
import { addressOf } from "../shell/route";
import { Name } from "./name";

/** What a rollout that is under way means for what is shown, and the way to it. */
export function RolloutNote({ mesh, text }: { mesh: string; text: string }) {
  return (
    <p class="note">
      <Name text={text} whole /> <a href={addressOf(["changes"], { mesh })}>See the rollout</a>
    </p>
  );
}

/** That a rollout is under way, where what is stored is shown. Nobody is told of it who may not look into it. */
export function StoredNote({ mesh }: { mesh: string }) {
  const { data } = useRollouts();
  const rollout = data?.items.find((each) => each.mesh === mesh && each.underWay);
  return rollout === undefined ? null : (
    <RolloutNote
      mesh={mesh}
      text={storedNote(`rollout ${rollout.number} of mesh ${mesh} is under way: ${rollout.course}`)}
    />
  );
}

export function storedNote(sentence: string): string {
  return `${sentence}. Some proxies are served what it proposes; here is what is stored.`;
}
