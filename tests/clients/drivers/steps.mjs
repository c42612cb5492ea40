// What every Node driver shares: its orders, and one line of JSON for each step's outcome.
import { createRequire } from "node:module";
import process from "node:process";

export const WITHIN_MS = 30_000;

export const orders = JSON.parse(process.argv[2]);

// The client's packages stand in an environment of their own, not beside the drivers.
export const load = createRequire(orders.packages);

let seen = {};

export function saw(values) {
  Object.assign(seen, values);
}

// An exception in a step is its outcome, and the driver goes on.
export async function step(name, body) {
  const around = seen;
  seen = {};
  let failure = null;
  try {
    await body();
  } catch (error) {
    failure = String(error?.stack ?? error);
  }
  process.stdout.write(JSON.stringify({ step: name, failure, saw: seen }) + "\n");
  seen = around;
}

export function answered({ status, done, stdout }) {
  return { status, done, stdout };
}

// Allows once; refuses the code that is to be refused. Remembers every question.
export const asked = [];

export function decide(text, allow, deny) {
  asked.push(text);
  return text.includes(orders.story.refused) ? deny : allow;
}
