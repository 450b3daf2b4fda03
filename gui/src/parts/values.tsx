/** Values with their origins: who set each, where it is written, and what it overrides. */

import type { FieldValue, Origin } from "../shell/explanation";
import { textOf } from "../shell/text";
import { Name } from "./name";
import { Wide } from "./wide";

export function Values({ values, caption }: { values: readonly FieldValue[]; caption: string }) {
  const kinds = [...new Set(values.map((value) => value.policy))].sort();
  if (values.length === 0) {
    return null;
  }
  return (
    <Wide label={caption}>
      <table class="values">
        <caption>{caption}</caption>
        <thead>
          <tr>
            <th scope="col">Field</th>
            <th scope="col">Value</th>
            <th scope="col">Level</th>
            <th scope="col">Set by</th>
            <th scope="col">Where</th>
          </tr>
        </thead>
        {kinds.map((kind) => (
          <tbody key={kind}>
            <tr class="kind">
              <th colSpan={5} scope="rowgroup">
                {kind}
              </th>
            </tr>
            {values.filter((value) => value.policy === kind).map(FieldRows)}
          </tbody>
        ))}
      </table>
    </Wide>
  );
}

function FieldRows(value: FieldValue) {
  const { said, note } = value;
  const text = said.value === null && note !== "" ? note : textOf(said.value);
  const remark = note !== "" && note !== text ? note : "";
  return (
    <>
      <tr key={value.path} class={said.policy === null ? "default" : note === "" ? "" : "idle"}>
        <th scope="row">
          <Name text={value.path} whole />
        </th>
        <td class="figure">
          <Name text={text} whole />
          {remark !== "" && <p class="quiet">{remark}</p>}
        </td>
        <td>{said.level}</td>
        <td>
          <Setter origin={said} />
        </td>
        <td>
          <Where origin={said} />
        </td>
      </tr>
      {value.over.map((origin, index) => (
        <tr key={`${value.path} ${index}`} class="lost">
          <th scope="row">instead of</th>
          <td class="figure">
            <del>
              <Name text={textOf(origin.value)} whole />
            </del>
          </td>
          <td>{origin.level}</td>
          <td>
            <Setter origin={origin} />
          </td>
          <td>
            <Where origin={origin} />
            {origin.removedBy !== null && (
              <>
                {" "}
                removed by <Setter origin={origin.removedBy} /> <Where origin={origin.removedBy} />
              </>
            )}
          </td>
        </tr>
      ))}
    </>
  );
}

export function Setter({ origin }: { origin: Origin }) {
  if (origin.policy === null) {
    return <span class="quiet">{origin.level === "built-in" ? "a default" : "nobody"}</span>;
  }
  return <Name text={`${origin.policy.name} ${origin.item}`.trim()} whole />;
}

export function Where({ origin }: { origin: Origin | null }) {
  if (origin === null || origin.file === "") {
    return null;
  }
  return (
    <span class="place">
      <Name text={`${origin.file}:${origin.line}`} whole />
    </span>
  );
}
