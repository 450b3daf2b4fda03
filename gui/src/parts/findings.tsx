import { Name } from "./name";

export interface Finding {
  readonly code: string;
  readonly severity: string;
  readonly message: string;
  readonly hint?: string;
  readonly resource?: string;
  readonly path?: string;
  readonly file?: string;
  readonly line?: number;
}

/** Findings, each with where it is and what would be right. */
export function Findings({ findings }: { findings: readonly Finding[] }) {
  return findings.length === 0 ? null : (
    <ul class="findings">
      {findings.map((finding) => (
        <li key={JSON.stringify(finding)} class={`note ${finding.severity === "error" ? "bad" : ""}`}>
          <p>
            <b>{finding.severity}</b> {finding.resource && <Name text={finding.resource} whole />}{" "}
            {finding.path && <Name text={finding.path} whole />} <span class="quiet">{finding.code}</span>
          </p>
          <p>
            <Name text={finding.message} whole />
          </p>
          {finding.hint && (
            <p>
              To mend it: <Name text={finding.hint} whole />
            </p>
          )}
          {finding.file && (
            <p class="place">
              <Name text={`${finding.file}:${finding.line}`} whole />
            </p>
          )}
        </li>
      ))}
    </ul>
  );
}
