// @modelcontextprotocol/client 2.x; the orders' mode is "legacy", "auto" or a revision to pin.
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { decide, orders } from "./steps.mjs";
import { converse } from "./mcp_story.mjs";

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
await converse(client, StdioClientTransport, () => client.getNegotiatedProtocolVersion?.());
