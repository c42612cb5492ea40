// @modelcontextprotocol/sdk 1.x: the handshake era.
import { converse } from "./mcp_story.mjs";
import { decide, load } from "./steps.mjs";

const { Client } = load("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = load("@modelcontextprotocol/sdk/client/stdio.js");
const { ElicitRequestSchema } = load("@modelcontextprotocol/sdk/types.js");

const client = new Client({ name: "test", version: "1" }, { capabilities: { elicitation: {} } });
client.setRequestHandler(ElicitRequestSchema, ({ params }) =>
  decide(
    params.message,
    { action: "accept", content: { decision: "Allow once" } },
    { action: "decline" },
  ),
);
await converse(client, StdioClientTransport, {
  version: (transport) => transport._protocolVersion,
  callTool: (request, options) => client.callTool(request, undefined, options),
});
