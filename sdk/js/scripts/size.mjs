// Measures what a page loads: each entry minified and gzipped, and the parts that are
// loaded on demand. Fails above the bound that the README names.

import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

const bounds = { client: 60, json: 60 }; // KiB, of what is loaded at once
let ok = true;

for (const [name, entry] of Object.entries({ client: 'src/index.ts', json: 'src/json/index.ts' })) {
  const { metafile, outputFiles } = await build({
    entryPoints: { [name]: entry },
    bundle: true, minify: true, format: 'esm', target: 'es2022', splitting: true, metafile: true,
    write: false, outdir: 'out', chunkNames: 'chunk-[hash]', legalComments: 'none',
  });
  const files = new Map(outputFiles.map((f) => [f.path.slice(f.path.indexOf('/out/') + 1), f.contents]));
  const size = (path) => gzipSync(files.get(path), { level: 9 }).length;
  const kib = (n) => (n / 1024).toFixed(1).padStart(6) + ' KiB';
  const outputs = metafile.outputs;
  const reach = (path, kind, seen = new Set()) => {
    if (seen.has(path)) return seen;
    seen.add(path);
    for (const i of outputs[path].imports) if (i.kind === kind || i.kind === 'import-statement') reach(i.path, 'import-statement', seen);
    return seen;
  };
  const atOnce = reach(`out/${name}.js`, 'import-statement');
  const total = [...atOnce].reduce((n, path) => n + size(path), 0);
  console.log(`${name}: ${kib(total)} at once`);
  const onDemand = [...atOnce].flatMap((p) => outputs[p].imports).filter((i) => i.kind === 'dynamic-import');
  for (const path of new Set(onDemand.map((i) => i.path))) {
    const parts = [...reach(path, 'import-statement')].filter((p) => !atOnce.has(p));
    const what = outputs[path].entryPoint ?? path;
    console.log(`  on demand: ${kib(parts.reduce((n, p) => n + size(p), 0))} ${what}`);
  }
  if (total > bounds[name] * 1024) ok = false;
}
if (!ok) {
  console.error('larger than the README says');
  process.exit(1);
}
