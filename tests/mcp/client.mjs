// The same client as client.py, by the SDK for TypeScript: client.mjs URL TOOL ARGUMENTS [KEY].
import { createRequire } from "node:module";

const require = createRequire(process.env.MCP_MODULES + "/");
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");

const [url, tool, args, key] = process.argv.slice(2);
const client = new Client({ name: "agent", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
try {
    const answer = await client.callTool({ name: tool, arguments: JSON.parse(args), ...(key ? { _meta: { idempotencyKey: key } } : {}) });
    console.log(JSON.stringify({ text: answer.content[0].text }));
} catch (error) {
    console.log(JSON.stringify({ code: error.code, message: error.message, data: error.data }));
}
await client.close();
