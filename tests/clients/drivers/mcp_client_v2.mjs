// @modelcontextprotocol/client 2.x; the orders' mode is "legacy", "auto" or a revision to pin.
import { converse } from "./mcp_story.mjs";
import { fillIn, load, orders } from "./steps.mjs";

const { Client } = load("@modelcontextprotocol/client");
const { StdioClientTransport } = load("@modelcontextprotocol/client/stdio");

const mode = ["legacy", "auto"].includes(orders.mode) ? orders.mode : { pin: orders.mode };
const client = new Client(
  { name: "test", version: "1" },
  { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode } },
);
client.setRequestHandler("elicitation/create", ({ params }) => fillIn(params));
await converse(client, StdioClientTransport, {
  version: () => client.getNegotiatedProtocolVersion(),
  callTool: (request, options) => client.callTool(request, options),
});
