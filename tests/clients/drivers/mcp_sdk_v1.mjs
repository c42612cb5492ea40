// @modelcontextprotocol/sdk 1.x: the handshake era.
import { converse } from "./mcp_story.mjs";
import { fillIn, load } from "./steps.mjs";

const { Client } = load("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = load("@modelcontextprotocol/sdk/client/stdio.js");
const { ElicitRequestSchema } = load("@modelcontextprotocol/sdk/types.js");

const client = new Client({ name: "test", version: "1" }, { capabilities: { elicitation: {} } });
client.setRequestHandler(ElicitRequestSchema, ({ params }) => fillIn(params));
class Transport extends StdioClientTransport {
  setProtocolVersion(version) {
    this.agreed = version;
  }
}

await converse(client, Transport, {
  version: (transport) => transport.agreed,
  callTool: (request, options) => client.callTool(request, undefined, options),
});
