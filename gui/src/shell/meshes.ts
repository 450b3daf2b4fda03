/** The names of all meshes that may be read. */

import { useMemo } from "preact/hooks";
import { revision, useAnswer } from "./api";
import { fleet } from "./fleet";
import { useStore } from "./store";

export function useMeshes(): readonly string[] {
  const newest = useStore(revision);
  const { proxies } = useStore(fleet);
  const answer = useAnswer<{ items: readonly { name: string }[] }>("/meshes", { size: "1000" }, newest);
  return useMemo(() => {
    const names = answer.data?.items.map((mesh) => mesh.name) ?? [];
    // Of very many meshes the answer has only the first: those with proxies are known without it.
    return [...new Set([...names, ...proxies.map((proxy) => proxy.mesh)])];
  }, [answer.data, proxies]);
}
