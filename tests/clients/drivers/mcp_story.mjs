// The story as both TypeScript SDKs go through it: their clients share most of the API that it needs.
import { WITHIN_MS, answered, asked, countAsks, orders, saw, step } from "./steps.mjs";

const { story } = orders;

export async function converse(client, Transport, { version, callTool }) {
  const call = (name, args, options = {}) =>
    callTool({ name, arguments: args }, { timeout: WITHIN_MS, ...options });
  const fields = async (name, args, options) => {
    const result = await call(name, args, options);
    if (result.isError) throw new Error(JSON.stringify(result.content));
    return result.structuredContent;
  };
  const outcome = async (exec_id) => answered(await fields("exec_wait", { exec_id }));

  await step("shutdown", async () => {
    const [command, ...args] = orders.command;
    const transport = new Transport({ command, args, stderr: "inherit" });
    await client.connect(transport);
    await step("list", async () => {
      const { tools } = await client.listTools();
      saw({ version: version(transport), tools: tools.map((tool) => tool.name) });
    });
    await step("query", async () => saw({ rows: (await fields("query", { sql: story.sql })).rows }));
    await step("job", async () => {
      const progress = [];
      const { exec_id } = await fields("exec_background", { code: story.job });
      const onprogress = (update) => progress.push(update.progress);
      saw({ outcome: answered(await fields("exec_wait", { exec_id }, { onprogress })), progress });
    });
    await step("cancel", async () => {
      const { exec_id } = await fields("exec_background", { code: story.endless });
      await fields("exec_wait", { exec_id, timeout_s: 2 });
      const giveUp = new AbortController();
      const waiting = fields("exec_wait", { exec_id, timeout_s: 60 }, { signal: giveUp.signal });
      await call("query", { sql: story.sql });
      giveUp.abort("enough");
      saw({ cancelled: await waiting.then(() => false, () => true) });
      await call("exec_interrupt", { exec_id });
      saw({ outcome: await outcome(exec_id) });
    });
    await step("approval", async () => {
      const { exec_id } = await fields("exec_background", { code: story.asked });
      saw({ outcome: await outcome(exec_id) });
      const refused = await call("exec_background", { code: story.refused });
      saw({ refused: refused.isError, asked });
    });
    await step("remember", async () => {
      saw({ asks: await countAsks((code) => fields("exec_background", { code })) });
    });
    await step("error", async () => {
      const failed = await call("query", { sql: story.wrong_sql });
      saw({ failed: failed.isError, text: failed.content[0].text });
      await call("no_such_tool", {}).catch((error) => saw({ code: error.code }));
    });
    await client.close();
  });
}
