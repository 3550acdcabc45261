// The licences of all packages in the bundle, in one file beside it.
import { readFileSync, readdirSync, writeFileSync } from "node:fs";

const BUILD_ONLY = /^(@esbuild|esbuild|prettier)/;

function packagesIn(folder) {
  return readdirSync(folder)
    .filter((name) => !name.startsWith("."))
    .flatMap((name) =>
      name.startsWith("@") ? readdirSync(`${folder}/${name}`).map((part) => `${name}/${part}`) : [name],
    )
    .filter((name) => !BUILD_ONLY.test(name));
}

function licenceOf(name) {
  const folder = `node_modules/${name}`;
  const { version, license } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
  const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
  const text = file ? readFileSync(`${folder}/${file}`, "utf8").trim() : license;
  return `${name} ${version} (${license})\n\n${text}\n`;
}

const line = `\n${"-".repeat(80)}\n\n`;
const text = packagesIn("node_modules").sort().map(licenceOf).join(line);
writeFileSync(
  "../src/needlepoint/service/assets/vendor/LICENCES.txt",
  `codemirror.js contains these packages.\n${line}${text}`,
);
