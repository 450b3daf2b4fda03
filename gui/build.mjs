// Builds the page into a folder: one script, one style sheet and an icon, each named after its content, and index.html.
// Each file stands there a second time as gzip. The folder appears at once and whole, also where one was before.

import { mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const [target, madeFrom = ""] = process.argv.slice(2); // a folder, and what stands for the sources (build.py)
const work = `${target}.new-${process.pid}`;

const { metafile } = await build({
  entryPoints: [
    { in: join(here, "src", "main.tsx"), out: "page" },
    { in: join(here, "src", "style", "page.css"), out: "page" },
    { in: join(here, "src", "style", "icon.svg"), out: "icon" },
  ],
  outdir: join(work, "assets"),
  entryNames: "[name]-[hash]",
  bundle: true,
  minify: true,
  format: "esm",
  target: ["chrome123", "firefox124", "safari17.5"], // those that know `light-dark()` and `AbortSignal.any`
  loader: { ".svg": "copy" },
  metafile: true,
  legalComments: "eof",
  logLevel: "warning",
});

const names = Object.keys(metafile.outputs).map((path) => path.slice(path.lastIndexOf("/") + 1));
const named = (ending) => names.find((name) => name.endsWith(ending));
const template = await readFile(join(here, "src", "index.html"), "utf8");
const index = template
  .replace("page.js", named(".js"))
  .replace("page.css", named(".css"))
  .replace("icon.svg", named(".svg"));
await writeFile(join(work, "index.html"), index);
await writeFile(join(work, "made-from"), madeFrom);

for (const name of await readdir(work, { recursive: true, withFileTypes: true })) {
  if (name.isFile() && name.name !== "made-from") {
    const path = join(name.parentPath, name.name);
    await writeFile(`${path}.gz`, gzipSync(await readFile(path), { level: 9 }));
  }
}
await mkdir(dirname(target), { recursive: true });
await rm(target, { recursive: true, force: true });
await rename(work, target);
