"""Calls a tool by the SDK for Python: client.py URL TOOL ARGUMENTS [KEY]. Prints what the application sees, as JSON."""
import asyncio
import json
import sys

from mcp import MCPError
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def main(url, tool, arguments, key=None):
    async with streamable_http_client(url) as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        try:
            answer = await session.call_tool(tool, json.loads(arguments), meta={"idempotencyKey": key} if key else None)
            print(json.dumps({"text": answer.content[0].text}))
        except MCPError as error:
            print(json.dumps({"code": error.error.code, "message": error.error.message, "data": error.error.data}))


asyncio.run(main(*sys.argv[1:]))
