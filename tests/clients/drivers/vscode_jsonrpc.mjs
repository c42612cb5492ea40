// vscode-jsonrpc: the editor dialect with headers, as language clients in editors speak it.
import { spawn } from "node:child_process";
import { once } from "node:events";
import process from "node:process";
import { answered, asked, countAsks, decide, load, orders, saw, step } from "./steps.mjs";

const rpc = load("vscode-jsonrpc/node");
const { story } = orders;
const [command, ...args] = orders.command;
const server = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const connection = rpc.createMessageConnection(
  new rpc.StreamMessageReader(server.stdout),
  new rpc.StreamMessageWriter(server.stdin),
);
connection.onRequest("window/showMessageRequest", ({ message, actions }) => {
  const wanted = decide(message);
  return actions.find((action) => action.title === wanted);
});
connection.listen();

const call = (method, params, ...more) => connection.sendRequest(method, params ?? {}, ...more);
const outcome = async (exec_id) => answered(await call("exec_wait", { exec_id }));

await step("shutdown", async () => {
  await step("list", async () => {
    const initialized = await call("initialize", { processId: process.pid, rootUri: null, capabilities: {} });
    await connection.sendNotification("initialized", {});
    const { methods } = await call("rpc.discover");
    saw({ version: initialized.serverInfo.name, tools: methods.map((method) => method.name) });
  });
  await step("query", async () => saw({ rows: (await call("query", { sql: story.sql, format: "table" })).rows }));
  await step("job", async () => {
    const told = [];
    const token = "job-1";
    connection.onProgress(new rpc.ProgressType(), token, (value) => told.push(value));
    const { exec_id } = await call("exec_background", { code: story.job });
    saw({ outcome: answered(await call("exec_wait", { exec_id, workDoneToken: token })) });
    saw({ kinds: told.map(({ kind }) => kind), progress: told.filter(({ kind }) => kind === "report") });
  });
  await step("cancel", async () => {
    const { exec_id } = await call("exec_background", { code: story.endless });
    await call("exec_wait", { exec_id, timeout_s: 2 });
    const giveUp = new rpc.CancellationTokenSource();
    const waiting = call("exec_wait", { exec_id, timeout_s: 60 }, giveUp.token);
    await call("query", { sql: story.sql });
    giveUp.cancel();
    saw({ cancelled: await waiting.then(() => false, (error) => error.code === -32800) });
    await call("exec_interrupt", { exec_id });
    saw({ outcome: await outcome(exec_id) });
  });
  await step("approval", async () => {
    const { exec_id } = await call("exec_background", { code: story.asked });
    saw({ outcome: await outcome(exec_id) });
    const refused = await call("exec_background", { code: story.refused }).catch((error) => error);
    saw({ refused: refused.code === -31401, asked });
  });
  await step("remember", async () => {
    saw({ asks: await countAsks((code) => call("exec_background", { code })) });
  });
  await step("error", async () => {
    const failed = await call("query", { sql: story.wrong_sql }).catch((error) => error);
    saw({ failed: failed instanceof rpc.ResponseError, text: failed.message });
    await call("no_such_tool").catch((error) => saw({ code: error.code }));
  });
  const ended = once(server, "exit");
  await connection.sendRequest("shutdown");
  await connection.sendNotification("exit");
  saw({ code: (await ended)[0] });
  connection.dispose();
});
