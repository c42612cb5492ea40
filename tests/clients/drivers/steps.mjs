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

const TITLES = {
  once: "Allow once",
  conversation: "Allow in this conversation",
  project: "Allow in this project",
  always: "Always allow",
};

// Every question that was put.
export const asked = [];

// The title of the decision: refuses what is to be refused, else allows for as long as the story has it.
export function decide(text) {
  asked.push(text);
  if (text.includes(orders.story.refused)) return "Deny";
  const found = Object.entries(orders.story.remember).find(([, code]) => text.includes(code));
  return TITLES[found?.[0] ?? "once"];
}

// The answer to a form that asks for a decision.
export function fillIn({ message }) {
  const decision = decide(message);
  return decision === "Deny" ? { action: "decline" } : { action: "accept", content: { decision } };
}

// How often running each code twice is asked for.
export async function countAsks(run) {
  const asks = {};
  for (const [name, code] of Object.entries(orders.story.remember)) {
    const before = asked.length;
    await run(code);
    await run(code);
    asks[name] = asked.length - before;
  }
  return asks;
}
