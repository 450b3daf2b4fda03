/** Where what an Envoy has is not what it should have. */

import { quantity, textOf } from "../shell/text";
import { Name } from "./name";
import { Wide } from "./wide";

export interface EnvoyComparison {
  readonly compared: Readonly<Record<string, number>>;
  readonly differences: readonly ResourceDifference[];
}

interface ResourceDifference {
  readonly type: string;
  readonly name: string;
  readonly state: string;
  readonly reason?: string;
  readonly fields?: readonly { readonly path: string; readonly wanted?: unknown; readonly envoy?: unknown }[];
  readonly moreFields?: number;
}

const STATES: Readonly<Record<string, string>> = {
  different: "is not as it should be",
  missing: "is missing: Envoy does not have it",
  extra: "should not be there: Envoy has it",
  warming: "is not ready yet",
  refused: "is as it should be, after Envoy refused it",
};

export function EnvoyDifferences({ data }: { data: EnvoyComparison }) {
  const counts = Object.entries(data.compared).filter(([, count]) => count > 0);
  const compared = counts.map(([type, count]) => `${count.toLocaleString("en")} ${type}`).join(", ") || "nothing";
  if (data.differences.length === 0) {
    return <p>Envoy has what it should have: {compared}.</p>;
  }
  return (
    <>
      <p>
        {quantity(data.differences.length, "difference")}; compared were {compared}.
      </p>
      {data.differences.map((difference) => (
        <Difference key={`${difference.type} ${difference.name}`} difference={difference} />
      ))}
    </>
  );
}

function Difference({ difference }: { difference: ResourceDifference }) {
  const { type, name, state, reason = "", fields = [], moreFields = 0 } = difference;
  return (
    <section>
      <h2>
        {type} <Name text={name} whole /> <span class="quiet">{STATES[state] ?? state}</span>
      </h2>
      {reason !== "" && (
        <p class="note bad">
          Envoy says: <Name text={reason} whole />
        </p>
      )}
      {fields.length > 0 && (
        <Wide label={`Fields that differ in ${type}`}>
          <table>
            <thead>
              <tr>
                <th scope="col">Field</th>
                <th scope="col">Should be</th>
                <th scope="col">Is</th>
              </tr>
            </thead>
            <tbody>
              {fields.map((field) => (
                <tr key={field.path}>
                  <th scope="row">
                    <Name text={field.path || "as a whole"} whole />
                  </th>
                  <Side value={field.wanted} />
                  <Side value={field.envoy} />
                </tr>
              ))}
            </tbody>
          </table>
        </Wide>
      )}
      {moreFields > 0 && <p class="quiet">{quantity(moreFields, "field")} more.</p>}
    </section>
  );
}

function Side({ value }: { value: unknown }) {
  return value === undefined ? (
    <td class="quiet">nothing</td>
  ) : (
    <td class="figure">
      <Name text={textOf(value)} whole />
    </td>
  );
}
