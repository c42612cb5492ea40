// @modelcontextprotocol/client 2.x; the orders' mode is "legacy", "auto" or a revision to pin.
import { converse } from "./mcp_story.mjs";
import { decide, load, orders } from "./steps.mjs";

const { Client } = load("@modelcontextprotocol/client");
const { StdioClientTransport } = load("@modelcontextprotocol/client/stdio");

const mode = ["legacy", "auto"].includes(orders.mode) ? orders.mode : { pin: orders.mode };
const client = new Client(
  { name: "test", version: "1" },
  { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode } },
);
client.setRequestHandler("elicitation/create", ({ params }) =>
  decide(
    params.message,
    { action: "accept", content: { decision: "Allow once" } },
    { action: "decline" },
  ),
);
await converse(client, StdioClientTransport, {
  version: () => client.getNegotiatedProtocolVersion(),
  callTool: (request, options) => client.callTool(request, options),
});
