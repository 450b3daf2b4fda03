/** What the API answers to `_explain` and `_values`, as far as the page reads it. */

export interface ResourceKey {
  readonly type: string;
  readonly mesh: string;
  readonly name: string;
}

export interface Origin {
  readonly value: unknown;
  readonly level: string;
  readonly policy: ResourceKey | null;
  readonly item: string;
  readonly path: string;
  readonly file: string;
  readonly line: number;
  readonly removedBy: Origin | null;
}

/** One field of a policy: the value that holds, and those that it overrides. */
export interface FieldValue {
  readonly policy: string;
  readonly path: string;
  readonly said: Origin;
  readonly over: readonly Origin[];
  readonly at: string;
  readonly note: string;
}

export interface Condition {
  readonly of: string;
  readonly kind: string;
  readonly wanted: string;
  readonly given: string | null;
  readonly inverted: boolean;
}

export interface RouteRow {
  readonly index: number;
  readonly owner: ResourceKey | null;
  readonly place: Origin | null;
  readonly beside: readonly ResourceKey[];
  readonly asks: readonly Condition[];
  readonly matches: boolean | null;
  readonly taken: boolean;
  readonly why: string;
  readonly patched: boolean;
  readonly hostname: string;
}

export interface Backend {
  readonly cluster: string;
  readonly service: string;
  readonly weight: number;
  readonly share: number;
  readonly endpoints: readonly string[];
  readonly values: readonly FieldValue[];
  readonly missing: string;
}

export interface Limit {
  readonly of: string;
  readonly side: string;
  readonly policy: string;
  readonly field: string;
  readonly said: Origin;
  readonly seconds: number;
  readonly binding: boolean;
}

export interface Access {
  readonly cluster: string;
  readonly servers: readonly string[];
  readonly allowed: boolean;
  readonly reason: string;
  readonly decidedBy: Origin | null;
  readonly shadowDeniedBy: Origin | null;
  readonly spoken: string;
  readonly spokenReason: string;
  readonly taken: string;
  readonly takenOrigin: Origin | null;
  readonly callerNames: readonly string[];
  readonly expectedNames: readonly string[];
  readonly serverNames: readonly string[];
}

export interface Explanation {
  readonly proxy: ResourceKey;
  readonly call: {
    readonly method: string;
    readonly host: string;
    readonly port: number | null;
    readonly path: string;
    readonly scheme: string;
  };
  readonly outbound: {
    readonly address: string;
    readonly port: number;
    readonly destination: string;
    readonly protocol: string;
    readonly kind: string;
  } | null;
  readonly listener: {
    readonly gateway: ResourceKey;
    readonly address: string;
    readonly port: number;
    readonly protocol: string;
    readonly hostname: string;
    readonly host: string;
    readonly origin: Origin | null;
    readonly reason: string;
    readonly tls: string;
    readonly clients: readonly FieldValue[];
  } | null;
  readonly outcome: {
    readonly path: string;
    readonly host: string;
    readonly forward: { readonly path: string; readonly host: string | null } | null;
    readonly reply: {
      readonly status: number;
      readonly reason: string;
      readonly body: string;
      readonly location: string;
    } | null;
  };
  readonly rows: readonly RouteRow[];
  readonly values: readonly FieldValue[];
  readonly backends: readonly Backend[];
  readonly servers: readonly {
    readonly cluster: string;
    readonly servers: readonly string[];
    readonly values: readonly FieldValue[];
  }[];
  readonly access: readonly Access[];
  readonly hops: readonly {
    readonly cluster: string;
    readonly servers: readonly string[];
    readonly limits: readonly Limit[];
  }[];
  readonly changes: readonly string[];
  readonly notEnforced: readonly string[];
  readonly notKnown: readonly string[];
  readonly leftOut: readonly string[];
  readonly moves: readonly string[];
  /** What a rollout that is under way means for the proxy. */
  readonly rollout?: string;
}
