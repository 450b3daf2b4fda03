/** The last rollout of each mesh. Nobody is told of one who may not look into it. */

import { type Answer, revision, useAnswer } from "./api";
import { useStore } from "./store";

export interface Resource {
  readonly type: string;
  readonly mesh?: string;
  readonly name: string;
}

export function titleOf(resource: Resource): string {
  return `${resource.type} ${resource.mesh === undefined ? "" : `${resource.mesh}/`}${resource.name}`;
}

export interface Rollout {
  readonly mesh: string;
  readonly number: number;
  readonly author: string;
  readonly begun: string;
  readonly state: string;
  readonly underWay: boolean;
  readonly course: string;
  readonly reason: string | null;
  readonly resources: readonly (Resource & { readonly change: string })[];
}

export function useRollouts(): Answer<{ readonly items: readonly Rollout[] }> {
  return useAnswer("/_rollouts", {}, useStore(revision));
}
