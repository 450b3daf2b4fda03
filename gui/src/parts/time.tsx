import { duration, moment, now } from "../shell/clock";
import { useStore } from "../shell/store";

/** How long ago something was; when, on demand. */
export function Ago({ at }: { at: string | null }) {
  const today = useStore(now);
  if (at === null) {
    return <span class="quiet">never</span>;
  }
  const then = new Date(at);
  return (
    <time dateTime={at} title={then.toLocaleString()}>
      {duration(today - then.getTime())}
    </time>
  );
}

/** A moment. */
export function Moment({ at }: { at: string | null }) {
  if (at === null) {
    return <span class="quiet">never</span>;
  }
  return <time dateTime={at}>{moment(new Date(at))}</time>;
}
