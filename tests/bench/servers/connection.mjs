// The same methods on vscode-jsonrpc; the folder of its package is the argument.
import { createRequire } from "node:module";

const require = createRequire(process.argv[2] + "/");
const { createMessageConnection, StreamMessageReader, StreamMessageWriter } = require("vscode-jsonrpc/node");

const connection = createMessageConnection(
  new StreamMessageReader(process.stdin),
  new StreamMessageWriter(process.stdout),
);
connection.onRequest("ping", () => ({}));
connection.onRequest("exec_list", () => []);
connection.onRequest("echo", (params) => params);
connection.onClose(() => process.exit(0));
connection.listen();
