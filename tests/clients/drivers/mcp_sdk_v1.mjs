// @modelcontextprotocol/sdk 1.x: the handshake era.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { decide } from "./steps.mjs";
import { converse } from "./mcp_story.mjs";

const client = new Client({ name: "test", version: "1" }, { capabilities: { elicitation: {} } });
client.setRequestHandler(ElicitRequestSchema, ({ params }) =>
  decide(
    params.message,
    { action: "accept", content: { decision: "Allow once" } },
    { action: "decline" },
  ),
);
await converse(client, StdioClientTransport, () => client.getServerVersion().name);
