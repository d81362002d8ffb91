// The same server as server.py, by the SDK for TypeScript: server.mjs PORT LEDGER [json|events]; with
// events it keeps them for clients that resume.
import { appendFileSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";

const require = createRequire(process.env.MCP_MODULES + "/");
const { McpServer } = require("@modelcontextprotocol/sdk/server/mcp.js");
const { StreamableHTTPServerTransport } = require("@modelcontextprotocol/sdk/server/streamableHttp.js");
const { z } = require("zod");

const [port, ledger, form] = process.argv.slice(2);
const sessions = new Map();
const events = [];
const kept = {
    async storeEvent(stream, message) {
        events.push({ stream, message });
        return String(events.length);
    },
    async getStreamIdForEventId(id) {
        return events[id - 1]?.stream;
    },
    async replayEventsAfter(id, { send }) {
        const { stream } = events[id - 1];
        for (const [at, event] of events.entries()) {
            if (at >= id && event.stream === stream && event.message.jsonrpc) {
                await send(String(at + 1), event.message);
            }
        }
        return stream;
    },
};

function bank() {
    const server = new McpServer({ name: "bank", version: "1" });
    const says = (value) => ({ content: [{ type: "text", text: String(value) }] });
    server.registerTool("pay", { inputSchema: { order: z.string(), amount: z.number(), then: z.string().optional() } }, async (call) => {
        appendFileSync(ledger, `${call.order} ${call.amount}\n`);
        if (call.then === "die") {
            process.kill(process.pid, "SIGKILL");
        }
        if (call.then === "stay") {
            await new Promise(() => {});
        }
        return says(`paid ${call.amount} for ${call.order}`);
    });
    server.registerTool("look", { inputSchema: { order: z.string() }, annotations: { readOnlyHint: true } }, (call) =>
        says(readFileSync(ledger, "utf8").split("\n").filter((line) => line.split(" ")[0] === call.order).length));
    return server;
}

createServer(async (request, response) => {
    const known = sessions.get(request.headers["mcp-session-id"]);
    if (request.headers["mcp-session-id"] && !known) {
        response.writeHead(404).end();
        return;
    }
    const transport = known ?? new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID, enableJsonResponse: form === "json", eventStore: form === "events" ? kept : undefined,
        onsessioninitialized: (id) => sessions.set(id, transport),
    });
    if (!known) {
        await bank().connect(transport);
    }
    await transport.handleRequest(request, response);
}).listen(Number(port), "127.0.0.1");
